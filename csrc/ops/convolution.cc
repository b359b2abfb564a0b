// Convolutions, plain and transposed, any number of spatial dims, and their gradients: one stablehlo.convolution each;
// on the embedded engine in the spellings of convolution_host.cc.
#include "ops/convolution.h"

#include "ops/expr.h"
#include "ops/table.h"

namespace torch_tpu::ops {

using hlo::ConvDims;
using hlo::ConvWindow;

namespace {

Dims spatial_dims(int64_t spatial) {
  Dims dims;
  for (int64_t i = 0; i < spatial; ++i) dims.push_back(i + 2);
  return dims;
}

}  // namespace

ConvDims channels_first(int64_t spatial) {
  ConvDims d;
  d.lhs_spatial = d.rhs_spatial = d.out_spatial = spatial_dims(spatial);
  return d;
}

// A convolution over the batch, in which the kernel positions are the output's spatial dims. Result [out, in/G, ...].
Value weight_gradient(Context& c, Value x, Value y, const Shape& weight, const ConvGeometry& g, DType result) {
  ConvDims dims;
  dims.lhs_batch = 1;
  dims.lhs_feature = 0;
  dims.rhs_in = 0;
  dims.rhs_out = 1;
  dims.out_batch = 1;
  dims.out_feature = 0;
  dims.lhs_spatial = dims.rhs_spatial = dims.out_spatial = spatial_dims(g.spatial);
  ConvWindow window;
  window.strides = g.dilation;
  window.rhs_dilation = g.stride;
  window.batch_groups = g.groups;
  for (int64_t i = 0; i < g.spatial; ++i) {
    // Rows that the strided forward never reached are cut off at the high end.
    const int64_t reached = (y.dim(i + 2) - 1) * g.stride[i] + g.dilation[i] * (weight[i + 2] - 1) + 1;
    window.pad_low.push_back(g.padding[i]);
    window.pad_high.push_back(reached - x.dim(i + 2) - g.padding[i]);
  }
  return c.b.convolution(x, y, dims, window, result, c.precision);
}

namespace {

using Geometry = ConvGeometry;

// The list arguments start at `first`: stride, padding, dilation, transposed, output_padding, groups. A list of one
// number stands for all dims.
Geometry geometry(const Args& args, size_t first, int64_t rank) {
  Geometry g;
  g.spatial = rank - 2;
  auto spread = [&](std::vector<int64_t> v, int64_t otherwise) {
    if (v.empty()) v.assign(1, otherwise);
    if (static_cast<int64_t>(v.size()) == 1) v.assign(g.spatial, v[0]);
    return v;
  };
  g.stride = spread(args.ints(first), 1);
  g.padding = spread(args.ints(first + 1), 0);
  g.dilation = spread(args.ints(first + 2), 1);
  g.transposed = args.flag(first + 3);
  g.output_padding = spread(args.ints(first + 4), 0);
  g.groups = args.integer(first + 5);
  return g;
}

int64_t kernel_extent(const Value& weight, const Geometry& g, int64_t i) {
  return g.dilation[i] * (weight.dim(i + 2) - 1) + 1;
}

// [G * a, b, ...] -> [a, G * b, ...]: swaps the two channel dims of a grouped kernel.
Value swap_groups(Context& c, Value w, int64_t groups) {
  if (groups == 1) return w;
  Shape shape = w.shape();
  const int64_t a = shape[0] / groups, b = shape[1];
  Shape split{groups, a, b};
  split.insert(split.end(), shape.begin() + 2, shape.end());
  Dims order{1, 0, 2};
  for (size_t i = 3; i < split.size(); ++i) order.push_back(static_cast<int64_t>(i));
  Shape joined{a, groups * b};
  joined.insert(joined.end(), shape.begin() + 2, shape.end());
  return c.b.reshape(c.b.transpose(c.b.reshape(w, split), order), joined);
}

// [G * a, b, ...] -> [G * b, a, ...], spatial dims reversed: the kernel of the transpose as a plain one.
Value flipped(Context& c, Value w, int64_t groups) {
  Shape shape = w.shape();
  const int64_t a = shape[0] / groups, b = shape[1];
  Shape split{groups, a, b}, joined{groups * b, a};
  Dims order{0, 2, 1}, spatial;
  for (size_t i = 2; i < shape.size(); ++i) {
    split.push_back(shape[i]);
    joined.push_back(shape[i]);
    order.push_back(static_cast<int64_t>(i) + 1);
    spatial.push_back(static_cast<int64_t>(i));
  }
  return c.b.reverse(c.b.reshape(c.b.transpose(c.b.reshape(w, split), order), joined), spatial);
}

// The transpose of a plain convolution: input dilated by the stride, kernel reversed and its channel dims swapped.
// `extra` completes the padding so that the result has the wanted extent.
Value transposed(Context& c, Value x, Value w, const Geometry& g, const Dims& extra, DType result) {
  ConvWindow window;
  window.strides.assign(g.spatial, 1);
  window.lhs_dilation = g.stride;
  window.rhs_dilation = g.dilation;
  window.feature_groups = g.groups;
  for (int64_t i = 0; i < g.spatial; ++i) {
    const int64_t reach = kernel_extent(w, g, i) - 1 - g.padding[i];
    window.pad_low.push_back(reach);
    window.pad_high.push_back(reach + extra[i]);
  }
  if (c.platform == Platform::kCpu) return host_convolution(c, x, flipped(c, w, g.groups), window, result);
  // The kernel [in, out/G, ...] becomes [in/G, out, ...].
  ConvDims dims = channels_first(g.spatial);
  dims.rhs_in = 0;
  dims.rhs_out = 1;
  window.reversal.assign(g.spatial, true);
  return c.b.convolution(x, swap_groups(c, w, g.groups), dims, window, result, c.precision);
}

Value plain(Context& c, Value x, Value w, const Geometry& g, DType result) {
  ConvWindow window;
  window.strides = g.stride;
  window.pad_low = window.pad_high = g.padding;
  window.rhs_dilation = g.dilation;
  window.feature_groups = g.groups;
  if (c.platform == Platform::kCpu) return host_convolution(c, x, w, window, result);
  return c.b.convolution(x, w, channels_first(g.spatial), window, result, c.precision);
}

Value kernel_gradient(Context& c, Value x, Value y, const Shape& weight, const Geometry& g, DType result) {
  if (c.platform == Platform::kCpu) return host_weight_gradient(c, x, y, weight, g, result);
  return weight_gradient(c, x, y, weight, g, result);
}

DType accumulator(DType dtype) { return compute_dtype(dtype); }

// (input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
Values convolution(Context& c, const Args& args) {
  const Value x = args.tensor(0), w = args.tensor(1);
  if (is_complex(x.dtype())) return {c.b.fail(ErrorCode::kNotImplemented, c.op + ": complex convolution has no rule")};
  const Geometry g = geometry(args, 3, x.rank());
  const DType acc = accumulator(x.dtype());
  if (element_count(c.out().shape) == 0) return {c.b.zeros(c.out())};
  Value y = x.numel() == 0 ? c.b.zeros({acc, c.out().shape})
            : g.transposed ? transposed(c, x, w, g, g.output_padding, acc)
                           : plain(c, x, w, g, acc);
  if (args.tensor(2)) y = c.b.add(y, c.b.broadcast_in_dim(c.b.convert(args.tensor(2), acc), y.shape(), {1}));
  return {c.b.convert(y, c.out().dtype)};
}

// The extra high padding with which the transpose of a convolution over `input` has input's extent again.
Dims leftover(const Value& grad, const Value& w, const Shape& input, const Geometry& g) {
  Dims extra;
  for (int64_t i = 0; i < g.spatial; ++i)
    extra.push_back(input[i + 2] - ((grad.dim(i + 2) - 1) * g.stride[i] - 2 * g.padding[i] + kernel_extent(w, g, i)));
  return extra;
}

// An output padding of a stride or more adds outputs whose plain convolution lies outside the input.
Value cut(Context& c, Value x, const Shape& shape) { return c.b.slice(x, Dims(shape.size(), 0), shape); }

Value bias_gradient(Context& c, Value grad) {
  Dims dims{0};
  for (int64_t i = 2; i < grad.rank(); ++i) dims.push_back(i);
  return c.b.convert(c.b.reduce_sum(grad, dims), c.out(2).dtype);
}

// (grad, input, weight, stride, padding, dilation, transposed, output_padding, groups, output_mask)
Values convolution_backward(Context& c, const Args& args) {
  const Value grad = args.tensor(0), x = args.tensor(1), w = args.tensor(2);
  if (is_complex(x.dtype())) return {c.b.fail(ErrorCode::kNotImplemented, c.op + ": complex convolution has no rule")};
  const Geometry g = geometry(args, 3, x.rank());
  const DType acc = accumulator(x.dtype());
  const bool empty = grad.numel() == 0 || x.numel() == 0;
  Values results(3);
  if (c.out(0).dtype != DType::kInvalid) {
    // A transposed convolution's input gradient is the plain convolution, and the other way round.
    Value gx = empty          ? c.b.zeros({acc, x.shape()})
               : g.transposed ? cut(c, plain(c, grad, w, g, acc), x.shape())
                              : transposed(c, grad, w, g, leftover(grad, w, x.shape(), g), acc);
    results[0] = c.b.convert(gx, c.out(0).dtype);
  }
  if (c.out(1).dtype != DType::kInvalid) {
    Value gw = empty          ? c.b.zeros({acc, w.shape()})
               : g.transposed ? kernel_gradient(c, grad, x, w.shape(), g, acc)
                              : kernel_gradient(c, x, grad, w.shape(), g, acc);
    results[1] = c.b.convert(gw, c.out(1).dtype);
  }
  if (c.out(2).dtype != DType::kInvalid) results[2] = bias_gradient(c, grad);
  return results;
}

}  // namespace

void add_convolution_rows(Rows& rows) {
  rows.push_back({"aten::convolution_overrideable", convolution});
  rows.push_back({"aten::convolution_backward_overrideable", convolution_backward});
}

}  // namespace torch_tpu::ops
