// A device tensor as the host sees it.
#pragma once

#include <ATen/core/Tensor.h>

#include "base/shape.h"

namespace torch_tpu::aten {

// A CPU tensor with the device tensor's values, dtype, sizes and strides, for reading only. Waits for the value; raises
// late errors of the device. On the embedded engine it aliases the device buffer (which stays alive with it and is
// never donated meanwhile), elsewhere it is a copy. `op`: who needs the host (sync debug mode, error texts).
at::Tensor host_view(const at::Tensor& tensor, const char* op);

// Uploads a CPU tensor as a new device tensor with the same sizes, dtype and (dense) strides.
at::Tensor upload(const at::Tensor& host, int device);

// Dimensions in memory order, outermost first.
std::vector<int64_t> memory_order(const at::Tensor& tensor);

// The value of a slot set to the contents of a CPU tensor that is dense and contiguous in memory order.
void store_host(const at::Tensor& dense_host, const at::Tensor& destination, const Shape& buffer_shape);

}  // namespace torch_tpu::aten
