// Linear algebra, convolution and Fourier transforms of the Builder.
#include <algorithm>

#include "hlo/attributes.h"
#include "hlo/builder.h"

namespace torch_tpu::hlo {
namespace {

bool contains(const Dims& dims, int64_t d) { return std::find(dims.begin(), dims.end(), d) != dims.end(); }

std::string precision_config(Precision precision) {
  static constexpr const char* kNames[] = {"DEFAULT", "HIGH", "HIGHEST"};
  const std::string one = std::string("#stablehlo<precision ") + kNames[static_cast<int>(precision)] + ">";
  return "precision_config = [" + one + ", " + one + "]";
}

// "[b, f, 0, 1]" from the positions of the two named dimensions and the spatial ones.
std::string layout(int64_t first, const char* first_name, int64_t second, const char* second_name,
                   const Dims& spatial) {
  std::vector<std::string> names(spatial.size() + 2);
  names[first] = first_name;
  names[second] = second_name;
  for (size_t i = 0; i < spatial.size(); ++i) names[spatial[i]] = std::to_string(i);
  std::string out = "[";
  for (size_t i = 0; i < names.size(); ++i) out += (i ? ", " : "") + names[i];
  return out + "]";
}

Dims all_dims(int64_t a, int64_t b, const Dims& spatial) {
  Dims dims{a, b};
  dims.insert(dims.end(), spatial.begin(), spatial.end());
  return dims;
}

Dims or_fill(const Dims& dims, size_t count, int64_t value) { return dims.empty() ? Dims(count, value) : dims; }

}  // namespace

Value Builder::dot(Value x, Value y, const DotDims& dims, DType result, Precision precision) {
  constexpr const char* kOp = "stablehlo.dot_general";
  if (!present(kOp, {x, y})) return placeholder({result, {}});
  const auto chosen = [](const Dims& batch, const Dims& contract) {
    Dims all = batch;
    all.insert(all.end(), contract.begin(), contract.end());
    return all;
  };
  const Dims left = chosen(dims.lhs_batch, dims.lhs_contract), right = chosen(dims.rhs_batch, dims.rhs_contract);
  if (!distinct_dims(kOp, "left dimensions", left, x.rank()) ||
      !distinct_dims(kOp, "right dimensions", right, y.rank()))
    return placeholder({result, {}});
  if (dims.lhs_batch.size() != dims.rhs_batch.size() || left.size() != right.size())
    return mistake(kOp, "dimensions", bracketed(left) + ", " + bracketed(right), "as many on both sides", {result, {}});
  Shape shape;
  for (int64_t d : dims.lhs_batch) shape.push_back(x.dim(d));
  for (int64_t i = 0; i < x.rank(); ++i)
    if (!contains(left, i)) shape.push_back(x.dim(i));
  for (int64_t i = 0; i < y.rank(); ++i)
    if (!contains(right, i)) shape.push_back(y.dim(i));
  const Type type{result, shape};
  for (size_t i = 0; i < left.size(); ++i)
    if (x.dim(left[i]) != y.dim(right[i]))
      return mistake(kOp, "sizes", x.type().text() + ", " + y.type().text(),
                     "equal sizes in " + bracketed(left) + ", " + bracketed(right), type);
  if (x.dtype() != y.dtype())
    return mistake(kOp, "operands of different dtypes", x.type().text() + ", " + y.type().text(), "equal dtypes", type);
  if (result == DType::kInvalid || is_complex(result) != is_complex(x.dtype()) ||
      is_float(result) != is_float(x.dtype()))
    return mistake(kOp, "result dtype", std::string(hlo_name(result)), "of the kind of " + x.type().text(), type);
  std::string attributes =
      "dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = " + bracketed(dims.lhs_batch) +
      ", rhs_batching_dimensions = " + bracketed(dims.rhs_batch) +
      ", lhs_contracting_dimensions = " + bracketed(dims.lhs_contract) +
      ", rhs_contracting_dimensions = " + bracketed(dims.rhs_contract) + ">";
  const bool exact = is_integer(x.dtype()) || is_bool(x.dtype());
  attributes += ", " + precision_config(exact ? Precision::kDefault : precision);
  return emit_one(kOp, {x, y}, type, attributes);
}

Value Builder::convolution(Value x, Value w, const ConvDims& dims, const ConvWindow& window, DType result,
                           Precision precision) {
  constexpr const char* kOp = "stablehlo.convolution";
  if (!present(kOp, {x, w})) return placeholder({result, {}});
  const size_t n = dims.lhs_spatial.size();
  const auto rank = static_cast<int64_t>(n) + 2;
  const Type plausible{result, x.shape()};
  if (dims.rhs_spatial.size() != n || dims.out_spatial.size() != n || x.rank() != rank || w.rank() != rank)
    return mistake(kOp, "operands", x.type().text() + ", " + w.type().text(), std::to_string(n) + " spatial dimensions",
                   plausible);
  if (!distinct_dims(kOp, "input dimensions", all_dims(dims.lhs_batch, dims.lhs_feature, dims.lhs_spatial), rank) ||
      !distinct_dims(kOp, "kernel dimensions", all_dims(dims.rhs_out, dims.rhs_in, dims.rhs_spatial), rank) ||
      !distinct_dims(kOp, "output dimensions", all_dims(dims.out_batch, dims.out_feature, dims.out_spatial), rank))
    return placeholder(plausible);
  const Dims strides = or_fill(window.strides, n, 1), low = or_fill(window.pad_low, n, 0),
             high = or_fill(window.pad_high, n, 0);
  const Dims lhs_dilation = or_fill(window.lhs_dilation, n, 1), rhs_dilation = or_fill(window.rhs_dilation, n, 1);
  const std::vector<bool> reversal = window.reversal.empty() ? std::vector<bool>(n, false) : window.reversal;
  for (const Dims* list : {&strides, &low, &high, &lhs_dilation, &rhs_dilation})
    if (list->size() != n) return mistake(kOp, "window", bracketed(*list), "lists of " + std::to_string(n), plausible);
  if (reversal.size() != n)
    return mistake(kOp, "window reversal", bool_array(reversal), "lists of " + std::to_string(n), plausible);
  const int64_t groups = window.feature_groups, batch_groups = window.batch_groups;
  if (groups < 1 || batch_groups < 1 || (groups > 1 && batch_groups > 1))
    return mistake(kOp, "groups", std::to_string(groups) + ", " + std::to_string(batch_groups),
                   "at least 1, one kind only", plausible);
  const int64_t batch = x.dim(dims.lhs_batch), features = x.dim(dims.lhs_feature), out = w.dim(dims.rhs_out);
  if (features != w.dim(dims.rhs_in) * groups || out % groups != 0 || batch % batch_groups != 0 ||
      out % batch_groups != 0)
    return mistake(kOp, "channels of " + x.type().text() + " and " + w.type().text(),
                   std::to_string(groups) + " feature groups, " + std::to_string(batch_groups) + " batch groups",
                   "channels that divide into the groups", plausible);
  if (x.dtype() != w.dtype())
    return mistake(kOp, "operands of different dtypes", x.type().text() + ", " + w.type().text(), "equal dtypes",
                   plausible);
  Shape shape(rank);
  shape[dims.out_batch] = batch / batch_groups;
  shape[dims.out_feature] = out;
  for (size_t i = 0; i < n; ++i) {
    if (strides[i] < 1 || lhs_dilation[i] < 1 || rhs_dilation[i] < 1)
      return mistake(kOp, "strides and dilations",
                     bracketed(strides) + bracketed(lhs_dilation) + bracketed(rhs_dilation), "at least 1", plausible);
    const int64_t size = x.dim(dims.lhs_spatial[i]), kernel = w.dim(dims.rhs_spatial[i]);
    const int64_t padded = (size == 0 ? 0 : (size - 1) * lhs_dilation[i] + 1) + low[i] + high[i];
    const int64_t reach = kernel == 0 ? 0 : (kernel - 1) * rhs_dilation[i] + 1;
    shape[dims.out_spatial[i]] = padded <= 0 || reach > padded ? 0 : (padded - reach) / strides[i] + 1;
  }
  const std::string attributes =
      "window_strides = " + i64_array(strides) + ", padding = " + padding_pairs(low, high) +
      ", lhs_dilation = " + i64_array(lhs_dilation) + ", rhs_dilation = " + i64_array(rhs_dilation) +
      ", window_reversal = " + bool_array(reversal) + ", dimension_numbers = #stablehlo.conv<" +
      layout(dims.lhs_batch, "b", dims.lhs_feature, "f", dims.lhs_spatial) + "x" +
      layout(dims.rhs_out, "o", dims.rhs_in, "i", dims.rhs_spatial) + "->" +
      layout(dims.out_batch, "b", dims.out_feature, "f", dims.out_spatial) + ">, " +
      i64_attribute("feature_group_count", groups) + ", " + i64_attribute("batch_group_count", batch_groups) + ", " +
      precision_config(is_float(x.dtype()) || is_complex(x.dtype()) ? precision : Precision::kDefault);
  return emit_one(kOp, {x, w}, {result, shape}, attributes);
}

Value Builder::cholesky(Value x, bool lower) {
  constexpr const char* kOp = "stablehlo.cholesky";
  if (!present(kOp, {x})) return placeholder({DType::kF32, {}});
  if (x.rank() < 2 || x.dim(-1) != x.dim(-2) || !(is_float(x.dtype()) || is_complex(x.dtype())))
    return mistake(kOp, "operand", x.type().text(), "square float matrices", x.type());
  return emit_one(kOp, {x}, x.type(), bool_attribute("lower", lower));
}

Value Builder::triangular_solve(Value a, Value b, bool left, bool lower, bool unit, Transpose transpose) {
  constexpr const char* kOp = "stablehlo.triangular_solve";
  static constexpr const char* kNames[] = {"NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"};
  if (!present(kOp, {a, b})) return placeholder(b.type());
  const bool shaped = a.rank() >= 2 && a.rank() == b.rank() && a.dim(-1) == a.dim(-2) &&
                      b.dim(left ? -2 : -1) == a.dim(-1) &&
                      std::equal(a.shape().begin(), a.shape().end() - 2, b.shape().begin());
  if (!shaped || a.dtype() != b.dtype() || !(is_float(a.dtype()) || is_complex(a.dtype())))
    return mistake(kOp, "operands", a.type().text() + ", " + b.type().text(),
                   "square float matrices and as many right sides", b.type());
  return emit_one(kOp, {a, b}, b.type(),
                  bool_attribute("left_side", left) + ", " + bool_attribute("lower", lower) + ", " +
                      bool_attribute("unit_diagonal", unit) + ", transpose_a = #stablehlo<transpose " +
                      kNames[static_cast<int>(transpose)] + ">");
}

Value Builder::fft(Value x, Fft kind, const Dims& lengths) {
  constexpr const char* kOp = "stablehlo.fft";
  static constexpr const char* kNames[] = {"FFT", "IFFT", "RFFT", "IRFFT"};
  if (!present(kOp, {x})) return placeholder({DType::kC64, {}});
  const auto n = static_cast<int64_t>(lengths.size());
  const bool real_input = kind == Fft::kRFFT;
  Type type{kind == Fft::kIRFFT ? real_of(x.dtype()) : complex_of(real_of(x.dtype())), x.shape()};
  if (n < 1 || n > 3 || n > x.rank())
    return mistake(kOp, "lengths", bracketed(lengths), "1 to 3 of the last dimensions", type);
  if (real_input ? x.dtype() != DType::kF32 && x.dtype() != DType::kF64 : !is_complex(x.dtype()))
    return mistake(kOp, kNames[static_cast<int>(kind)], x.type().text(), real_input ? "f32 or f64" : "a complex dtype",
                   type);
  Shape expected = x.shape();
  std::copy(lengths.begin(), lengths.end(), expected.end() - n);
  if (kind == Fft::kRFFT) type.shape.back() = lengths.back() == 0 ? 0 : lengths.back() / 2 + 1;
  if (kind == Fft::kIRFFT) {
    type.shape.back() = lengths.back();
    expected.back() = lengths.back() == 0 ? 0 : lengths.back() / 2 + 1;
  }
  if (x.shape() != expected) return mistake(kOp, "operand", x.type().text(), to_string(expected), type);
  return emit_one(kOp, {x}, type,
                  std::string("fft_type = #stablehlo<fft_type ") + kNames[static_cast<int>(kind)] +
                      ">, fft_length = " + i64_array(lengths));
}

}  // namespace torch_tpu::hlo
