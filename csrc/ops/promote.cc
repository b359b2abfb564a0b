#include "ops/promote.h"

#include <algorithm>

namespace torch_tpu::ops {
namespace {

// Rank of an integer dtype in the lattice u8 < i16 < i32 < i64 and i8 < i16 < ...; the wide unsigned kinds only meet
// each other, as in PyTorch, which refuses to promote them with signed integers.
DType promote_integers(DType a, DType b) {
  if (a == b) return a;
  if (is_unsigned_integer(a) && is_unsigned_integer(b)) return byte_size(a) > byte_size(b) ? a : b;
  DType wide = byte_size(a) > byte_size(b) ? a : b;
  if (byte_size(a) == byte_size(b)) {
    switch (byte_size(a)) {
      case 1:
        return DType::kI16;
      case 2:
        return DType::kI32;
      default:
        return DType::kI64;
    }
  }
  if (is_signed_integer(wide)) return wide;
  return wide == DType::kU16 ? DType::kI32 : DType::kI64;
}

DType promote_floats(DType a, DType b) {
  if (a == b) return a;
  // f16 and bf16 cover neither each other nor the fp8 kinds' ranges and precisions both: they meet in f32.
  if (byte_size(a) == byte_size(b)) return DType::kF32;
  return byte_size(a) > byte_size(b) ? a : b;
}

enum class Kind { kInvalid, kBool, kInteger, kFloat, kComplex };

Kind kind_of(DType dtype) {
  if (dtype == DType::kInvalid) return Kind::kInvalid;
  if (is_bool(dtype)) return Kind::kBool;
  if (is_integer(dtype)) return Kind::kInteger;
  return is_complex(dtype) ? Kind::kComplex : Kind::kFloat;
}

// PyTorch's combine_categories: `lower` (0-d tensors, then numbers) counts only where its kind is above `higher`'s.
DType combine(DType higher, DType lower) {
  if (is_complex(higher)) return higher;
  if (kind_of(higher) == Kind::kFloat)
    return is_complex(lower) ? promote_types(complex_of(higher), DType::kC64) : higher;
  if (higher == DType::kBool || kind_of(lower) == Kind::kFloat || is_complex(lower))
    return promote_types(higher, lower);
  return higher == DType::kInvalid ? lower : higher;
}

}  // namespace

DType promote_types(DType a, DType b) {
  if (a == b || b == DType::kInvalid) return a;
  if (a == DType::kInvalid) return b;
  if (kind_of(a) < kind_of(b)) std::swap(a, b);
  switch (kind_of(a)) {
    case Kind::kInteger:
      return kind_of(b) == Kind::kInteger ? promote_integers(a, b) : a;
    case Kind::kFloat:
      return kind_of(b) == Kind::kFloat ? promote_floats(a, b) : a;
    case Kind::kComplex:
      if (kind_of(b) == Kind::kComplex) return DType::kC128;
      return b == DType::kF64 ? DType::kC128 : a;
    default:
      return a;
  }
}

DType result_type(const std::vector<Promotable>& operands) {
  DType dimensioned = DType::kInvalid, zero_dim = DType::kInvalid, number = DType::kInvalid;
  for (const Promotable& operand : operands) {
    if (operand.wrapped) {
      DType dtype = operand.dtype;
      if (kind_of(dtype) == Kind::kFloat) dtype = DType::kF32;  // the default dtype
      if (is_complex(dtype)) dtype = DType::kC64;
      number = promote_types(number, dtype);
    } else if (operand.zero_dim) {
      zero_dim = promote_types(zero_dim, operand.dtype);
    } else {
      dimensioned = promote_types(dimensioned, operand.dtype);
    }
  }
  return combine(dimensioned, combine(zero_dim, number));
}

Promotable promotable(const Args& args, size_t i) {
  const Arg& arg = args.at(i);
  if (arg.kind == Arg::Kind::kScalar) return {arg.scalar.value.dtype(), true, true};
  return {arg.value.dtype(), arg.value.rank() == 0, arg.wrapped};
}

DType result_type(const Args& args, std::initializer_list<size_t> which) {
  std::vector<Promotable> operands;
  for (size_t i : which) {
    if (!args.none(i)) operands.push_back(promotable(args, i));
  }
  return result_type(operands);
}

Value as(Context& c, Value x, DType dtype, const Shape& shape) {
  if (!x) return c.fail("an operand is missing");
  return c.b.broadcast(c.b.convert(x, dtype), shape);
}

Value as(Context& c, const Args& args, size_t i, DType dtype, const Shape& shape) {
  if (args.none(i)) return c.fail("argument " + std::to_string(i) + " is missing");
  const Arg& arg = args.at(i);
  return as(c, arg.kind == Arg::Kind::kScalar ? arg.scalar.value : arg.value, dtype, shape);
}

Shape broadcast_shapes(const std::vector<Shape>& shapes) {
  size_t rank = 0;
  for (const Shape& shape : shapes) rank = std::max(rank, shape.size());
  Shape result(rank, 1);
  for (const Shape& shape : shapes) {
    for (size_t i = 0; i < shape.size(); ++i) {
      int64_t& size = result[rank - shape.size() + i];
      if (shape[i] != 1) size = shape[i];
    }
  }
  return result;
}

int64_t wrap_dim(int64_t dim, int64_t rank) { return dim < 0 ? dim + std::max<int64_t>(rank, 1) : dim; }

Dims wrap_dims(const std::vector<int64_t>& dims, int64_t rank) {
  Dims result;
  if (rank == 0) return result;
  if (dims.empty()) {
    for (int64_t i = 0; i < rank; ++i) result.push_back(i);
    return result;
  }
  for (int64_t dim : dims) result.push_back(wrap_dim(dim, rank));
  std::sort(result.begin(), result.end());
  return result;
}

}  // namespace torch_tpu::ops
