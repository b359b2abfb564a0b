// Writes one StableHLO module in MLIR generic form.
//
// A Builder holds the text of @main while rules append operations to it. Values are small handles that carry their
// type. Every operation checks its operands; the first mistake is remembered (`error()`), later calls return values
// of plausible type and do nothing else, so that rules need no error handling of their own: whoever calls the rule
// looks at `error()` once. Constants are emitted once per (type, value) and region.
#pragma once

#include <complex>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "hlo/function.h"
#include "hlo/type.h"

namespace torch_tpu::hlo {

class Builder;

// A typed SSA value. Copyable, 8 bytes; valid as long as its Builder. A default-constructed Value is "absent".
class Value {
 public:
  Value() = default;
  explicit operator bool() const { return node_ != nullptr; }
  // An absent value has the type {kInvalid, {}}, so that a rule's mistake becomes a remembered error, not a crash.
  const Type& type() const { return node_ ? node_->type : absent_type(); }
  DType dtype() const { return type().dtype; }
  const Shape& shape() const { return type().shape; }
  int64_t rank() const { return static_cast<int64_t>(shape().size()); }
  // Size of a dimension; negative indices count from the end. 1 for a dimension that does not exist: whatever is
  // built with it fails its own check.
  int64_t dim(int64_t i) const {
    const int64_t d = i < 0 ? i + rank() : i;
    return d >= 0 && d < rank() ? shape()[d] : 1;
  }
  int64_t numel() const { return element_count(shape()); }
  bool operator==(const Value& other) const = default;

 private:
  friend class Builder;
  struct Node {
    Type type;
    std::string name;   // "%12" or "%7#1"
    int64_t scope = 0;  // the region that defines it; visible only while that region is open
  };
  static const Type& absent_type();
  explicit Value(const Node* node) : node_(node) {}
  const Node* node_ = nullptr;
};

using Values = std::vector<Value>;
using Dims = std::vector<int64_t>;

// Body of a reducer, sorter, loop...: receives the region's arguments, returns what the region returns.
using Region = std::function<Values(Builder&, const Values&)>;

struct DotDims {
  Dims lhs_batch, rhs_batch, lhs_contract, rhs_contract;
};
enum class Precision { kDefault, kHigh, kHighest };

struct ConvDims {
  // Positions of the dimensions, as StableHLO's convolution dimension numbers (spec: convolution).
  int64_t lhs_batch = 0, lhs_feature = 1;
  Dims lhs_spatial;
  int64_t rhs_out = 0, rhs_in = 1;
  Dims rhs_spatial;
  int64_t out_batch = 0, out_feature = 1;
  Dims out_spatial;
};
struct ConvWindow {
  Dims strides, pad_low, pad_high, lhs_dilation, rhs_dilation;
  std::vector<bool> reversal;  // empty: none
  int64_t feature_groups = 1, batch_groups = 1;
};
struct Window {
  Dims dims, strides, base_dilations, window_dilations, pad_low, pad_high;  // empty: ones / zeros
};
struct GatherDims {
  Dims offset_dims, collapsed_slice_dims, operand_batching_dims, start_indices_batching_dims, start_index_map;
  int64_t index_vector_dim = 0;
  Dims slice_sizes;
  bool indices_are_sorted = false;
};
struct ScatterDims {
  Dims update_window_dims, inserted_window_dims, input_batching_dims, scatter_indices_batching_dims;
  Dims scatter_dims_to_operand_dims;
  int64_t index_vector_dim = 0;
  bool indices_are_sorted = false;
  bool unique_indices = false;
};
enum class Compare { kEQ, kNE, kLT, kLE, kGT, kGE };
enum class CompareKind { kDefault, kTotalOrder };
enum class Fft { kFFT, kIFFT, kRFFT, kIRFFT };
enum class RngAlgorithm { kPhilox, kThreeFry };
enum class Transpose { kNone, kTranspose, kAdjoint };

class Builder {
 public:
  Builder();

  // --- errors -------------------------------------------------------------------------------------------------
  // Remembers the first error; returns an absent-typed placeholder so that `return b.fail(...)` works in helpers.
  Value fail(ErrorCode code, std::string message);
  const std::optional<Error>& error() const { return error_; }

