// Batch, layer and group normalization, forward and backward. Statistics of f16 and bf16 are computed in f32.
#include "ops/expr.h"
#include "ops/promote.h"
#include "ops/table.h"

namespace torch_tpu::ops {
namespace {

// All dims of a rank but the given one.
Dims all_but(int64_t rank, int64_t dim) {
  Dims dims;
  for (int64_t i = 0; i < rank; ++i)
    if (i != dim) dims.push_back(i);
  return dims;
}

Dims range(int64_t from, int64_t to) {
  Dims dims;
  for (int64_t i = from; i < to; ++i) dims.push_back(i);
  return dims;
}

// x reduced over `dims`, which stay as dims of size 1.
Expr kept_sum(Expr x, const Dims& dims) {
  Shape kept = x.value().shape();
  for (int64_t d : dims) kept[d] = 1;
  return x.with(x.b().reshape(x.b().reduce_sum(x, dims), kept));
}

Expr spread(Expr x, const Shape& shape) { return x.with(x.b().broadcast(x, shape)); }

Expr kept_mean(Expr x, const Dims& dims) {
  Expr sum = kept_sum(x, dims);
  return sum / spread(sum.with(x.b().extents(x, dims, x.dtype())), sum.value().shape());
}

struct Moments {
  Expr mean, variance;  // biased; reduced dims kept
};

Moments moments(Expr x, const Dims& dims) {
  Expr mean = kept_mean(x, dims);
  Expr centred = x - spread(mean, x.value().shape());
  return {mean, kept_mean(centred * centred, dims)};
}

// A per-channel vector (or scalar-free absent value) shaped [1, C, 1, ...].
Expr channelwise(Context& c, Value v, int64_t rank, DType dtype) {
  Shape shape(rank, 1);
  shape[1] = v.dim(0);
  return {c.b, c.b.reshape(c.b.convert(v, dtype), shape)};
}

Expr flat(Expr x) { return x.with(x.b().reshape(x, {x.value().numel()})); }

Expr affine(Context& c, Expr x, Value weight, Value bias) {
  const int64_t rank = x.value().rank();
  const Shape& shape = x.value().shape();
  if (weight) x = x * spread(channelwise(c, weight, rank, x.dtype()), shape);
  if (bias) x = x + spread(channelwise(c, bias, rank, x.dtype()), shape);
  return x;
}

// --- batch norm
// -------------------------------------------------------------------------------------------------------

struct BatchNormCall {
  Value input, weight, bias, running_mean, running_var;
  bool training;
  double momentum, eps;
  size_t first_out = 0;  // where output, save_mean, save_invstd begin in the results
};

struct BatchNormResult {
  Value output, save_mean, save_invstd;
  Value running_mean, running_var;  // absent when they do not change
};

Value stored(Context& c, size_t index, Expr stat) {
  const Type& type = c.out(index);
  if (element_count(type.shape) != stat.value().numel()) return c.b.zeros(type);
  return c.b.convert(flat(stat), type.dtype);
}

// running = (1 - momentum) * running + momentum * batch
Value updated(Context& c, Value running, Expr batch, double momentum) {
  if (!running) return {};
  Expr old = Expr(c.b, running).to(batch.dtype());
  return (old * (1 - momentum) + flat(batch) * momentum).to(running.dtype());
}

BatchNormResult batch_norm(Context& c, const BatchNormCall& call) {
  const DType dtype = compute_dtype(call.input.dtype());
  Expr x(c.b, c.b.convert(call.input, dtype));
  const int64_t rank = x.value().rank();
  const Dims dims = all_but(rank, 1);
  const Shape& shape = x.value().shape();
  BatchNormResult result;
  const bool batch_statistics = call.training || !call.running_mean;
  Expr mean = x, variance = x;
  if (batch_statistics) {
    Moments m = moments(x, dims);
    mean = m.mean;
    variance = m.variance;
    if (call.training) {
      Expr count(c.b, c.b.extents(x, dims, dtype));
      Expr unbiased = variance * spread(count / max(count - 1.0, 1.0), variance.value().shape());
      result.running_mean = updated(c, call.running_mean, mean, call.momentum);
      result.running_var = updated(c, call.running_var, unbiased, call.momentum);
    }
  } else {
    mean = channelwise(c, call.running_mean, rank, dtype);
    variance = channelwise(c, call.running_var, rank, dtype);
  }
  Expr invstd = rsqrt(variance + call.eps);
  Expr normal = (x - spread(mean, shape)) * spread(invstd, shape);
  result.output = affine(c, normal, call.weight, call.bias).to(call.input.dtype());
  result.save_mean = stored(c, call.first_out + 1, mean);
  result.save_invstd = stored(c, call.first_out + 2, invstd);
  return result;
}

// native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps): writes the running
// statistics although its schema does not say so.
Values native_batch_norm(Context& c, const Args& args) {
  auto r = batch_norm(c, {args.tensor(0), args.tensor(1), args.tensor(2), args.tensor(3), args.tensor(4), args.flag(5),
                          args.number(6), args.number(7)});
  Values values;
  if (args.tensor(3)) values.push_back(r.running_mean);
  if (args.tensor(4)) values.push_back(r.running_var);
  values.insert(values.end(), {r.output, r.save_mean, r.save_invstd});
  return values;
}

// (input, weight, bias, training, momentum, eps)
Values batch_norm_no_stats(Context& c, const Args& args) {
  auto r = batch_norm(
      c, {args.tensor(0), args.tensor(1), args.tensor(2), {}, {}, args.flag(3), args.number(4), args.number(5)});
  return {r.output, r.save_mean, r.save_invstd};
}

// (input, weight, bias, running_mean, running_var, momentum, eps) -> output, save_mean, save_invstd, reserve
Values batch_norm_with_update(Context& c, const Args& args) {
  auto r = batch_norm(c, {args.tensor(0), args.tensor(1), args.tensor(2), args.tensor(3), args.tensor(4), true,
                          args.number(5), args.number(6)});
  return {r.running_mean, r.running_var, r.output, r.save_mean, r.save_invstd, c.b.zeros(c.out(3))};
}

// (input, running_mean, running_var, momentum) -> mean, var; writes the running statistics.
Values batch_norm_update_stats(Context& c, const Args& args) {
  const DType dtype = compute_dtype(args.tensor(0).dtype());
  Expr x(c.b, c.b.convert(args.tensor(0), dtype));
  const Dims dims = all_but(x.value().rank(), 1);
  Moments m = moments(x, dims);
  Expr count(c.b, c.b.extents(x, dims, dtype));
  Expr unbiased = m.variance * spread(count / max(count - 1.0, 1.0), m.variance.value().shape());
  Values values;
  if (args.tensor(1)) values.push_back(updated(c, args.tensor(1), m.mean, args.number(3)));
  if (args.tensor(2)) values.push_back(updated(c, args.tensor(2), unbiased, args.number(3)));
  values.insert(values.end(), {flat(m.mean).to(c.out(0).dtype), flat(m.variance).to(c.out(1).dtype)});
  return values;
}

struct BatchNormGrad {
  Value grad, input, weight, running_mean, running_var, save_mean, save_invstd;
  bool training;
  double eps;
};

Values batch_norm_grad(Context& c, const BatchNormGrad& call) {
  const DType dtype = compute_dtype(call.input.dtype());
  Expr x(c.b, c.b.convert(call.input, dtype));
  Expr g(c.b, c.b.convert(call.grad, dtype));
  const int64_t rank = x.value().rank();
  const Dims dims = all_but(rank, 1);
  const Shape& shape = x.value().shape();
  const bool saved = call.training || !call.running_mean;
  Expr mean = channelwise(c, saved ? call.save_mean : call.running_mean, rank, dtype);
  Expr invstd = saved ? channelwise(c, call.save_invstd, rank, dtype)
                      : rsqrt(channelwise(c, call.running_var, rank, dtype) + call.eps);
  Expr normal = (x - spread(mean, shape)) * spread(invstd, shape);
  Expr sum_g = kept_sum(g, dims);
  Expr sum_gx = kept_sum(g * normal, dims);
  Values results(3);
  if (c.out(0).dtype != DType::kInvalid) {
    Expr scale = invstd;
    if (call.weight) scale = scale * channelwise(c, call.weight, rank, dtype);
    Expr inner = g;
    if (call.training) {
      Expr count = spread(x.with(c.b.extents(x, dims, dtype)), sum_g.value().shape());
      inner = g - spread(sum_g / count, shape) - normal * spread(sum_gx / count, shape);
    }
    results[0] = (inner * spread(scale, shape)).to(c.out(0).dtype);
  }
  if (c.out(1).dtype != DType::kInvalid) results[1] = flat(sum_gx).to(c.out(1).dtype);
  if (c.out(2).dtype != DType::kInvalid) results[2] = flat(sum_g).to(c.out(2).dtype);
  return results;
}

// (grad, input, weight, running_mean, running_var, save_mean, save_invstd, train, eps, output_mask)
Values native_batch_norm_backward(Context& c, const Args& args) {
  return batch_norm_grad(c, {args.tensor(0), args.tensor(1), args.tensor(2), args.tensor(3), args.tensor(4),
                             args.tensor(5), args.tensor(6), args.flag(7), args.number(8)});
}

// --- layer norm
// -------------------------------------------------------------------------------------------------------

// (input, normalized_shape, weight, bias, eps) -> output, mean, rstd
Values native_layer_norm(Context& c, const Args& args) {
  const DType dtype = compute_dtype(args.tensor(0).dtype());
  Expr x(c.b, c.b.convert(args.tensor(0), dtype));
  const int64_t rank = x.value().rank();
  const Shape& shape = x.value().shape();
  Moments m = moments(x, range(rank - static_cast<int64_t>(args.ints(1).size()), rank));
  Expr rstd = rsqrt(m.variance + args.number(4));
  Expr y = (x - spread(m.mean, shape)) * spread(rstd, shape);
  if (args.tensor(2)) y = y * y.with(as(c, args.tensor(2), dtype, shape));
  if (args.tensor(3)) y = y + y.with(as(c, args.tensor(3), dtype, shape));
  return {y.to(c.out(0).dtype), m.mean.to(c.out(1).dtype), rstd.to(c.out(2).dtype)};
}

// (grad, input, normalized_shape, mean, rstd, weight, bias, output_mask)
Values native_layer_norm_backward(Context& c, const Args& args) {
  const DType dtype = compute_dtype(args.tensor(1).dtype());
  Expr g(c.b, c.b.convert(args.tensor(0), dtype));
  Expr x(c.b, c.b.convert(args.tensor(1), dtype));
  const Shape& shape = x.value().shape();
  const int64_t rank = x.value().rank();
  const int64_t outer = rank - static_cast<int64_t>(args.ints(2).size());
  const Dims inner = range(outer, rank);
  const Dims batch = range(0, outer);
  Expr mean = x.with(as(c, args.tensor(3), dtype, shape));
  Expr rstd = x.with(as(c, args.tensor(4), dtype, shape));
  Expr normal = (x - mean) * rstd;
  Values results(3);
  if (c.out(0).dtype != DType::kInvalid) {
    Expr gw = args.tensor(5) ? g * g.with(as(c, args.tensor(5), dtype, shape)) : g;
    Expr centred = gw - spread(kept_mean(gw, inner), shape) - normal * spread(kept_mean(gw * normal, inner), shape);
    results[0] = (centred * rstd).to(c.out(0).dtype);
  }
  auto over_batch = [&](Expr v, size_t i) { return c.b.convert(c.b.reduce_sum(v, batch), c.out(i).dtype); };
  if (c.out(1).dtype != DType::kInvalid) results[1] = over_batch(g * normal, 1);
  if (c.out(2).dtype != DType::kInvalid) results[2] = over_batch(g, 2);
  return results;
}

// (grad, input, normalized_shape, rstd, weight, output_mask) -> grad_input, grad_weight
Values fused_rms_norm_backward(Context& c, const Args& args) {
  const DType dtype = compute_dtype(args.tensor(1).dtype());
  Expr g(c.b, c.b.convert(args.tensor(0), dtype));
  Expr x(c.b, c.b.convert(args.tensor(1), dtype));
  const Shape& shape = x.value().shape();
  const int64_t rank = x.value().rank();
  const int64_t outer = rank - static_cast<int64_t>(args.ints(2).size());
  Expr rstd = x.with(as(c, args.tensor(3), dtype, shape));
  Expr normal = x * rstd;
  Values results(2);
  if (c.out(0).dtype != DType::kInvalid) {
    Expr gw = args.tensor(4) ? g * g.with(as(c, args.tensor(4), dtype, shape)) : g;
    results[0] = ((gw - normal * spread(kept_mean(gw * normal, range(outer, rank)), shape)) * rstd).to(c.out(0).dtype);
  }
  if (c.out(1).dtype != DType::kInvalid)
    results[1] = c.b.convert(c.b.reduce_sum(g * normal, range(0, outer)), c.out(1).dtype);
  return results;
}

// --- group norm
// -------------------------------------------------------------------------------------------------------

// (input, weight, bias, N, C, HxW, group, eps) -> output, mean [N, group], rstd [N, group]
Values native_group_norm(Context& c, const Args& args) {
  const Value input = args.tensor(0);
  const DType dtype = compute_dtype(input.dtype());
  const int64_t n = args.integer(3), channels = args.integer(4), spatial = args.integer(5), groups = args.integer(6);
  Expr x(c.b, c.b.reshape(c.b.convert(input, dtype), {n, groups, channels / groups * spatial}));
  Moments m = moments(x, {2});
  Expr rstd = rsqrt(m.variance + args.number(7));
  const Shape grouped = x.value().shape();
  Expr y = (x - spread(m.mean, grouped)) * spread(rstd, grouped);
  y = affine(c, y.with(c.b.reshape(y, {n, channels, spatial})), args.tensor(1), args.tensor(2));
  return {c.b.reshape(y.to(c.out(0).dtype), input.shape()), c.b.reshape(m.mean.to(c.out(1).dtype), {n, groups}),
          c.b.reshape(rstd.to(c.out(2).dtype), {n, groups})};
}

// (grad, input, mean, rstd, weight, N, C, HxW, group, output_mask)
Values native_group_norm_backward(Context& c, const Args& args) {
  const Value input = args.tensor(1);
  const DType dtype = compute_dtype(input.dtype());
  const int64_t n = args.integer(5), channels = args.integer(6), spatial = args.integer(7), groups = args.integer(8);
  const Shape grouped{n, groups, channels / groups * spatial}, split{n, channels, spatial};
  Expr x(c.b, c.b.reshape(c.b.convert(input, dtype), grouped));
  Expr g(c.b, c.b.reshape(c.b.convert(args.tensor(0), dtype), split));
  auto per_group = [&](Value v) {
    return spread(Expr(c.b, c.b.reshape(c.b.convert(v, dtype), {n, groups, 1})), grouped);
  };
  Expr rstd = per_group(args.tensor(3));
  Expr normal = (x - per_group(args.tensor(2))) * rstd;
  Values results(3);
  if (c.out(0).dtype != DType::kInvalid) {
    Expr gw = affine(c, g, args.tensor(4), {});
    gw = gw.with(c.b.reshape(gw, grouped));
    Expr centred = gw - spread(kept_mean(gw, {2}), grouped) - normal * spread(kept_mean(gw * normal, {2}), grouped);
    results[0] = c.b.reshape((centred * rstd).to(c.out(0).dtype), input.shape());
  }
  Expr by_channel = normal.with(c.b.reshape(normal, split));
  if (c.out(1).dtype != DType::kInvalid)
    results[1] = c.b.convert(c.b.reduce_sum(g * by_channel, {0, 2}), c.out(1).dtype);
  if (c.out(2).dtype != DType::kInvalid) results[2] = c.b.convert(c.b.reduce_sum(g, {0, 2}), c.out(2).dtype);
  return results;
}

// --- weight norm -----------------------------------------------------------------------------------------------------

Values no_complex_weight_norm(Context& c) {
  return {c.b.fail(ErrorCode::kNotImplemented, c.op + ": no rule for complex tensors"), c.b.zeros(c.out(1))};
}

// (v, g, dim) -> v * g / |v|, |v|: one norm for each index along dim.
Values weight_norm(Context& c, const Args& args) {
  if (is_complex(args.tensor(0).dtype())) return no_complex_weight_norm(c);
  Expr v(c.b, c.b.convert(args.tensor(0), compute_dtype(args.tensor(0).dtype())));
  const Shape& shape = v.value().shape();
  Expr norms = sqrt(kept_sum(v * v, all_but(v.value().rank(), wrap_dim(args.integer_or(2, 0), v.value().rank()))));
  Expr factor = v.with(c.b.convert(args.tensor(1), v.dtype())) / norms;
  return {(v * spread(factor, shape)).to(c.out(0).dtype), norms.to(c.out(1).dtype)};
}

// (grad_w, saved_v, saved_g, saved_norms, dim) -> grad_v, grad_g
Values weight_norm_backward(Context& c, const Args& args) {
  if (is_complex(args.tensor(1).dtype())) return no_complex_weight_norm(c);
  const DType dtype = compute_dtype(args.tensor(1).dtype());
  auto operand = [&](size_t i) { return Expr(c.b, c.b.convert(args.tensor(i), dtype)); };
  Expr grad = operand(0), v = operand(1), g = operand(2), norms = operand(3);
  const Shape& shape = v.value().shape();
  Expr along = kept_sum(grad * v, all_but(v.value().rank(), wrap_dim(args.integer(4), v.value().rank())));
  Expr grad_v = spread(g / norms, shape) * (grad - v * spread(along / (norms * norms), shape));
  return {grad_v.to(c.out(0).dtype), (along / norms).to(c.out(1).dtype)};
}

}  // namespace

void add_softmax_rows(Rows& rows);  // softmax.cc

void add_normalization_rows(Rows& rows) {
  rows.push_back({"aten::_weight_norm_interface", weight_norm});
  rows.push_back({"aten::_weight_norm_interface_backward", weight_norm_backward});
  rows.push_back(Row{"aten::native_batch_norm", native_batch_norm}.writing({3, 4}));
  rows.push_back({"aten::_native_batch_norm_legit", native_batch_norm});
  rows.push_back({"aten::_native_batch_norm_legit.no_stats", batch_norm_no_stats});
  rows.push_back({"aten::_batch_norm_with_update", batch_norm_with_update});
  rows.push_back(Row{"aten::batch_norm_update_stats", batch_norm_update_stats}.writing({1, 2}));
  rows.push_back({"aten::native_batch_norm_backward", native_batch_norm_backward});
  // (grad, input, weight, running_mean, running_var, save_mean, save_invstd, update, eps, mask, reserve): the same
  // order.
  rows.push_back({"aten::batch_norm_backward", native_batch_norm_backward});
  rows.push_back({"aten::native_layer_norm", native_layer_norm});
  rows.push_back({"aten::native_layer_norm_backward", native_layer_norm_backward});
  rows.push_back({"aten::_fused_rms_norm_backward", fused_rms_norm_backward});
  rows.push_back({"aten::native_group_norm", native_group_norm});
  rows.push_back({"aten::native_group_norm_backward", native_group_norm_backward});
  add_softmax_rows(rows);
}

}  // namespace torch_tpu::ops
