// The op table: ATen schema name -> rule. Everything about an op derives from its row: functional, in-place, out= and
// list forms, the cache key, the coverage report and the docs list.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ops/context.h"

namespace torch_tpu::ops {

struct Row {
  // Functional schema with overload: "aten::add.Tensor". The in-place form `add_.Tensor` and the out form `add.out`
  // are found through the schema. An op that exists only in place ("aten::uniform_") is written with its own name:
  // the rule returns the new values of the written arguments, in schema order, then the fresh results.
  std::string name;
  Rule rule;

  // Scalar arguments (position -> values) on which the program specialises: exponents 2, alpha 1, ...
  // Anything else is an operand. An empty list means every value: arguments that decide the result's shape.
  std::map<int, std::vector<double>> specialise = {};
  // In place, the old contents of argument 0 do not matter: only its shape and dtype are read (fill_, uniform_).
  bool ignores_self = false;
  // Consumes random numbers: Context::rng_state is set. The host's generator advances by this many 4-word Philox
  // blocks, from the element count of the first result.
  bool random = false;
  // With `random`: only when this double argument is not zero (attention's dropout_p).
  int random_when = -1;
  // Calls Context::check_index.
  bool checks_index = false;
  // What a failed check says (RuntimeError); null: an index out of range (IndexError).
  const char* check_sentence = nullptr;
  // All operands and results broadcast to one shape and no dimension has a meaning (may be collapsed in the key).
  bool pointwise = false;
  // Only on this platform; another row of the same name may serve the other one.
  std::optional<Platform> only = {};
  // A list op that is applied tensor by tensor: the rule sees element k of every list. Lists of equal length.
  bool per_element = false;
  // `float` arguments (learning rates, momenta) are 0-d f64 operands in Arg::scalar instead of parts of the key.
  bool double_operands = false;
  // Arguments that the op writes although its schema does not say so (native_batch_norm's running statistics). The
  // rule returns an absent value for one that this call leaves unchanged.
  std::vector<int> writes = {};

  Row& specialising(int arg, std::vector<double> values) {
    specialise[arg] = std::move(values);
    return *this;
  }
  Row& ignoring_self() {
    ignores_self = true;
    return *this;
  }
  Row& as_random() {
    random = true;
    return *this;
  }
  Row& as_random_when(int argument) {
    random = true;
    random_when = argument;
    return *this;
  }
  Row& as_indexing() {
    checks_index = true;
    return *this;
  }
  // Checks its operands' values by Context::check_index: `sentence` is what the user reads when one is bad.
  Row& checking(const char* sentence) {
    checks_index = true;
    check_sentence = sentence;
    return *this;
  }
  Row& as_pointwise() {
    pointwise = true;
    return *this;
  }
  Row& as_per_element() {
    per_element = true;
    return *this;
  }
  Row& writing(std::vector<int> arguments) {
    writes = std::move(arguments);
    return *this;
  }
  Row& with_double_operands() {
    double_operands = true;
    return *this;
  }
  Row& only_on(Platform p) {
    only = p;
    return *this;
  }
};

using Rows = std::vector<Row>;

// One function per file of rules, each appends its rows.
void add_pointwise_rows(
    Rows& rows);  // pointwise.cc: unary, binary, comparison, ternary, activations, casts, special functions
void add_creation_rows(
    Rows& rows);                   // creation.cc: arange, eye, linspace, full, fill, tril/triu, one-hot, complex/polar
void add_random_rows(Rows& rows);  // random.cc: uniform_, normal_, bernoulli, dropout, randperm, multinomial, ...
void add_reduction_rows(
    Rows& rows);                  // reduction.cc: sum, mean, var, amax, argmax, norms, any/all, cumsum, logsumexp, ...
void add_order_rows(Rows& rows);  // order.cc: sort, topk, kthvalue, median, mode, unique helpers, searchsorted
void add_indexing_rows(
    Rows& rows);  // indexing.cc: index, index_put, gather, scatter*, index_*, take, put, embedding, masked_*
void add_shape_rows(Rows& rows);        // shape.cc: cat, stack, flip, roll, repeat, pad, unfold, pixel_shuffle, copies
void add_matmul_rows(Rows& rows);       // matmul.cc: mm, bmm, addmm, baddbmm, dot, mv, addmv, addr, _grouped_mm, ...
void add_convolution_rows(Rows& rows);  // convolution.cc: convolution_overrideable and backward
void add_pooling_rows(Rows& rows);      // pooling.cc: max/avg/adaptive pools and backwards
void add_normalization_rows(
    Rows& rows);  // normalization.cc: batch, layer, group, rms norm, softmax families and backwards
void add_quantization_rows(Rows& rows);  // quantization.cc: fake quantization
void add_attention_rows(Rows& rows);     // attention.cc: SDPA overrideable forward and backward
void add_loss_rows(Rows& rows);          // loss.cc: nll, cross entropy pieces, mse, smooth_l1, huber, bce, kl, ...
void add_recurrent_rows(Rows& rows);     // recurrent.cc: fused LSTM / GRU cells
void add_optimizer_rows(Rows& rows);     // optimizer.cc: _fused_adam(w)_, _fused_sgd_, _fused_adagrad_, amp unscale
void add_resampling_rows(Rows& rows);    // resampling.cc: upsample_*, grid_sampler, im2col, col2im
void add_linalg_rows(Rows& rows);        // linalg.cc: cholesky, triangular_solve, qr, eigh, inverse, det, fft

// All rows, built on first use. Two rows of one name are allowed only with different `only`.
const Rows& table();
// The row for a functional name on a platform, or nullptr.
const Row* find_row(std::string_view name, Platform platform);

}  // namespace torch_tpu::ops
