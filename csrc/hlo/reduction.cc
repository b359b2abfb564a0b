// Reductions, windows and ordering of the Builder.
#include <algorithm>

#include "hlo/attributes.h"
#include "hlo/builder.h"

namespace torch_tpu::hlo {
namespace {

std::vector<Type> scalars_of(const Values& xs) {
  std::vector<Type> types;
  for (const Value& x : xs) types.push_back({x.dtype(), {}});
  return types;
}

// The reducer's arguments: accumulators, then elements.
std::vector<Type> twice(const std::vector<Type>& types) {
  std::vector<Type> out = types;
  out.insert(out.end(), types.begin(), types.end());
  return out;
}

Values both(const Values& xs, const Values& inits) {
  Values out = xs;
  out.insert(out.end(), inits.begin(), inits.end());
  return out;
}

Dims ones_if_empty(const Dims& dims, int64_t rank) { return dims.empty() ? Dims(rank, 1) : dims; }
Dims zeros_if_empty(const Dims& dims, int64_t rank) { return dims.empty() ? Dims(rank, 0) : dims; }

std::string window_attributes(const Window& w, int64_t rank, bool dilations) {
  std::string out =
      "window_dimensions = " + i64_array(w.dims) + ", window_strides = " + i64_array(ones_if_empty(w.strides, rank));
  if (dilations)
    out += ", base_dilations = " + i64_array(ones_if_empty(w.base_dilations, rank)) +
           ", window_dilations = " + i64_array(ones_if_empty(w.window_dilations, rank));
  return out + ", padding = " + padding_pairs(zeros_if_empty(w.pad_low, rank), zeros_if_empty(w.pad_high, rank));
}

// Placeholders for a variadic reduction whose operands are wrong.
std::vector<Type> plausible(const Values& xs) {
  std::vector<Type> types;
  for (const Value& x : xs) types.push_back(x.type());
  return types;
}

}  // namespace

Values Builder::reduce(const Values& xs, const Values& inits, const Dims& dims, const Region& body) {
  constexpr const char* kOp = "stablehlo.reduce";
  if (!present(kOp, xs) || !present(kOp, inits)) return placeholders(plausible(xs));
  if (xs.empty() || xs.size() != inits.size()) {
    mistake(kOp, "operands and initial values", std::to_string(xs.size()) + ", " + std::to_string(inits.size()),
            "as many");
    return placeholders(plausible(xs));
  }
  if (!distinct_dims(kOp, "dimensions", dims, xs[0].rank())) return placeholders(plausible(xs));
  Shape shape;
  for (int64_t i = 0; i < xs[0].rank(); ++i)
    if (std::find(dims.begin(), dims.end(), i) == dims.end()) shape.push_back(xs[0].dim(i));
  std::vector<Type> results;
  for (size_t i = 0; i < xs.size(); ++i) {
    if (xs[i].shape() != xs[0].shape() || inits[i].type() != Type{xs[i].dtype(), {}})
      mistake(kOp, "operand and initial value", xs[i].type().text() + ", " + inits[i].type().text(),
              "shape " + to_string(xs[0].shape()) + " and a rank-0 value of the same dtype");
    results.push_back({xs[i].dtype(), shape});
  }
  if (dims.empty()) return xs;
  const std::vector<Type> scalars = scalars_of(xs);
  Dims sorted = dims;
  std::sort(sorted.begin(), sorted.end());
  return emit(kOp, both(xs, inits), results, "dimensions = " + i64_array(sorted),
              {{twice(scalars), checked(kOp, scalars, body)}});
}

Value Builder::reduce(Value x, Value init, const Dims& dims, std::string_view op) {
  return reduce(Values{x}, Values{init}, dims, combiner(std::string(op)))[0];
}

// Reductions in 16 bits or less lose far more than PyTorch's, which accumulates in float32 (engine.md: a bf16 sum is
// off by half).
Value Builder::reduce_sum(Value x, const Dims& dims) {
  if (!present("reduce_sum", {x})) return placeholder({DType::kF32, {}});
  if (is_bool(x.dtype())) return reduce(x, constant_int({DType::kBool, {}}, 0), dims, "or");
  const Value wide = convert(x, compute_dtype(x.dtype()));
  if (host_reductions_ && is_float(wide.dtype())) return convert(staged_sum(wide, dims), x.dtype());
  return convert(reduce(wide, constant_int({wide.dtype(), {}}, 0), dims, "add"), x.dtype());
}

Value Builder::reduce_max(Value x, const Dims& dims) {
  if (!present("reduce_max", {x})) return placeholder({DType::kF32, {}});
  if (is_bool(x.dtype())) return reduce(x, constant_int({DType::kBool, {}}, 0), dims, "or");
  const Value wide = is_float8(x.dtype()) ? convert(x, DType::kF32) : x;
  if (host_reductions_ && is_float(x.dtype())) return extreme_by_key(x, dims, true);
  return convert(reduce(wide, min_value({wide.dtype(), {}}), dims, "maximum"), x.dtype());
}

Value Builder::reduce_min(Value x, const Dims& dims) {
  if (!present("reduce_min", {x})) return placeholder({DType::kF32, {}});
  if (is_bool(x.dtype())) return reduce(x, constant_int({DType::kBool, {}}, 1), dims, "and");
  const Value wide = is_float8(x.dtype()) ? convert(x, DType::kF32) : x;
  if (host_reductions_ && is_float(x.dtype())) return extreme_by_key(x, dims, false);
  return convert(reduce(wide, max_value({wide.dtype(), {}}), dims, "minimum"), x.dtype());
}

// --- windows ---------------------------------------------------------------------------------------------------------

bool Builder::window_type(std::string_view op, const Type& x, const Window& window, Type* result) {
  const auto rank = static_cast<int64_t>(x.shape.size());
  *result = x;
  const Dims strides = ones_if_empty(window.strides, rank), base = ones_if_empty(window.base_dilations, rank);
  const Dims dilations = ones_if_empty(window.window_dilations, rank);
  const Dims low = zeros_if_empty(window.pad_low, rank), high = zeros_if_empty(window.pad_high, rank);
  for (const Dims* list : {&window.dims, &strides, &base, &dilations, &low, &high}) {
    if (static_cast<int64_t>(list->size()) == rank) continue;
    mistake(op, "window", bracketed(*list), "lists of " + std::to_string(rank));
    return false;
  }
  for (int64_t i = 0; i < rank; ++i) {
    if (window.dims[i] < 1 || strides[i] < 1 || base[i] < 1 || dilations[i] < 1) {
      mistake(op, "window", "dimension " + std::to_string(i), "sizes, strides and dilations of at least 1");
      return false;
    }
    const int64_t dilated = x.shape[i] == 0 ? 0 : (x.shape[i] - 1) * base[i] + 1;
    const int64_t padded = dilated + low[i] + high[i];
    const int64_t reach = (window.dims[i] - 1) * dilations[i] + 1;
    if (padded < 0) {
      mistake(op, "padding", bracketed(low) + ", " + bracketed(high), "sizes of at least 0");
      return false;
    }
    result->shape[i] = padded == 0 || reach > padded ? 0 : (padded - reach) / strides[i] + 1;
  }
  return true;
}

Values Builder::reduce_window(const Values& xs, const Values& inits, const Window& window, const Region& body) {
  constexpr const char* kOp = "stablehlo.reduce_window";
  if (!present(kOp, xs) || !present(kOp, inits)) return placeholders(plausible(xs));
  if (xs.empty() || xs.size() != inits.size()) {
    mistake(kOp, "operands and initial values", std::to_string(xs.size()) + ", " + std::to_string(inits.size()),
            "as many");
    return placeholders(plausible(xs));
  }
  std::vector<Type> results;
  for (size_t i = 0; i < xs.size(); ++i) {
    Type result;
    if (!window_type(kOp, xs[i].type(), window, &result)) return placeholders(plausible(xs));
    if (xs[i].shape() != xs[0].shape() || inits[i].type() != Type{xs[i].dtype(), {}})
      mistake(kOp, "operand and initial value", xs[i].type().text() + ", " + inits[i].type().text(),
              "shape " + to_string(xs[0].shape()) + " and a rank-0 value of the same dtype");
    results.push_back(result);
  }
  const std::vector<Type> scalars = scalars_of(xs);
  return emit(kOp, both(xs, inits), results, window_attributes(window, xs[0].rank(), true),
              {{twice(scalars), checked(kOp, scalars, body)}});
}

Value Builder::reduce_window(Value x, Value init, const Window& window, std::string_view op) {
  return reduce_window(Values{x}, Values{init}, window, combiner(std::string(op)))[0];
}

Value Builder::select_and_scatter(Value x, Value source, Value init, const Window& window, Compare select,
                                  std::string_view scatter) {
  constexpr const char* kOp = "stablehlo.select_and_scatter";
  if (!present(kOp, {x, source, init})) return placeholder(x.type());
  Type windows;
  if (!window_type(kOp, x.type(), window, &windows)) return placeholder(x.type());
  if (source.type() != windows) return mistake(kOp, "source", source.type().text(), windows.text(), x.type());
  const Type scalar{x.dtype(), {}};
  if (init.type() != scalar) return mistake(kOp, "initial value", init.type().text(), scalar.text(), x.type());
  for (const Dims* dilations : {&window.base_dilations, &window.window_dilations})
    if (std::any_of(dilations->begin(), dilations->end(), [](int64_t d) { return d != 1; }))
      return mistake(kOp, "dilations", bracketed(*dilations), "none", x.type());
  const Region choose = [select](Builder& b, const Values& args) -> Values {
    return {b.compare(args[0], args[1], select)};
  };
  return emit(
      kOp, {x, source, init}, {x.type()}, window_attributes(window, x.rank(), false),
      {{{scalar, scalar}, choose}, {{scalar, scalar}, checked(kOp, {scalar}, combiner(std::string(scatter)))}})[0];
}

// --- order -----------------------------------------------------------------------------------------------------------

Values Builder::sort(const Values& xs, int64_t dim, bool stable, const Region& comparator) {
  constexpr const char* kOp = "stablehlo.sort";
  if (!present(kOp, xs)) return placeholders(plausible(xs));
  if (xs.empty()) {
    mistake(kOp, "operands", "none", "at least one");
    return {};
  }
  if (dim < 0) dim += xs[0].rank();
  std::vector<Type> results, pairs;
  if (dim < 0 || dim >= xs[0].rank())
    mistake(kOp, "dimension", std::to_string(dim), "a dimension of " + xs[0].type().text());
  for (const Value& x : xs) {
    if (x.shape() != xs[0].shape()) mistake(kOp, "operand", x.type().text(), "shape " + to_string(xs[0].shape()));
    results.push_back(x.type());
    pairs.push_back({x.dtype(), {}});
    pairs.push_back({x.dtype(), {}});
  }
  return emit(kOp, xs, results, i64_attribute("dimension", dim) + ", " + bool_attribute("is_stable", stable),
              {{pairs, checked(kOp, {{DType::kBool, {}}}, comparator)}});
}

Values Builder::top_k(Value x, int64_t k) {
  constexpr const char* kOp = "chlo.top_k";
  if (!present(kOp, {x})) return placeholders({{DType::kF32, {k}}, {DType::kI32, {k}}});
  Shape shape = x.shape();
  if (shape.empty() || k < 0 || k > shape.back()) {
    mistake(kOp, "k = " + std::to_string(k), x.type().text(), "a last dimension of at least k");
  } else if (is_complex(x.dtype()) || is_bool(x.dtype())) {
    mistake(kOp, "operand", x.type().text(), "an integer or float dtype");
  }
  if (!shape.empty()) shape.back() = std::max<int64_t>(k, 0);
  return emit(kOp, {x}, {{x.dtype(), shape}, {DType::kI32, shape}}, i64_attribute("k", k));
}

}  // namespace torch_tpu::hlo
