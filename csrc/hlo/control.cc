// Control flow, random bits and calls of the Builder.
#include "hlo/attributes.h"
#include "hlo/builder.h"

namespace torch_tpu::hlo {
namespace {

std::vector<Type> types_of(const Values& xs) {
  std::vector<Type> types;
  for (const Value& x : xs) types.push_back(x.type());
  return types;
}

}  // namespace

Values Builder::while_loop(const Values& init, const Region& condition, const Region& body) {
  constexpr const char* kOp = "stablehlo.while";
  const std::vector<Type> types = types_of(init);
  if (!present(kOp, init)) return placeholders(types);
  return emit(kOp, init, types, {},
              {{types, checked(kOp, {{DType::kBool, {}}}, condition)}, {types, checked(kOp, types, body)}});
}

// Only the branches know the result types, so they are written before the operation that holds them.
Values Builder::if_else(Value predicate, const std::function<Values(Builder&)>& on_true,
                        const std::function<Values(Builder&)>& on_false) {
  constexpr const char* kOp = "stablehlo.if";
  if (present(kOp, {predicate})) {
    if (predicate.type() != Type{DType::kBool, {}}) mistake(kOp, "predicate", predicate.type().text(), "tensor<i1>");
    if (!visible(predicate)) mistake(kOp, "predicate", "a value of a closed region", "a value in scope");
  }
  std::vector<Type> types;
  const std::string indent(2 * depth_, ' ');
  const std::string first = region_text({}, [&](Builder& b, const Values&) {
    Values values = on_true(b);
    types = types_of(values);
    return values;
  });
  const std::string second =
      region_text({}, checked(kOp, types, [&](Builder& b, const Values&) { return on_false(b); }));
  return append(kOp, {predicate}, types, {}, " ({\n" + first + indent + "}, {\n" + second + indent + "})");
}

Values Builder::rng_bit_generator(Value state, const Type& bits, RngAlgorithm algorithm) {
  constexpr const char* kOp = "stablehlo.rng_bit_generator";
  if (!present(kOp, {state})) return placeholders({{DType::kU64, {2}}, bits});
  const bool philox = algorithm == RngAlgorithm::kPhilox;
  if (state.dtype() != DType::kU64 || state.rank() != 1 || !(state.dim(0) == 2 || (philox && state.dim(0) == 3)))
    mistake(kOp, "state", state.type().text(), philox ? "tensor<2xui64> or tensor<3xui64>" : "tensor<2xui64>");
  if (!is_integer(bits.dtype)) mistake(kOp, "result", bits.text(), "integers");
  return emit(kOp, {state}, {state.type(), bits},
              std::string("rng_algorithm = #stablehlo<rng_algorithm ") + (philox ? "PHILOX" : "THREE_FRY") + ">");
}

Values Builder::custom_call(std::string_view target, const Values& xs, const std::vector<Type>& results,
                            std::string_view attributes) {
  std::string all = "call_target_name = " + quoted(target);
  if (!attributes.empty()) all += ", " + std::string(attributes);
  return emit("stablehlo.custom_call", xs, results, all);
}

Values Builder::optimization_barrier(const Values& xs) {
  if (!present("stablehlo.optimization_barrier", xs)) return placeholders(types_of(xs));
  return xs.empty() ? xs : emit("stablehlo.optimization_barrier", xs, types_of(xs));
}

}  // namespace torch_tpu::hlo
