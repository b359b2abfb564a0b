// Output shapes, strides, dtypes and argument errors of a call, from PyTorch's own inference on meta tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "aten/call.h"

namespace torch_tpu::aten {

struct OutMeta {
  bool defined = false;
  at::ScalarType type = at::kFloat;
  std::vector<int64_t> sizes, strides;
  std::optional<int64_t> number;  // a result that is an int, not a tensor (attention's max_q)
};

struct Inference {
  std::vector<OutMeta> outs;  // results of the functional form that are not written arguments
  // out= arguments whose sizes do not fit: the sizes that they must get, by position in Plan::written (empty: fits).
  std::vector<std::vector<int64_t>> resize;
};

// Calls the op's meta kernel (or our own inference where PyTorch has none). Raises what PyTorch raises: shape and dtype
// errors, writes that overlap, results that cannot be cast. Takes the GIL where the meta kernel is Python.
Inference infer(const Call& call);

// What at::empty_like gives on meta tensors, with t's layout where that is dense. PyTorch's own is written in Python,
// and its first call imports 500 modules.
at::Tensor dense_like(const at::Tensor& t, at::ScalarType dtype);

// What an elementwise op over these operands gives on meta tensors: broadcast, laid out as TensorIterator does.
at::Tensor elementwise(at::TensorList operands, at::ScalarType dtype);

// Inference of ours for ops without a meta kernel; nullptr if there is none. `stack` holds meta arguments of the
// functional form; the results are meta tensors.
using OwnInference = void (*)(torch::jit::Stack* stack);
OwnInference own_inference(const std::string& functional_name);
// The parts of its table in own_inference_counting.cc, own_inference_indexing.cc, own_inference_products.cc and
// own_inference_sampling.cc.
const std::map<std::string, OwnInference>& counting_inference();
const std::map<std::string, OwnInference>& indexing_inference();
const std::map<std::string, OwnInference>& product_inference();
const std::map<std::string, OwnInference>& sampling_inference();

}  // namespace torch_tpu::aten
