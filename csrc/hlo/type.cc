#include "hlo/type.h"

namespace torch_tpu::hlo {

std::string Type::text() const {
  std::string out = "tensor<";
  for (int64_t size : shape) out += std::to_string(size) + "x";
  out += hlo_name(dtype);
  return out + ">";
}

}  // namespace torch_tpu::hlo