  // --- the module ---------------------------------------------------------------------------------------------
  // Adds an argument to @main. `donated_to`: index of the result it may share memory with (tf.aliasing_output), or -1.
  Value parameter(const Type& type, int64_t donated_to = -1);
  // Attaches / changes the donation of parameter i after the fact (the write-back plan is known only at the end).
  void donate(int64_t parameter, int64_t result);
  // Text of the whole module named @name. Results are untupled. Fails if an error was remembered.
  // `function`, if given, receives the same program apart from its module and its donations.
  Result<std::string> finish(const Values& results, std::string_view name = "main", Function* function = nullptr);
  // Name shown in frontend attributes / loc of the ops emitted from now on, e.g. "aten::add"; empty: none.
  void set_origin(std::string origin) { origin_ = std::move(origin); }
  // Spells reduce_sum / reduce_max / reduce_min so that a host compiler can vectorise them (hlo/host_reduction.cc).
  void use_host_reductions(bool on) { host_reductions_ = on; }

  // --- constants ----------------------------------------------------------------------------------------------
  Value constant(const Type& type, double v);       // splat; real dtypes; rounds to dtype; inf and nan allowed
  Value constant_int(const Type& type, int64_t v);  // splat; any dtype; integers exact, wraps for narrow ones
  Value constant_uint(const Type& type, uint64_t v);
  Value constant_complex(const Type& type, std::complex<double> v);
  Value scalar(DType dtype, double v) { return constant({dtype, {}}, v); }
  Value scalar_int(DType dtype, int64_t v) { return constant_int({dtype, {}}, v); }
  Value zeros(const Type& type) { return constant_int(type, 0); }
  Value ones(const Type& type) { return constant_int(type, 1); }
  Value zeros_like(Value x) { return zeros(x.type()); }
  Value ones_like(Value x) { return ones(x.type()); }
  // Same type as x, every element v.
  Value full_like(Value x, double v) { return constant(x.type(), v); }
  // A dense 1-D integer constant of dtype i32 / i64 / u32 / u64.
  Value vector_int(DType dtype, const std::vector<int64_t>& v);
  // A dense 1-D float constant.
  Value vector(DType dtype, const std::vector<double>& v);
  // Largest / smallest value of a dtype: +-inf for floats, the integer limits, true / false for bool.
  Value max_value(const Type& type);
  Value min_value(const Type& type);
  // Largest finite value and the lowest finite one.
  Value max_finite(const Type& type);
  Value lowest_finite(const Type& type);
  Value iota(const Type& type, int64_t dim);

  // --- elementwise ---------------------------------------------------------------------------------------------
  // By StableHLO name ("exponential"); a name with a dot is taken whole ("chlo.erf"). Result type = operand type,
  // except for real, imag, abs of a complex operand (its real dtype) and is_finite, chlo.is_inf* (bool).
  Value unary(std::string_view op, Value x);
  // Operands of equal type (no broadcasting; see ops/promote.h for that).
  Value binary(std::string_view op, Value x, Value y);
  Value neg(Value x) { return unary("negate", x); }
  Value abs(Value x) { return unary("abs", x); }
  Value exp(Value x) { return unary("exponential", x); }
  Value log(Value x) { return unary("log", x); }
  Value sqrt(Value x) { return unary("sqrt", x); }
  Value rsqrt(Value x) { return unary("rsqrt", x); }
  Value tanh(Value x) { return unary("tanh", x); }
  Value floor(Value x) { return unary("floor", x); }
  Value logical_not(Value x) { return unary("not", x); }
  Value add(Value x, Value y) { return binary("add", x, y); }  // bool: or
  Value sub(Value x, Value y) { return binary("subtract", x, y); }
  Value mul(Value x, Value y) { return binary("multiply", x, y); }  // bool: and
  Value div(Value x, Value y) { return binary("divide", x, y); }
  Value rem(Value x, Value y) { return binary("remainder", x, y); }
  Value max(Value x, Value y) { return binary("maximum", x, y); }
  Value min(Value x, Value y) { return binary("minimum", x, y); }
  Value pow(Value x, Value y) { return binary("power", x, y); }
  Value logical_and(Value x, Value y) { return binary("and", x, y); }
  Value logical_or(Value x, Value y) { return binary("or", x, y); }
  Value logical_xor(Value x, Value y) { return binary("xor", x, y); }
  Value shift_left(Value x, Value y) { return binary("shift_left", x, y); }
  Value shift_right_logical(Value x, Value y) { return binary("shift_right_logical", x, y); }
  Value shift_right_arithmetic(Value x, Value y) { return binary("shift_right_arithmetic", x, y); }
  Value compare(Value x, Value y, Compare direction, CompareKind kind = CompareKind::kDefault);
  Value eq(Value x, Value y) { return compare(x, y, Compare::kEQ); }
  Value ne(Value x, Value y) { return compare(x, y, Compare::kNE); }
  Value lt(Value x, Value y) { return compare(x, y, Compare::kLT); }
  Value le(Value x, Value y) { return compare(x, y, Compare::kLE); }
  Value gt(Value x, Value y) { return compare(x, y, Compare::kGT); }
  Value ge(Value x, Value y) { return compare(x, y, Compare::kGE); }
  Value is_nan(Value x);  // x != x, false for integers
  // pred has on_true's shape or rank 0.
  Value select(Value pred, Value on_true, Value on_false);
  // lo and hi of x's type or rank 0.
  Value clamp(Value lo, Value x, Value hi);
  // Numeric conversion with PyTorch's meaning: to bool is x != 0; complex to real drops the imaginary part; real to
  // complex sets it to zero; f32 -> f8E4M3FN saturates as PyTorch does. Same dtype: returns x.
  Value convert(Value x, DType dtype);
  Value bitcast(Value x, const Type& to);  // stablehlo.bitcast_convert
  Value complex(Value re, Value im);
  Value real(Value x);
  Value imag(Value x);

