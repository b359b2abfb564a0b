#include "ops/context.h"

namespace torch_tpu::ops {

void Context::check_index(Value bad) {
  if (!index_checks || !bad) return;
  if (bad.rank() > 0) {
    Dims all(bad.rank());
    for (int64_t i = 0; i < bad.rank(); ++i) all[i] = i;
    bad = b.reduce(bad, b.scalar_int(DType::kBool, 0), all, "or");
  }
  bad_indices.push_back(bad);
}

}  // namespace torch_tpu::ops
