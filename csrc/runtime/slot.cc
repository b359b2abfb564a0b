#include "runtime/slot.h"

#include "runtime/address_space.h"
#include "runtime/memory.h"
#include "runtime/stream.h"

namespace torch_tpu::runtime {

BufferValue::BufferValue(pjrt::Buffer buffer, hlo::Type type, int device, int64_t bytes, bool donatable)
    : buffer(std::move(buffer)), type(std::move(type)), device(device), bytes(bytes), donatable(donatable) {
  account_allocation(*this);
}

BufferValue::BufferValue(Debtor& debtor, hlo::Type type, int device, int64_t bytes)
    : type(std::move(type)), device(device), bytes(bytes), donatable(true), debtor(&debtor), counted_(false) {}

BufferValue::~BufferValue() {
  if (counted_) account_free(*this);
  if (consumed) bury(device, std::move(buffer));
}

void BufferValue::settle(pjrt::Buffer paid) {
  buffer = std::move(paid);
  account_allocation(*this);
  counted_ = true;
  debtor.store(nullptr, std::memory_order_release);
}

void BufferValue::fail(std::shared_ptr<Failure> why) {
  failure = std::move(why);
  debtor.store(nullptr, std::memory_order_release);
}

Status force(const ValueRef& value) {
  if (Debtor* debtor = value->debtor.load(std::memory_order_acquire)) debtor->pay();
  if (!value->failure) return {};
  value->failure->told.store(true, std::memory_order_relaxed);
  return value->failure->error;
}

Slot::Slot(int device, int64_t bytes) : device_(device), bytes_(bytes) {
  address_space::allocate(bytes, this, address_);
}

Slot::~Slot() {
  address_space::release(address());
  for (void* address : outgrown_) address_space::release(address);
}

bool Slot::set_bytes(int64_t bytes) {
  bytes_ = bytes;
  if (bytes <= address_space::capacity(address())) return false;
  outgrown_.push_back(address());
  address_space::allocate(bytes, this, address_);
  return true;
}

Slot* slot_at(const void* pointer) { return address_space::find(pointer); }

bool is_device_address(const void* pointer) { return address_space::contains(pointer); }

void for_each_slot(const std::function<void(Slot&)>& visit) {
  address_space::for_each([&](Slot& slot, void* address) {
    // A storage that outgrew its address range is found at each of its addresses.
    if (slot.address() == address) visit(slot);
  });
}

}  // namespace torch_tpu::runtime
