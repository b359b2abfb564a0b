// PyTorch's profiler stubs: device time between two points of a stream (ProfilerState KINETO_PRIVATEUSE1_FALLBACK).
#include <c10/util/ApproximateClock.h>
#include <torch/csrc/profiler/stubs/base.h>

#include <memory>

#include "aten/storage.h"
#include "runtime/engine.h"
#include "runtime/stream.h"

namespace torch_tpu::aten {
namespace {

using torch::profiler::impl::ProfilerVoidEventStub;

struct Stubs final : public torch::profiler::impl::ProfilerStubs {
  void record(c10::DeviceIndex* device, ProfilerVoidEventStub* event, int64_t* cpu_ns) const override {
    const int current = runtime::current_device();
    if (device != nullptr) *device = static_cast<c10::DeviceIndex>(current);
    auto record = std::make_shared<runtime::EventRecord>();
    record->record(runtime::current_stream(current), /*timing=*/true);
    *event = std::move(record);
    if (cpu_ns != nullptr) *cpu_ns = c10::getTime();
  }
  // Microseconds.
  float elapsed(const ProfilerVoidEventStub* start, const ProfilerVoidEventStub* end) const override {
    auto* from = static_cast<runtime::EventRecord*>(start->get());
    auto* to = static_cast<runtime::EventRecord*>(end->get());
    check(from->synchronize());
    check(to->synchronize());
    return static_cast<float>(take(from->elapsed_to(*to)) * 1000.0);
  }
  // Ranges are for tools that listen outside PyTorch; there is none for this device. PyTorch records its own ranges.
  void mark(const char*) const override {}
  void rangePush(const char*) const override {}
  void rangePop() const override {}
  bool enabled() const override { return true; }
  void onEachDevice(std::function<void(int)> op) const override {
    for (int device = 0; device < runtime::Engine::device_count(); ++device) op(device);
  }
  void synchronize() const override {
    if (!runtime::Engine::opened()) return;
    for (int device = 0; device < runtime::Engine::device_count(); ++device) check(runtime::synchronize_device(device));
  }
};

const bool registered = [] {
  torch::profiler::impl::registerPrivateUse1Methods(new Stubs);  // leaked: PyTorch keeps the pointer
  return true;
}();

}  // namespace
}  // namespace torch_tpu::aten
