// Dimension-wise scatters: scatter*, scatter_add, scatter_reduce, index_add, index_copy, index_reduce.
#include "ops/indexing.h"
#include "ops/promote.h"

namespace torch_tpu::ops {
namespace {

// Operands of a dimension-wise write, 0-d ones seen as 1-d.
struct Target {
  Value self;
  int64_t dim;
  Value index;
};

Target target(Context& c, const Args& args) {
  Builder& b = c.b;
  Value self = at_least_1d(b, args.tensor(0)), index = at_least_1d(b, args.tensor(2));
  int64_t dim = wrap_dim(args.integer(1), self.rank());
  return {self, dim, checked_index(c, index, self.dim(dim), /*wrap=*/false, Access::kWrite)};
}

// The part of `src` that scatter reads: index's shape from the origin.
Value leading_part(Context& c, Value src, const Target& t) {
  src = c.b.convert(at_least_1d(c.b, src), t.self.dtype());
  return c.b.slice(src, Dims(src.rank(), 0), t.index.shape());
}

// One index per line (one-hot rows, a label's column): a comparison with iota, instead of a serial loop over updates.
Value scatter_one_per_line(Builder& b, const Target& t, Value updates, Combine combine) {
  const Shape& shape = t.self.shape();
  Value at = b.eq(b.broadcast(t.index, shape), b.iota({t.index.dtype(), shape}, t.dim));
  Value value = b.broadcast(updates, shape);
  if (combine == Combine::kAdd) value = b.add(t.self, value);
  return b.select(at, value, t.self);
}

Value scatter_at(Builder& b, const Target& t, Value updates, Combine combine) {
  bool simple = combine == Combine::kReplace || combine == Combine::kAdd;
  Shape line = t.self.shape();
  line[t.dim] = 1;
  if (simple && t.index.shape() == line && t.self.numel() > 0) return scatter_one_per_line(b, t, updates, combine);
  return scatter_dim(b, t.self, t.dim, t.index, updates, combine);
}

// scatter.src(self, dim, index, src), scatter_add, scatter.reduce(..., reduce)
Rule scatter_src(Combine fixed, bool named) {
  return [fixed, named](Context& c, const Args& args) -> Values {
    Target t = target(c, args);
    Combine combine = named ? parse_combine(c, args.string(4)) : fixed;
    return {c.b.reshape(scatter_at(c.b, t, leading_part(c, args.tensor(3), t), combine), c.out().shape)};
  };
}

// scatter.value(self, dim, index, value), scatter.value_reduce(..., reduce)
Rule scatter_value(bool named) {
  return [named](Context& c, const Args& args) -> Values {
    Target t = target(c, args);
    Combine combine = named ? parse_combine(c, args.string(4)) : Combine::kReplace;
    Value updates = as(c, args, 3, t.self.dtype(), t.index.shape());
    return {c.b.reshape(scatter_at(c.b, t, updates, combine), c.out().shape)};
  };
}

using Writer = std::function<Value(Value onto, Value updates, Combine)>;

// Reduces updates into self, as scatter_reduce and index_reduce define it: where self does not take part, hit elements
// start from the identity; the mean divides by the number of elements that took part.
Value reduce_into(Context& c, Value self, Value updates, const std::string& reduce, bool include_self,
                  const Writer& write) {
  Builder& b = c.b;
  Combine combine = parse_combine(c, reduce);
  bool mean = reduce == "mean";
  DType dtype = scatter_dtype(self.dtype(), combine);
  Value base = b.convert(self, dtype);
  if (!include_self) {
    Value start = combine_identity(b, {dtype, updates.shape()}, combine);
    base = write(base, start, Combine::kReplace);
  }
  Value result = write(base, b.convert(updates, dtype), combine);
  if (mean) {
    Value start = include_self ? b.ones(base.type()) : b.zeros(base.type());
    Value count = write(start, b.ones({dtype, updates.shape()}), Combine::kAdd);
    count = b.max(count, b.ones(count.type()));
    Value quotient = b.div(result, count);
    if (is_integer(dtype)) {
      // Floor division: truncation is one too high where the remainder is negative.
      Value zero = b.zeros(result.type());
      Value low = b.lt(b.rem(result, count), zero);
      quotient = b.select(low, b.sub(quotient, b.ones(quotient.type())), quotient);
    }
    result = quotient;
  }
  return b.convert(result, self.dtype());
}

// scatter_reduce.two(self, dim, index, src, reduce, include_self)
Values scatter_reduce(Context& c, const Args& args) {
  Target t = target(c, args);
  Writer write = [&](Value onto, Value updates, Combine combine) {
    return scatter_dim(c.b, onto, t.dim, t.index, updates, combine);
  };
  Value updates = leading_part(c, args.tensor(3), t);
  Value result = reduce_into(c, t.self, updates, args.string(4), args.flag_or(5, true), write);
  return {c.b.reshape(result, c.out().shape)};
}

// index_reduce(self, dim, index, source, reduce, include_self)
Values index_reduce(Context& c, const Args& args) {
  Target t = target(c, args);
  Writer write = [&](Value onto, Value updates, Combine combine) {
    return scatter_rows(c.b, onto, t.dim, t.index, updates, combine);
  };
  Value source = c.b.convert(at_least_1d(c.b, args.tensor(3)), t.self.dtype());
  Value result = reduce_into(c, t.self, source, args.string(4), args.flag_or(5, true), write);
  return {c.b.reshape(result, c.out().shape)};
}

// index_copy(self, dim, index, source)
Values index_copy(Context& c, const Args& args) {
  Target t = target(c, args);
  Value source = c.b.convert(at_least_1d(c.b, args.tensor(3)), t.self.dtype());
  return {c.b.reshape(scatter_rows(c.b, t.self, t.dim, t.index, source, Combine::kReplace), c.out().shape)};
}

// index_add(self, dim, index, source, alpha)
Values index_add(Context& c, const Args& args) {
  Target t = target(c, args);
  Builder& b = c.b;
  DType dtype = scatter_dtype(t.self.dtype(), Combine::kAdd);
  Value source = b.convert(at_least_1d(b, args.tensor(3)), dtype);
  bool plain = args.none(4) || args.scalar_constant(4) == 1.0;
  if (!plain) source = b.mul(source, as(c, args, 4, dtype, source.shape()));
  Value sum = scatter_rows(b, b.convert(t.self, dtype), t.dim, t.index, source, Combine::kAdd);
  return {b.reshape(b.convert(sum, t.self.dtype()), c.out().shape)};
}

}  // namespace

void add_scatter_rows(Rows& rows) {
  rows.push_back(Row{"aten::scatter.src", scatter_src(Combine::kReplace, false)}.as_indexing());
  rows.push_back(Row{"aten::scatter.value", scatter_value(false)}.as_indexing());
  rows.push_back(Row{"aten::scatter.reduce", scatter_src(Combine::kReplace, true)}.as_indexing());
  rows.push_back(Row{"aten::scatter.value_reduce", scatter_value(true)}.as_indexing());
  rows.push_back(Row{"aten::scatter_add", scatter_src(Combine::kAdd, false)}.as_indexing());
  rows.push_back(Row{"aten::scatter_reduce.two", scatter_reduce}.as_indexing());
  rows.push_back(Row{"aten::index_add", index_add}.as_indexing().specialising(4, {1}));
  rows.push_back(Row{"aten::index_copy", index_copy}.as_indexing());
  rows.push_back(Row{"aten::index_reduce", index_reduce}.as_indexing());
}

}  // namespace torch_tpu::ops
