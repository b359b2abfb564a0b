// CTC loss with lengths given as lists: they become operands, so that a batch with other lengths compiles nothing, and
// concatenated targets become padded ones.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <numeric>
#include <tuple>

namespace torch_tpu::aten {
namespace {

using at::IntArrayRef;
using at::Tensor;

// What the row takes: [N, S] targets, lengths on the device.
struct Batch {
  Tensor targets, input_lengths, target_lengths;
};

Tensor on_device(IntArrayRef values, const Tensor& like) {
  return at::tensor(values, at::TensorOptions().dtype(at::kLong)).to(like.device());
}

// Concatenated targets as rows. The width is a multiple of 8: fewer programs for batches that differ.
Tensor padded(const Tensor& targets, IntArrayRef lengths, int64_t longest) {
  const int64_t width = std::max<int64_t>((longest + 7) / 8 * 8, 1);
  std::vector<int64_t> index;
  int64_t begin = 0;
  for (int64_t length : lengths) {
    for (int64_t j = 0; j < width; ++j) index.push_back(j < length ? begin + j : 0);
    begin += length;
  }
  const auto rows = static_cast<int64_t>(lengths.size());
  if (targets.numel() == 0) return at::zeros({rows, width}, targets.options());
  return targets.index_select(0, on_device(index, targets)).view({rows, width});
}

Batch batch(const Tensor& log_probs, const Tensor& targets, IntArrayRef input_lengths, IntArrayRef target_lengths,
            int64_t blank) {
  const int64_t count = log_probs.size(1);
  TORCH_CHECK(0 <= blank && blank < log_probs.size(2), "blank must be in label range");
  TORCH_CHECK(static_cast<int64_t>(input_lengths.size()) == count, "input_lengths must be of size batch_size");
  TORCH_CHECK(static_cast<int64_t>(target_lengths.size()) == count, "target_lengths must be of size batch_size");
  int64_t longest = 0;
  for (int64_t length : target_lengths) {
    TORCH_CHECK(length >= 0, "Expected target_lengths to have value at least 0, but got value ", length);
    longest = std::max(longest, length);
  }
  for (int64_t length : input_lengths) {
    TORCH_CHECK(length >= 0, "Expected input_lengths to have value at least 0, but got value ", length);
    TORCH_CHECK(length <= log_probs.size(0), "Expected input_lengths to have value at most ", log_probs.size(0),
                ", but got value ", length);
  }
  if (targets.dim() == 1) {
    const int64_t total = std::accumulate(target_lengths.begin(), target_lengths.end(), int64_t{0});
    TORCH_CHECK(targets.size(0) == total, "Expected targets of length ", total,
                " (the sum of target_lengths), but got ", targets.size(0));
  } else {
    TORCH_CHECK(targets.size(0) == count && targets.size(1) >= longest, "Expected targets of at least ", count, " by ",
                longest, ", but got ", targets.sizes());
  }
  Tensor rows = targets.dim() == 1 ? padded(targets, target_lengths, longest) : targets;
  return {rows, on_device(input_lengths, targets), on_device(target_lengths, targets)};
}

std::tuple<Tensor, Tensor> ctc_loss(const Tensor& log_probs, const Tensor& targets, IntArrayRef input_lengths,
                                    IntArrayRef target_lengths, int64_t blank, bool zero_infinity) {
  const Batch b = batch(log_probs, targets, input_lengths, target_lengths, blank);
  return at::_ctc_loss(log_probs, b.targets, b.input_lengths, b.target_lengths, blank, zero_infinity);
}

Tensor ctc_loss_backward(const Tensor& grad, const Tensor& log_probs, const Tensor& targets, IntArrayRef input_lengths,
                         IntArrayRef target_lengths, const Tensor& neg_log_likelihood, const Tensor& log_alpha,
                         int64_t blank, bool zero_infinity) {
  const Batch b = batch(log_probs, targets, input_lengths, target_lengths, blank);
  return at::_ctc_loss_backward(grad, log_probs, b.targets, b.input_lengths, b.target_lengths, neg_log_likelihood,
                                log_alpha, blank, zero_infinity);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_ctc_loss", &ctc_loss);
  m.impl("_ctc_loss_backward", &ctc_loss_backward);
}

}  // namespace
}  // namespace torch_tpu::aten
