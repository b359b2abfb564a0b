// What PyTorch asks an accelerator about itself. Nothing here opens the engine unless a device is really used.
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/core/Tensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/DeviceType.h>

#include <algorithm>

#include "aten/device.h"
#include "aten/generator.h"
#include "aten/host_allocator.h"
#include "aten/storage.h"
#include "runtime/address_space.h"
#include "runtime/stream.h"

namespace torch_tpu::aten {
namespace {

// The first `count` bytes of a storage as a uint8 tensor.
at::Tensor as_bytes(const c10::Storage& storage, int64_t count) {
  auto tensor = at::detail::make_tensor_base<at::TensorImpl>(
      c10::Storage(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::scalarTypeToTypeMeta(at::kByte));
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(count);
  return tensor;
}

// UntypedStorage.resize_: keeps the first min(old, new) bytes. FSDP frees parameters with size 0 and takes them back.
void resize_storage(const c10::Storage& storage, size_t bytes) {
  c10::StorageImpl* impl = storage.unsafeGetStorageImpl();
  TORCH_CHECK(impl->resizable(), "Trying to resize storage that is not resizable");
  const size_t before = impl->nbytes();
  if (bytes == before) return;
  runtime::Slot* slot = slot_of(impl);
  const bool keep = bytes != 0 && read_slot(*slot);
  if (!keep && static_cast<int64_t>(bytes) <= runtime::address_space::capacity(slot->address())) {
    std::lock_guard<std::mutex> lock(slot->mutex);
    slot->value = {};
    slot->set_bytes(static_cast<int64_t>(bytes));
  } else {
    c10::Storage grown(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                             allocate_slot(slot->device(), bytes), impl->allocator(),
                                                             /*resizable=*/true));
    const auto kept = static_cast<int64_t>(std::min(before, bytes));
    if (keep) as_bytes(grown, kept).copy_(as_bytes(storage, kept));
    impl->set_data_ptr_noswap(grown.unsafeGetStorageImpl()->set_data_ptr(at::DataPtr()));
  }
  impl->set_nbytes(bytes);
}

struct Hooks final : public at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return runtime::Engine::available(); }
  bool hasPrimaryContext(c10::DeviceIndex index) const override {
    return runtime::Engine::opened() && index >= 0 && index < runtime::Engine::device_count();
  }
  void init() const override { engine(); }

  c10::DeviceIndex deviceCount() const override {
    return static_cast<c10::DeviceIndex>(runtime::Engine::device_count());
  }
  void setCurrentDevice(c10::DeviceIndex index) const override { runtime::set_current_device(device_index(index)); }
  c10::DeviceIndex getCurrentDevice() const override {
    return static_cast<c10::DeviceIndex>(runtime::current_device());
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    const c10::DeviceIndex previous = getCurrentDevice();
    setCurrentDevice(index);
    return previous;
  }
  // A negative index asks for no change (it is what a guard of an unknown device restores).
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return index < 0 ? getCurrentDevice() : exchangeDevice(index);
  }

  bool isPinnedPtr(const void* pointer) const override { return is_pinned(pointer); }
  at::Allocator* getPinnedMemoryAllocator() const override { return at::getHostAllocator(at::kPrivateUse1); }
  at::Device getDeviceFromPtr(void* pointer) const override {
    runtime::Slot* slot = runtime::slot_at(pointer);
    TORCH_CHECK(slot != nullptr, "tpu: the pointer is not an address of a tpu tensor");
    return make_device(slot->device());
  }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override {
    return default_generator(device_index(index));
  }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    return at::make_generator<GeneratorImpl>(static_cast<c10::DeviceIndex>(device_index(index)));
  }

  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    resize_storage(storage, bytes);
  }
};

// Registered from C++ so that a program without Python has the device too; Python repeats the rename (it keeps a copy).
const bool registered = [] {
  c10::register_privateuse1_backend("tpu");
  at::RegisterPrivateUse1HooksInterface(new Hooks);  // leaked: PyTorch keeps the pointer for ever
  return true;
}();

}  // namespace
}  // namespace torch_tpu::aten