  // --- shape ------------------------------------------------------------------------------------------------------
  Value reshape(Value x, const Shape& shape);         // no-op returns x
  Value transpose(Value x, const Dims& permutation);  // no-op returns x
  Value broadcast_in_dim(Value x, const Shape& shape, const Dims& dims);
  // NumPy broadcasting: dimensions aligned at the right. no-op returns x.
  Value broadcast(Value x, const Shape& shape);
  Value slice(Value x, const Dims& start, const Dims& limit, const Dims& strides = {});
  // One dimension only: x[..., start:limit:step, ...].
  Value slice_dim(Value x, int64_t dim, int64_t start, int64_t limit, int64_t step = 1);
  Value pad(Value x, Value padding_value, const Dims& low, const Dims& high, const Dims& interior = {});
  Value concatenate(const Values& xs, int64_t dim);
  Value reverse(Value x, const Dims& dims);
  Value dynamic_slice(Value x, const Values& starts, const Dims& sizes);
  Value dynamic_update_slice(Value x, Value update, const Values& starts);
  Value unsqueeze(Value x, int64_t dim);
  Value squeeze(Value x, int64_t dim);
  // The size of a dimension as a 0-d value. Rules that count elements (mean, variance, losses) ask here instead of
  // baking the number, so that bounded and bucketed shapes need no second rule.
  Value extent(Value x, int64_t dim, DType dtype);
  // Product of extents; all dims of the value when `dims` is empty.
  Value extents(Value x, const Dims& dims, DType dtype);

  // --- indexing ------------------------------------------------------------------------------------------------------
  Value gather(Value operand, Value indices, const GatherDims& dims);
  // Variadic scatter; `update` receives (old..., new...).
  Values scatter(const Values& operands, Value indices, const Values& updates, const ScatterDims& dims,
                 const Region& update);
  Value scatter(Value operand, Value indices, Value updates, const ScatterDims& dims, const Region& update);

  // --- reductions, windows, order ---------------------------------------------------------------------------------
  // Variadic reduce over `dims` (removed from the result). Body receives (acc..., element...).
  Values reduce(const Values& xs, const Values& inits, const Dims& dims, const Region& body);
  // One operand, a StableHLO binary op as combiner: reduce(x, init, dims, "add").
  Value reduce(Value x, Value init, const Dims& dims, std::string_view combiner);
  Value reduce_sum(Value x, const Dims& dims);  // accumulates f16/bf16 in f32, returns x's dtype; bool: or
  Value reduce_max(Value x, const Dims& dims);
  Value reduce_min(Value x, const Dims& dims);
  Values reduce_window(const Values& xs, const Values& inits, const Window& window, const Region& body);
  Value reduce_window(Value x, Value init, const Window& window, std::string_view combiner);
  // select: GE (max pooling) etc.
  Value select_and_scatter(Value x, Value source, Value init, const Window& window, Compare select,
                           std::string_view scatter);
  // Comparator receives (x0, y0, x1, y1, ...) as rank-0 values, returns a bool.
  Values sort(const Values& xs, int64_t dim, bool stable, const Region& comparator);
  // chlo.top_k over the last dimension, largest first: values, i32 indices.
  Values top_k(Value x, int64_t k);

