#include "ops/table.h"

#include <array>
#include <unordered_map>

namespace torch_tpu::ops {
namespace {

Rows build() {
  Rows rows;
  rows.reserve(1024);
  add_pointwise_rows(rows);
  add_creation_rows(rows);
  add_random_rows(rows);
  add_reduction_rows(rows);
  add_order_rows(rows);
  add_indexing_rows(rows);
  add_shape_rows(rows);
  add_matmul_rows(rows);
  add_convolution_rows(rows);
  add_pooling_rows(rows);
  add_normalization_rows(rows);
  add_quantization_rows(rows);
  add_attention_rows(rows);
  add_loss_rows(rows);
  add_recurrent_rows(rows);
  add_optimizer_rows(rows);
  add_resampling_rows(rows);
  add_linalg_rows(rows);
  return rows;
}

using ByName = std::unordered_map<std::string_view, const Row*>;

// One map per platform; names point into table(), which never changes once built.
std::array<ByName, 2> index_rows() {
  std::array<ByName, 2> maps;
  for (const Row& row : table()) {
    for (Platform platform : {Platform::kCpu, Platform::kTpu}) {
      if (!row.only || *row.only == platform) maps[static_cast<size_t>(platform)].emplace(row.name, &row);
    }
  }
  return maps;
}

}  // namespace

const Rows& table() {
  static const Rows& rows = *new Rows(build());  // never destroyed: kernels may run during exit
  return rows;
}

const Row* find_row(std::string_view name, Platform platform) {
  static const std::array<ByName, 2>& maps = *new std::array<ByName, 2>(index_rows());
  const ByName& map = maps[static_cast<size_t>(platform)];
  auto it = map.find(name);
  return it == map.end() ? nullptr : it->second;
}

}  // namespace torch_tpu::ops
