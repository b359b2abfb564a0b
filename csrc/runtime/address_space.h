// Addresses for storages: `data_ptr()` must be non-null, unique, stable and 64-byte aligned, and must fault when the
// host dereferences it. An address leads to its slot by arithmetic.
//
// Note [Address space]
// Each power-of-two size class owns a chain of regions: reserved, inaccessible virtual memory, cut into equal cells,
// one per slot. A region is at most 64 GiB and at most a million cells, and is reserved when the class runs out. A
// two-level table over the whole user address space maps 64 MiB granules to regions, so a lookup is two loads, a shift
// and one more load, and takes no lock. Where the system refuses large reservations (`ulimit -v`, sanitizers), smaller
// regions are tried; where it refuses all, addresses come from a range no process can map, kept in an ordered table.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace torch_tpu::runtime {

class Slot;

namespace address_space {

// Stores a fresh address with at least max(bytes, 1) bytes behind it in `address`, and then makes it lead to `slot`: a
// visitor that finds the slot finds its address set. Never fails, never null.
void allocate(int64_t bytes, Slot* slot, std::atomic<void*>& address);
// Gives an address of `allocate` back. A no-op in a forked child and after shutdown.
void release(void* address);

// The slot whose cell contains `pointer`, or nullptr.
Slot* find(const void* pointer);
// True if the pointer lies in a reserved region, live or not.
bool contains(const void* pointer);
// Bytes the cell of this address spans: how far a storage can grow without changing its address. 0 if unknown.
int64_t capacity(const void* pointer);

// Visits every live address and its slot, one visit at a time. A slot lives until its visit is over; the visitor may
// lock it and may create slots, but must not destroy the one it was given, nor throw.
void for_each(const std::function<void(Slot&, void*)>& visit);

// Used around fork() so that the child never inherits a lock held by a thread that does not exist there.
void lock_all();
void unlock_all();

// Reservation statistics, for tests: regions reserved, and addresses handed out without a reservation.
struct Usage {
  int64_t regions = 0, reserved_bytes = 0, unreserved = 0;
};
Usage usage();

}  // namespace address_space
}  // namespace torch_tpu::runtime
