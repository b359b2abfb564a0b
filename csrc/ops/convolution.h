// How the embedded engine is given convolutions. XLA:CPU runs one form fast, a plain convolution of one group in one or
// two spatial dims; the others fall into scalar loops (measured on two cores, f32, 8 x 64 x 56 x 56 and 3 x 3 kernels:
// 6 ms plain; reversed 170 ms; depthwise 28 x 28 8 ms where shifted sums take 0.3; four groups' weights 119 ms).
#pragma once

#include "ops/context.h"

namespace torch_tpu::ops {

struct ConvGeometry {
  Dims stride, padding, dilation, output_padding;
  bool transposed = false;
  int64_t groups = 1;
  int64_t spatial = 0;
};

// Dimension numbers of batch, channels, spatial dims; kernels are [out, in, spatial...].
hlo::ConvDims channels_first(int64_t spatial);

// x [N, C, ...] * w [O, C / groups, ...] with any strides, padding, dilations and groups; no reversal.
Value host_convolution(Context& c, Value x, Value w, hlo::ConvWindow window, DType result);

// d(loss)/d(weight) of a plain convolution of x with gradient y; `weight` is the kernel's shape [O, C / groups, ...].
Value host_weight_gradient(Context& c, Value x, Value y, const Shape& weight, const ConvGeometry& g, DType result);

// The same as one convolution over the batch, on any platform.
Value weight_gradient(Context& c, Value x, Value y, const Shape& weight, const ConvGeometry& g, DType result);

}  // namespace torch_tpu::ops
