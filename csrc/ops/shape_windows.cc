// Padding by reflection and replication, sliding windows, and their backwards: all are stencils along single
// dimensions.
#include <algorithm>

#include "ops/indexing.h"
#include "ops/promote.h"
#include "ops/shape.h"
#include "ops/stencil.h"

namespace torch_tpu::ops {
namespace {

enum class Border { kReflect, kReplicate };

// Which input each output of a padded dimension shows.
std::vector<int64_t> border_positions(int64_t size, int64_t low, int64_t high, Border border) {
  std::vector<int64_t> positions;
  for (int64_t o = 0; o < size + low + high; ++o) {
    int64_t p = o - low;
    if (border == Border::kReflect) {
      if (p < 0) p = -p;
      if (p >= size) p = 2 * (size - 1) - p;
    }
    positions.push_back(std::clamp<int64_t>(p, 0, size - 1));
  }
  return positions;
}

// reflection_padNd(self, padding), replication_padNd
Rule border_pad(Border border) {
  return [border](Context& c, const Args& args) -> Values {
    Value x = args.tensor(0);
    const std::vector<int64_t>& pad = args.ints(1);
    if (element_count(c.out().shape) == 0) return {c.b.zeros(c.out())};
    for (size_t i = 0; i < pad.size() / 2; ++i) {
      auto dim = x.rank() - 1 - static_cast<int64_t>(i);
      x = take_static(c.b, x, dim, border_positions(x.dim(dim), pad[2 * i], pad[2 * i + 1], border));
    }
    return {x};
  };
}

// ..._backward(grad_output, self, padding)
Rule border_pad_backward(Border border) {
  return [border](Context& c, const Args& args) -> Values {
    Value grad = args.tensor(0);
    const std::vector<int64_t>& pad = args.ints(2);
    const Type& out = c.out();
    if (grad.numel() == 0) return {c.b.zeros(out)};
    grad = c.b.convert(grad, compute_dtype(out.dtype));
    for (size_t i = 0; i < pad.size() / 2; ++i) {
      auto dim = grad.rank() - 1 - static_cast<int64_t>(i);
      std::vector<int64_t> positions = border_positions(out.shape[dim], pad[2 * i], pad[2 * i + 1], border);
      grad = apply_stencil(c.b, grad, dim, Stencil::from_positions(out.shape[dim], positions).transposed());
    }
    return {c.b.convert(grad, out.dtype)};
  };
}

// Input position (before padding) of element k of window o, k-major: entry k * windows + o.
std::vector<int64_t> window_positions(int64_t kernel, int64_t windows, int64_t stride, int64_t dilation, int64_t pad) {
  std::vector<int64_t> positions;
  for (int64_t k = 0; k < kernel; ++k) {
    for (int64_t o = 0; o < windows; ++o) positions.push_back(o * stride + k * dilation - pad);
  }
  return positions;
}

// unfold_backward(grad_in, input_sizes, dim, size, step): windows overlap-add.
Values unfold_backward(Context& c, const Args& args) {
  Builder& b = c.b;
  const Type& out = c.out();
  Value grad = args.tensor(0);
  auto rank = static_cast<int64_t>(out.shape.size());
  int64_t dim = wrap_dim(args.integer(2), rank), size = args.integer(3), step = args.integer(4);
  if (grad.numel() == 0) return {b.zeros(out)};
  grad = b.convert(grad, compute_dtype(out.dtype));
  if (rank == 0) return {b.convert(b.reshape(b.reduce_sum(b.reshape(grad, {grad.numel()}), {0}), {}), out.dtype)};
  int64_t windows = grad.dim(dim);
  Dims permutation;
  for (int64_t d = 0; d < rank; ++d) {
    if (d == dim) permutation.push_back(rank);
    permutation.push_back(d);
  }
  Shape joined = out.shape;
  joined[dim] = size * windows;
  grad = b.reshape(b.transpose(grad, permutation), joined);
  Stencil stencil = Stencil::from_positions(out.shape[dim], window_positions(size, windows, step, 1, 0));
  return {b.convert(apply_stencil(b, grad, dim, stencil.transposed()), out.dtype)};
}

struct Unfold2d {
  std::vector<int64_t> kernel, dilation, padding, stride;
  int64_t windows(int64_t size, int i) const {
    return (size + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1) / stride[i] + 1;
  }
  std::vector<int64_t> positions(int64_t size, int i) const {
    return window_positions(kernel[i], windows(size, i), stride[i], dilation[i], padding[i]);
  }
};

// im2col(self, kernel_size, dilation, padding, stride): [N, C, H, W] -> [N, C * kh * kw, windows]
Values im2col(Context& c, const Args& args) {
  Builder& b = c.b;
  Value x = args.tensor(0);
  if (element_count(c.out().shape) == 0) return {b.zeros(c.out())};
  if (x.rank() == 3) x = b.unsqueeze(x, 0);
  Unfold2d u{args.ints(1), args.ints(2), args.ints(3), args.ints(4)};
  int64_t n = x.dim(0), channels = x.dim(1), height = x.dim(2), width = x.dim(3);
  x = apply_stencil(b, x, 3, Stencil::from_positions(width, u.positions(width, 1)));
  x = apply_stencil(b, x, 2, Stencil::from_positions(height, u.positions(height, 0)));
  x = b.reshape(x, {n, channels, u.kernel[0], u.windows(height, 0), u.kernel[1], u.windows(width, 1)});
  return {b.reshape(b.transpose(x, {0, 1, 2, 4, 3, 5}), c.out().shape)};
}

// col2im(self, output_size, kernel_size, dilation, padding, stride)
Values col2im(Context& c, const Args& args) {
  Builder& b = c.b;
  Value x = args.tensor(0);
  if (x.numel() == 0) return {b.zeros(c.out())};
  if (x.rank() == 2) x = b.unsqueeze(x, 0);
  Unfold2d u{args.ints(2), args.ints(3), args.ints(4), args.ints(5)};
  int64_t height = args.ints(1)[0], width = args.ints(1)[1], kh = u.kernel[0], kw = u.kernel[1];
  int64_t n = x.dim(0), channels = x.dim(1) / (kh * kw), oh = u.windows(height, 0), ow = u.windows(width, 1);
  x = b.convert(x, compute_dtype(x.dtype()));
  x = b.transpose(b.reshape(x, {n, channels, kh, kw, oh, ow}), {0, 1, 2, 4, 3, 5});
  x = b.reshape(x, {n, channels, kh * oh, kw * ow});
  x = apply_stencil(b, x, 3, Stencil::from_positions(width, u.positions(width, 1)).transposed());
  x = apply_stencil(b, x, 2, Stencil::from_positions(height, u.positions(height, 0)).transposed());
  return {b.reshape(b.convert(x, c.out().dtype), c.out().shape)};
}

}  // namespace

void add_window_rows(Rows& rows) {
  for (const char* dims : {"1d", "2d", "3d"}) {
    std::string reflection = std::string("aten::reflection_pad") + dims;
    std::string replication = std::string("aten::replication_pad") + dims;
    rows.push_back(Row{reflection, border_pad(Border::kReflect)});
    rows.push_back(Row{reflection + "_backward", border_pad_backward(Border::kReflect)});
    rows.push_back(Row{replication, border_pad(Border::kReplicate)});
    rows.push_back(Row{replication + "_backward", border_pad_backward(Border::kReplicate)});
  }
  rows.push_back(Row{"aten::unfold_backward", unfold_backward});
  rows.push_back(Row{"aten::im2col", im2col});
  rows.push_back(Row{"aten::col2im", col2im});
}

}  // namespace torch_tpu::ops
