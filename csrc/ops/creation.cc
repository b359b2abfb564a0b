// Tensors made from numbers: ranges, identity, triangles.
#include "ops/reduction.h"

namespace torch_tpu::ops {
namespace {

// The dtype a range is computed in: 64-bit integers for integers, f64 for floats (PyTorch's accumulation dtype on CPU).
DType range_dtype(DType dtype) { return is_float(dtype) ? DType::kF64 : DType::kI64; }

Expr positions(Context& c, DType dtype) { return {c.b, c.b.iota({dtype, c.out().shape}, 0)}; }

// start, end, step are arguments 0, 1, 2; an absent step is 1.
Values arange(Context& c, const Args& args, int start, int step) {
  const DType dtype = range_dtype(c.out().dtype);
  Expr x = positions(c, dtype);
  if (step >= 0 && !args.none(step)) x = x * operand(c, args, step, dtype);
  if (start >= 0) x = x + operand(c, args, start, dtype);
  return result(c, x);
}

// The dtype that linspace steps in: the result's own for floats, f64 for integers, which are truncated at the end.
DType step_dtype(DType dtype) { return is_float(dtype) || is_complex(dtype) ? compute_dtype(dtype) : DType::kF64; }

// Counted from the nearer end, so that both ends are hit exactly. Two ends and more take
// the result's dtype before anything else.
Expr evenly_spaced(Context& c, const Args& args) {
  const DType dtype = step_dtype(c.out().dtype);
  const int64_t steps = args.integer(2);
  if (steps <= 1) return operand(c, args, 0, dtype);
  Expr start = operand(c, args, 0, c.out().dtype).to(dtype), end = operand(c, args, 1, c.out().dtype).to(dtype);
  Expr step = (end - start) / opaque_like(start, static_cast<double>(steps - 1));
  Expr index = positions(c, DType::kI64);
  Expr from_start = index.to(dtype);
  Expr from_end = (static_cast<double>(steps - 1) - index).to(dtype);
  return select(index < static_cast<double>(steps / 2), start + step * from_start, end - step * from_end);
}

Values linspace(Context& c, const Args& args) { return result(c, evenly_spaced(c, args)); }

Values logspace(Context& c, const Args& args) {
  Expr exponent = evenly_spaced(c, args);
  return result(c, pow(exponent.like(args.number_or(3, 10)), exponent));
}

Values eye(Context& c, const Args&) {
  const Type index{DType::kI64, c.out().shape};
  return {c.b.convert(c.b.eq(c.b.iota(index, 0), c.b.iota(index, 1)), c.out().dtype)};
}

// Keeps the elements on one side of a diagonal of the last two dimensions.
Values triangle(Context& c, const Args& args, bool lower) {
  Expr x{c.b, args.tensor(0)};
  const int64_t rank = x.value().rank();
  const Type index{DType::kI64, x.value().shape()};
  Expr row{c.b, c.b.iota(index, rank - 2)}, column{c.b, c.b.iota(index, rank - 1)};
  // The diagonal goes to the side where it is not negative: the embedded engine takes column - row >= -1 for false
  // where both have one element.
  const auto diagonal = static_cast<double>(args.integer_or(1, 0));
  if (diagonal < 0)
    column = column + -diagonal;
  else
    row = row + diagonal;
  return {select(lower ? column <= row : column >= row, x, 0.0)};
}

// The coordinates of a triangle of a rows x columns matrix, row by row. A row's first element is marked; running counts
// of the marks number the rows.
Values triangle_indices(Context& c, const Args& args, bool lower) {
  hlo::Builder& b = c.b;
  const int64_t rows = args.integer(0), columns = args.integer(1), offset = args.integer_or(2, 0);
  const int64_t count = c.out().shape[1];
  if (count == 0) return {b.zeros(c.out())};
  Expr row{b, b.iota({DType::kI64, {rows}}, 0)};
  auto bounded = [&](Expr x) { return min(max(x, 0), static_cast<double>(columns)); };
  Expr first = lower ? row.like(0) : bounded(row + static_cast<double>(offset));
  Expr end = lower ? bounded(row + static_cast<double>(offset + 1)) : row.like(static_cast<double>(columns));
  Expr length = end - first;
  Expr start = running_sum(c, length, 0) - length;

  // Marks of rows that start past the last element are out of range, and dropped.
  hlo::ScatterDims scatter;
  scatter.inserted_window_dims = {0};
  scatter.scatter_dims_to_operand_dims = {0};
  scatter.index_vector_dim = 1;
  Value marks = b.scatter(b.zeros({DType::kI64, {count}}), b.reshape(start, {rows, 1}), b.ones({DType::kI64, {rows}}),
                          scatter, [](hlo::Builder& b, const Values& v) -> Values { return {b.add(v[0], v[1])}; });
  Expr row_of = running_sum(c, {b, marks}, 0) - 1;

  hlo::GatherDims gather;
  gather.collapsed_slice_dims = {0};
  gather.start_index_map = {0};
  gather.index_vector_dim = 1;
  gather.slice_sizes = {1};
  Value indices = b.reshape(row_of, {count, 1});
  Expr start_of{b, b.gather(start, indices, gather)}, first_of{b, b.gather(first, indices, gather)};
  Expr column_of = Expr{b, b.iota({DType::kI64, {count}}, 0)} - start_of + first_of;
  Value pair = b.concatenate({b.reshape(row_of, {1, count}), b.reshape(column_of, {1, count})}, 0);
  return {b.convert(pair, c.out().dtype)};
}

// PyTorch's symbolic zero, as a tensor like any other.
Values zeros(Context& c, const Args&) { return {c.b.zeros(c.out())}; }

Row range_row(const char* name, int start, int end, int step) {
  Row row{name, [=](Context& c, const Args& args) { return arange(c, args, start, step); }};
  // The values decide the length.
  for (int i : {start, end, step}) {
    if (i >= 0) row.specialising(i, {});
  }
  return row;
}

}  // namespace

void add_creation_rows(Rows& rows) {
  rows.insert(rows.end(),
              {
                  range_row("aten::arange", -1, 0, -1),
                  range_row("aten::arange.start", 0, 1, -1),
                  range_row("aten::arange.start_step", 0, 1, 2),
                  range_row("aten::range", 0, 1, -1),
                  range_row("aten::range.step", 0, 1, 2),
                  {"aten::linspace", linspace},
                  {"aten::linspace.Tensor_Tensor", linspace},
                  {"aten::linspace.Tensor_Scalar", linspace},
                  {"aten::linspace.Scalar_Tensor", linspace},
                  {"aten::logspace", logspace},
                  {"aten::logspace.Tensor_Tensor", logspace},
                  {"aten::logspace.Tensor_Scalar", logspace},
                  {"aten::logspace.Scalar_Tensor", logspace},
                  {"aten::_efficientzerotensor", zeros},
                  {"aten::eye", eye},
                  {"aten::eye.m", eye},
                  {"aten::tril", [](Context& c, const Args& args) { return triangle(c, args, true); }},
                  {"aten::triu", [](Context& c, const Args& args) { return triangle(c, args, false); }},
                  {"aten::tril_indices", [](Context& c, const Args& args) { return triangle_indices(c, args, true); }},
                  {"aten::triu_indices", [](Context& c, const Args& args) { return triangle_indices(c, args, false); }},
              });
}

}  // namespace torch_tpu::ops
