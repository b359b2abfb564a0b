#include "aten/dispatch_parts.h"

#include <ATen/ops/add.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <chrono>

#include "aten/device.h"
#include "aten/kernel.h"
#include "aten/op_cache.h"
#include "aten/register.h"
#include "aten/storage.h"
#include "fuse/step.h"
#include "runtime/statistics.h"

namespace torch_tpu::aten {
namespace {

constexpr int kBatches = 15;

template <typename Body>
double nanoseconds(int calls, Body body) {
  double best = 1e30;
  for (int batch = 0; batch < kBatches; ++batch) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) body();
    const std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - start;
    best = std::min(best, taken.count() / calls);
  }
  return best;
}

}  // namespace

std::vector<std::pair<std::string, double>> dispatch_parts(int calls) {
  const auto options = at::TensorOptions().device(make_device(0));
  const at::Tensor a = at::ones({4}, options), b = at::ones({4}, options);
  at::Tensor sum = at::add(a, b);
  synchronize_device(0);

  const Plan* plan = find_plan("aten::add.Tensor");
  TORCH_CHECK(plan != nullptr, "aten::add.Tensor has no row");
  const c10::IValue arguments[] = {a, b, at::Scalar(1)};
  auto make_call = [&](Call& call) {
    call.plan = plan;
    call.arguments = arguments;
    gather(call);
  };
  Call call;
  make_call(call);
  const EntryRef entry = OpCache::instance().find(call.key);
  TORCH_CHECK(entry != nullptr && entry->step != nullptr, "a + b is not in the op cache");
  PJRT_Buffer* inputs[] = {read_slot(*slot_of(a))->buffer.get(), read_slot(*slot_of(b))->buffer.get()};
  const auto& client = engine().client();

  std::vector<std::pair<std::string, double>> parts;
  auto measure = [&](const char* name, auto body) { parts.emplace_back(name, nanoseconds(calls, body)); };
  measure("at::add", [&] { sum = at::add(a, b); });
  measure("execute", [&] {
    PJRT_Buffer* output = nullptr;
    check(fuse::launch({"aten::add.Tensor", entry->step->program, 0, entry->step->bytes, inputs, {}}, {&output, 1}));
    const pjrt::Buffer owned(&client, output);
  });
  measure("key", [&] {
    Call again;
    make_call(again);
  });
  measure("lookup", [&] { (void)OpCache::instance().find(call.key); });
  measure("wrap", [&] {
    const at::Tensor t = empty_strided_on(0, {4}, {1}, at::kFloat);
    slot_of(t)->value = runtime::ValueRef(new runtime::BufferValue(pjrt::Buffer(), {DType::kF32, {4}}, 0, 16));
  });
  measure("statistics", [] {
    runtime::totals().ops.fetch_add(1, std::memory_order_relaxed);
    runtime::totals().memory_hits.fetch_add(1, std::memory_order_relaxed);
  });
  double rest = parts[0].second;
  for (size_t i = 1; i < parts.size(); ++i) rest -= parts[i].second;
  parts.emplace_back("rest", rest);
  return parts;
}

}  // namespace torch_tpu::aten
