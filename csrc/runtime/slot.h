// Slots: the mutable cell behind a PyTorch storage, holding an immutable PJRT buffer.
//
// A mutation swaps the slot's value; every alias sees it because every alias shares the slot.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "hlo/type.h"
#include "pjrt/client.h"

namespace torch_tpu::runtime {

class BufferValue;

// A program that did not run: of the values that it should have made, and of all that depend on these.
struct Failure {
  const Error error;
  std::atomic<bool> told{false};  // somebody who needed a value has got the error
};

// Who owes a value its buffer: recorded ops that have not run yet (fuse/region.h). Lives for ever.
class Debtor {
 public:
  // Gives every value that it owes a buffer or a failure. From any thread; no slot may be locked by the caller.
  virtual void pay() = 0;

 protected:
  ~Debtor() = default;
};

// A counted reference to an immutable device buffer. Destruction returns the buffer and its bytes (runtime/memory.h).
// The buffer may still be owed; then `force` it before looking at it.
class BufferValue {
 public:
  BufferValue(pjrt::Buffer buffer, hlo::Type type, int device, int64_t bytes, bool donatable = true);
  // A value whose buffer is owed. It counts as memory from `settle` on.
  BufferValue(Debtor& debtor, hlo::Type type, int device, int64_t bytes);
  ~BufferValue();
  BufferValue(const BufferValue&) = delete;
  BufferValue& operator=(const BufferValue&) = delete;

  // What is owed is paid, or never will be. Once, by the debtor, which lets nobody else look meanwhile.
  void settle(pjrt::Buffer paid);
  void fail(std::shared_ptr<Failure> why);

  pjrt::Buffer buffer;
  const hlo::Type type;
  const int device;
  const int64_t bytes;
  // False for cached scalars, imports and exports: never donated, whatever the count says.
  std::atomic<bool> donatable;
  // A submission was allowed to take its memory: its only holder gives it up as soon as the submission is made.
  bool consumed = false;
  // The op that made it (a plan's name, which lives for ever), for late errors; may be null.
  const char* producer = nullptr;
  // Set while the buffer is owed; cleared (release) once `buffer` or `failure` is set.
  std::atomic<Debtor*> debtor{nullptr};
  std::shared_ptr<Failure> failure;  // the program that should have made it failed

 private:
  friend class ValueRef;
  friend class HolderList;
  std::atomic<int32_t> references_{0};
  bool counted_ = true;  // among the device's memory
  // Links of the list of large values that out-of-memory texts are made from (runtime/memory.cc).
  BufferValue* previous_ = nullptr;
  BufferValue* next_ = nullptr;
};

// Intrusive pointer to a BufferValue.
class ValueRef {
 public:
  ValueRef() = default;
  explicit ValueRef(BufferValue* value) : value_(value) {
    if (value_) value_->references_.fetch_add(1, std::memory_order_relaxed);
  }
  ValueRef(const ValueRef& o) : ValueRef(o.value_) {}
  ValueRef(ValueRef&& o) noexcept : value_(std::exchange(o.value_, nullptr)) {}
  ValueRef& operator=(ValueRef o) noexcept {
    std::swap(value_, o.value_);
    return *this;
  }
  ~ValueRef() {
    if (value_ && value_->references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete value_;
  }
  explicit operator bool() const { return value_ != nullptr; }
  BufferValue* operator->() const { return value_; }
  BufferValue* get() const { return value_; }
  int32_t use_count() const { return value_ ? value_->references_.load(std::memory_order_acquire) : 0; }

 private:
  BufferValue* value_ = nullptr;
};

// Makes sure that the value has its buffer: runs what owes it. The error of the program that should have made it, of
// which the caller tells the user.
Status force(const ValueRef& value);

class Slot {
 public:
  // Takes an address of at least `bytes` from the address space. Never fails for want of device memory: a slot
  // without a value has no buffer yet (contents undefined; materialised as zeros on first read).
  Slot(int device, int64_t bytes);
  ~Slot();
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;

  int device() const { return device_; }
  int64_t bytes() const { return bytes_; }
  void* address() const { return address_.load(std::memory_order_relaxed); }

  // Held by a writer from before it decides about donation until it has stored the new value; by a reader only
  // while it copies the reference. Writers of several slots lock in address order.
  std::mutex mutex;
  ValueRef value;              // guarded by mutex
  std::optional<Error> error;  // guarded by mutex: a failed submission consumed the value; every read says so

  // Storage resize (0 <-> n): every earlier address keeps leading here; the value is dropped or kept by the caller.
  // When the storage outgrows its address range, address() changes and the storage must take the new one, or pointers
  // into its far end lead elsewhere. True if it changed.
  bool set_bytes(int64_t bytes);

 private:
  int device_;
  int64_t bytes_;
  std::atomic<void*> address_{nullptr};
  std::vector<void*> outgrown_;
};

// The slot whose address range contains `pointer`, or nullptr. Interior pointers resolve. Lock-free for hits.
Slot* slot_at(const void* pointer);
// Is the pointer inside the reserved range at all?
bool is_device_address(const void* pointer);
// Visits live slots (memory snapshots). A slot lives until its visit is over; `visit` may lock it.
void for_each_slot(const std::function<void(Slot&)>& visit);

}  // namespace torch_tpu::runtime