  // --- linear algebra, windows ------------------------------------------------------------------------------------
  Value dot(Value x, Value y, const DotDims& dims, DType result, Precision precision);
  Value convolution(Value x, Value w, const ConvDims& dims, const ConvWindow& window, DType result,
                    Precision precision);
  Value cholesky(Value x, bool lower);
  Value triangular_solve(Value a, Value b, bool left, bool lower, bool unit, Transpose transpose);
  Value fft(Value x, Fft kind, const Dims& lengths);

  // --- control, rng, calls ------------------------------------------------------------------------------------------
  Values while_loop(const Values& init, const Region& condition, const Region& body);
  Values if_else(Value predicate, const std::function<Values(Builder&)>& on_true,
                 const std::function<Values(Builder&)>& on_false);
  Values rng_bit_generator(Value state, const Type& bits, RngAlgorithm algorithm);
  Values custom_call(std::string_view target, const Values& xs, const std::vector<Type>& results,
                     std::string_view attributes);
  Values optimization_barrier(const Values& xs);
  // Any op whose result types the caller knows; `attributes` without braces: `dim = 0 : i64`.
  Values generic(std::string_view op, const Values& xs, const std::vector<Type>& results, std::string_view attributes,
                 const std::vector<std::pair<std::vector<Type>, Region>>& regions = {});

  // Number of operations emitted so far (for reports and tests).
  int64_t op_count() const { return op_count_; }

 private:
  struct Parameter {
    Type type;
    std::string name;
    int64_t donated_to;
  };
  // One open region (the first is @main's body).
  struct Scope {
    int64_t id;
    std::map<std::string, Value> constants;
  };
  using Regions = std::vector<std::pair<std::vector<Type>, Region>>;

  Value make(const Type& type, std::string name);
  // What a failed call returns: never absent, so that callers may go on asking for its type.
  Value placeholder(const Type& type) {
    return make({type.dtype == DType::kInvalid ? DType::kF32 : type.dtype, type.shape}, "%error");
  }
  Values placeholders(const std::vector<Type>& types);
  // Remembers `op: what, got <got>, expected <expected>`; gives a placeholder.
  Value mistake(std::string_view op, std::string_view what, std::string_view got, std::string_view expected,
                const Type& type = {DType::kF32, {}});
  // False, with the error remembered, when one of the values is absent.
  bool present(std::string_view op, const Values& xs);
  // False, with the error remembered, when the types differ.
  bool same_type(std::string_view op, const Value& x, const Value& y);
  // False, with the error remembered, unless `dims` are distinct dimensions of a value of this rank.
  bool distinct_dims(std::string_view op, std::string_view what, const Dims& dims, int64_t rank);

  bool visible(const Value& x) const;
  // Appends the operation to the open region. `op` is the whole name ("stablehlo.add").
  Values emit(std::string_view op, const Values& xs, const std::vector<Type>& results, std::string_view attributes = {},
              const Regions& regions = {});
  // The last step of emit: operands are checked, regions are text.
  Values append(std::string_view op, const Values& xs, const std::vector<Type>& results, std::string_view attributes,
                const std::string& bodies);
  Value emit_one(std::string_view op, const Values& xs, const Type& result, std::string_view attributes = {});
  std::string region_text(const std::vector<Type>& arguments, const Region& body);
  // `body`, with a check that it returns values of exactly these types.
  Region checked(std::string op, std::vector<Type> results, Region body);
  // `op` applied to two rank-0 values, as the body of a reducer.
  Region combiner(std::string op);

  // `literal` is what stands inside dense<...>.
  Value constant_literal(const Type& type, const std::string& literal);
  Value bitcast_real(Value x, const Type& to);
  Value convert_from_float(Value x, DType dtype);
  bool window_type(std::string_view op, const Type& x, const Window& window, Type* result);

  std::deque<Value::Node> nodes_;
  std::vector<Parameter> parameters_;
  std::string body_;
  Value staged_sum(Value x, Dims dims);
  Value extreme_by_key(Value x, const Dims& dims, bool greatest);

  std::string origin_;
  bool host_reductions_ = false;
  std::optional<Error> error_;
  std::vector<Scope> scopes_;
  int64_t next_scope_ = 1;
  int64_t next_id_ = 0;
  int64_t op_count_ = 0;
  int depth_ = 2;
};

}  // namespace torch_tpu::hlo
