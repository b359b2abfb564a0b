// The device guard: current device, streams and events of `tpu` for everything in PyTorch that is generic over devices
// (torch.accelerator, torch.Stream, torch.Event, the autograd engine).
#include <c10/core/DeviceCapability.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <array>
#include <mutex>

#include "aten/device.h"
#include "aten/storage.h"
#include "fuse/region.h"
#include "runtime/late_error.h"
#include "runtime/stream.h"

namespace torch_tpu::aten {
namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::DeviceType;
using c10::Stream;

runtime::Stream to_runtime(const Stream& stream) { return {stream.device_index(), stream.id()}; }
Stream to_c10(const runtime::Stream& stream) { return Stream(Stream::UNSAFE, make_device(stream.device), stream.id); }

// Streams that PyTorch takes "from the pool" are shared: without a bound, a loop that asks for one per step would make
// a new label each time.
class StreamPool {
 public:
  runtime::Stream next(int device, bool high_priority) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto& ring = rings_[high_priority ? 1 : 0];
    if (ring.size() <= static_cast<size_t>(device)) ring.resize(device + 1);
    Ring& slots = ring[device];
    if (slots.streams.size() < kSize) {
      slots.streams.push_back(runtime::new_stream(device, high_priority ? -1 : 0));
      return slots.streams.back();
    }
    return slots.streams[slots.next++ % kSize];
  }

 private:
  static constexpr size_t kSize = 32;
  struct Ring {
    std::vector<runtime::Stream> streams;
    size_t next = 0;
  };
  std::mutex mutex_;
  std::array<std::vector<Ring>, 2> rings_;
};

StreamPool& stream_pool() {
  static auto* pool = new StreamPool;  // leaked: streams outlive static destruction
  return *pool;
}

// Errors of programs that finished meanwhile (an index out of range) surface where the user waits.
void raise_late_errors(int device) { check(runtime::check_flags(device, /*wait=*/true)); }

struct GuardImpl final : public c10::impl::DeviceGuardImplInterface {
  static constexpr DeviceType static_type = DeviceType::PrivateUse1;

  GuardImpl() = default;
  explicit GuardImpl(DeviceType type) { TORCH_INTERNAL_ASSERT(type == static_type); }

  DeviceType type() const override { return static_type; }

  Device exchangeDevice(Device device) const override {
    const Device previous = getDevice();
    setDevice(device);
    return previous;
  }
  Device getDevice() const override { return make_device(runtime::current_device()); }
  void setDevice(Device device) const override {
    TORCH_CHECK(device.type() == static_type, "tpu: expected a tpu device, got <", device, ">");
    if (device.index() == runtime::current_device()) return;
    runtime::set_current_device(device_index(device));
  }
  void uncheckedSetDevice(Device device) const noexcept override {
    if (device.index() >= 0) runtime::set_current_device(device.index());
  }
  DeviceIndex deviceCount() const noexcept override {
    return static_cast<DeviceIndex>(runtime::Engine::device_count());
  }

  c10::DeviceCapability getDeviceCapability(Device device) const override {
    device_index(device);
    c10::DeviceCapability capability;
    capability.capability_data.capability_bits = 0;
#define TORCH_TPU_SET_SUPPORTED(cpp_type, name) \
  capability.capability_data.supported_scalar_types.has_##name = to_dtype(c10::ScalarType::name) != DType::kInvalid;
    AT_FORALL_SCALAR_TYPES_WITH_COMPLEX_AND_QINTS(TORCH_TPU_SET_SUPPORTED)
#undef TORCH_TPU_SET_SUPPORTED
    return capability;
  }

  Stream getStream(Device device) const override { return to_c10(runtime::current_stream(device_index(device))); }
  Stream getDefaultStream(Device device) const override { return to_c10(runtime::Stream{device_index(device), 0}); }
  Stream getStreamFromGlobalPool(Device device, bool high_priority) const override {
    return to_c10(stream_pool().next(device_index(device), high_priority));
  }
  Stream getNewStream(Device device, int priority) const override {
    return to_c10(runtime::new_stream(device_index(device), priority));
  }
  Stream exchangeStream(Stream stream) const override {
    const runtime::Stream next = to_runtime(stream);
    if (next != runtime::current_stream(next.device)) fuse::run_before_switch_of_stream();
    return to_c10(runtime::exchange_stream(next));
  }
  void* getStreamNativeHandle(const Stream stream) const override {
    // PJRT has no stream object; the label is all there is to identify one.
    return reinterpret_cast<void*>(static_cast<intptr_t>(stream.id()));
  }
  bool queryStream(const Stream& stream) const override { return runtime::query(to_runtime(stream)); }
  void synchronizeStream(const Stream& stream) const override {
    check(runtime::synchronize(to_runtime(stream)));
    raise_late_errors(stream.device_index());
  }
  bool isStreamCapturing(const Stream&) const override { return false; }
  void synchronizeDevice(const DeviceIndex index) const override {
    const int device = device_index(index);
    check(runtime::synchronize_device(device));
    raise_late_errors(device);
  }
  // PJRT keeps a buffer alive until the programs that read it are done: there is nothing to record.
  void recordDataPtrOnStream(const c10::DataPtr&, const Stream&) const override {}

  void destroyEvent(void* event, const DeviceIndex) const noexcept override {
    delete static_cast<runtime::EventRecord*>(event);
  }
  void record(void** event, const Stream& stream, const DeviceIndex index, const c10::EventFlag flag) const override {
    TORCH_CHECK(index < 0 || index == stream.device_index(), "tpu: event of device ", static_cast<int>(index),
                " cannot be recorded on a stream of device ", static_cast<int>(stream.device_index()));
    if (*event == nullptr) *event = new runtime::EventRecord;
    static_cast<runtime::EventRecord*>(*event)->record(to_runtime(stream), flag == c10::EventFlag::BACKEND_DEFAULT);
  }
  void block(void* event, const Stream& stream) const override {
    if (event != nullptr) static_cast<runtime::EventRecord*>(event)->block(to_runtime(stream));
  }
  bool queryEvent(void* event) const override {
    return event == nullptr || static_cast<runtime::EventRecord*>(event)->query();
  }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) check(static_cast<runtime::EventRecord*>(event)->synchronize());
  }
  double elapsedTime(void* start, void* end, const DeviceIndex) const override {
    TORCH_CHECK(start != nullptr && end != nullptr,
                "tpu: both events must be recorded before calculating elapsed time");
    return take(static_cast<runtime::EventRecord*>(start)->elapsed_to(*static_cast<runtime::EventRecord*>(end)));
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, GuardImpl)

}  // namespace
}  // namespace torch_tpu::aten
