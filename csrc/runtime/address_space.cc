#include "runtime/address_space.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <condition_variable>
#include <map>
#include <mutex>
#include <new>
#include <shared_mutex>

#include "pjrt/client.h"

namespace torch_tpu::runtime::address_space {
namespace {

constexpr int kMinimumShift = 6;  // 64-byte cells: the alignment PyTorch promises
constexpr int kClasses = 47 - kMinimumShift;
constexpr int kGranuleShift = 26;  // regions are multiples of 64 MiB, aligned to it
constexpr int64_t kGranule = int64_t{1} << kGranuleShift;
constexpr int kTopShift = 36;  // one top-level entry per 64 GiB
constexpr int kTopEntries = 1 << (47 - kTopShift);
constexpr int kLeafEntries = 1 << (kTopShift - kGranuleShift);
constexpr int64_t kRegionBytes = int64_t{1} << kTopShift;
constexpr int64_t kCellsPerRegion = int64_t{1} << 20;
// No user process can map these: outside the lower canonical half without 5-level paging, and never handed out by the
// kernel unasked with it.
constexpr uintptr_t kUnreservedBase = uintptr_t{0x00F0} << 48;
constexpr uintptr_t kUnreservedEnd = uintptr_t{0x00FF} << 48;

// A cell holds the live slot, or, tagged with bit 0, the index of the next free cell (shifted left by one).
using Cell = std::atomic<uintptr_t>;
constexpr uintptr_t kFreeTag = 1;
constexpr int64_t kNoCell = -1;

struct Region {
  uintptr_t base = 0;
  int64_t bytes = 0;
  int shift = 0;
  int64_t cells = 0;
  Cell* table = nullptr;
  Region* next = nullptr;
  // Guarded by the class's mutex.
  int64_t free_head = kNoCell;
  int64_t used = 0;  // cells ever handed out; those above were never touched
};

struct Leaf {
  std::array<std::atomic<Region*>, kLeafEntries> regions{};
};

struct alignas(64) SizeClass {
  std::mutex mutex;
  std::condition_variable unpinned;
  Region* regions = nullptr;  // newest first; regions are never given back
  Region* current = nullptr;  // where to look first
};

struct Space {
  std::array<std::atomic<Leaf*>, kTopEntries> top{};
  std::array<SizeClass, kClasses> classes;
  std::atomic<int64_t> region_count{0}, reserved_bytes{0}, unreserved{0};
  std::mutex visiting;               // one for_each at a time
  std::atomic<uintptr_t> pinned{0};  // the address being visited: its release waits

  // The table of last resort.
  std::shared_mutex fallback_mutex;
  std::condition_variable_any fallback_unpinned;
  std::map<uintptr_t, std::pair<int64_t, Slot*>> fallback;
  std::atomic<uintptr_t> fallback_next{kUnreservedBase};
};

Space& space() {
  // Never destroyed: storages die after static destructors.
  static Space* const instance = new Space;
  return *instance;
}

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

// Reserves `bytes` of inaccessible memory aligned to a granule; 0 when the system refuses.
uintptr_t reserve(int64_t bytes) {
  const int64_t padded = bytes + kGranule;
  void* raw = mmap(nullptr, static_cast<size_t>(padded), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return 0;
  const auto begin = reinterpret_cast<uintptr_t>(raw);
  const uintptr_t base = (begin + kGranule - 1) & ~static_cast<uintptr_t>(kGranule - 1);
  if (base > begin) munmap(raw, base - begin);
  const uintptr_t end = begin + static_cast<uintptr_t>(padded), wanted_end = base + static_cast<uintptr_t>(bytes);
  if (end > wanted_end) munmap(reinterpret_cast<void*>(wanted_end), end - wanted_end);
  if (wanted_end > uintptr_t{1} << 47) {  // 5-level paging with a hint: the table does not reach there
    munmap(reinterpret_cast<void*>(base), static_cast<size_t>(bytes));
    return 0;
  }
  madvise(reinterpret_cast<void*>(base), static_cast<size_t>(bytes), MADV_DONTDUMP);
  return base;
}

std::atomic<Region*>& entry(Space& s, uintptr_t address) {
  std::atomic<Leaf*>& slot = s.top[address >> kTopShift];
  Leaf* leaf = slot.load(std::memory_order_acquire);
  if (!leaf) {
    // Two classes may race for one leaf.
    auto* fresh = new Leaf;
    if (slot.compare_exchange_strong(leaf, fresh, std::memory_order_acq_rel))
      leaf = fresh;
    else
      delete fresh;
  }
  return leaf->regions[(address >> kGranuleShift) & (kLeafEntries - 1)];
}

// How much this unit may still reserve in one piece, and in all. Under `ulimit -v` reservations compete with the heap
// and with the engine, so they get a quarter of the limit, in pieces small enough that every class finds room.
struct Allowance {
  int64_t piece, rest;
};
Allowance allowance(Space& s) {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {INT64_MAX, INT64_MAX};
  const auto bytes = static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, rlim_t{1} << 62));
  return {bytes / 128, bytes / 4 - s.reserved_bytes.load(std::memory_order_relaxed)};
}

// One more region for the class, or nullptr. Called with the class's mutex held.
Region* add_region(Space& s, SizeClass& size_class, int shift) {
  const int64_t cell = int64_t{1} << shift;
  const int64_t wanted = cell >= kRegionBytes / kCellsPerRegion ? kRegionBytes : cell * kCellsPerRegion;
  int64_t bytes = std::max({kGranule, cell, wanted});
  const int64_t smallest = round_up(cell, kGranule);
  const Allowance allowed = allowance(s);
  if (bytes > allowed.piece) bytes = std::max(smallest, round_up(allowed.piece, kGranule));
  if (bytes > allowed.rest) return nullptr;
  uintptr_t base = 0;
  // Halving finds what an address-space limit leaves, at the price of a longer chain.
  while (true) {
    base = reserve(bytes);
    if (base || bytes <= smallest) break;
    bytes = std::max(smallest, bytes / 4);
  }
  if (!base) return nullptr;
  const int64_t cells = bytes >> shift;
  void* table = mmap(nullptr, static_cast<size_t>(cells) * sizeof(Cell), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (table == MAP_FAILED) {
    munmap(reinterpret_cast<void*>(base), static_cast<size_t>(bytes));
    return nullptr;
  }
  auto* region = new (std::nothrow) Region;
  if (!region) return nullptr;
  *region = {base, bytes, shift, cells, static_cast<Cell*>(table), size_class.regions, kNoCell, 0};
  for (uintptr_t granule = base; granule < base + static_cast<uintptr_t>(bytes); granule += kGranule)
    entry(s, granule).store(region, std::memory_order_release);
  size_class.regions = region;
  s.region_count.fetch_add(1, std::memory_order_relaxed);
  s.reserved_bytes.fetch_add(bytes, std::memory_order_relaxed);
  return region;
}

// A cell of this region, or kNoCell when it is full.
int64_t take(Region& region) {
  if (region.free_head != kNoCell) {
    const int64_t index = region.free_head;
    const uintptr_t link = region.table[index].load(std::memory_order_relaxed) >> 1;
    region.free_head = static_cast<int64_t>(link) - 1;
    return index;
  }
  return region.used < region.cells ? region.used++ : kNoCell;
}

void hand_out(Region& region, int64_t index, Slot* slot, std::atomic<void*>& address) {
  const uintptr_t cell = region.base + (static_cast<uintptr_t>(index) << region.shift);
  address.store(reinterpret_cast<void*>(cell), std::memory_order_relaxed);
  region.table[index].store(reinterpret_cast<uintptr_t>(slot), std::memory_order_release);
}

void allocate_unreserved(Space& s, int64_t bytes, Slot* slot, std::atomic<void*>& address) {
  // One cell of slack, so that one past the end of a storage is nobody's. Sizes nobody can fill do not use up the
  // range.
  const int64_t span = round_up(std::min(bytes, int64_t{1} << 46), 64) + 64;
  const uintptr_t fresh = s.fallback_next.fetch_add(static_cast<uintptr_t>(span), std::memory_order_relaxed);
  address.store(reinterpret_cast<void*>(fresh), std::memory_order_relaxed);
  s.unreserved.fetch_add(1, std::memory_order_relaxed);
  // Without a table entry in a forked child: the lock may be held by a thread that does not exist there.
  if (pjrt::abandoned()) return;
  std::unique_lock lock(s.fallback_mutex);
  s.fallback.emplace(fresh, std::pair{bytes, slot});
}

bool unreserved(uintptr_t address) { return address >= kUnreservedBase && address < kUnreservedEnd; }

Region* region_of(uintptr_t address) {
  if (address >> 47) return nullptr;
  const Leaf* leaf = space().top[address >> kTopShift].load(std::memory_order_acquire);
  if (!leaf) return nullptr;
  return leaf->regions[(address >> kGranuleShift) & (kLeafEntries - 1)].load(std::memory_order_acquire);
}

Slot* find_unreserved(Space& s, uintptr_t address, int64_t* bytes) {
  if (pjrt::abandoned()) return nullptr;
  std::shared_lock lock(s.fallback_mutex);
  auto it = s.fallback.upper_bound(address);
  if (it == s.fallback.begin()) return nullptr;
  --it;
  if (address - it->first >= static_cast<uintptr_t>(std::max<int64_t>(it->second.first, 1))) return nullptr;
  if (bytes) *bytes = it->second.first;
  return it->second.second;
}

}  // namespace

void allocate(int64_t bytes, Slot* slot, std::atomic<void*>& address) {
  Space& s = space();
  bytes = std::max<int64_t>(bytes, 1);
  const int shift = std::max(kMinimumShift, static_cast<int>(std::bit_width(static_cast<uint64_t>(bytes - 1))));
  if (shift - kMinimumShift >= kClasses || pjrt::abandoned()) return allocate_unreserved(s, bytes, slot, address);
  SizeClass& size_class = s.classes[shift - kMinimumShift];
  {
    std::lock_guard lock(size_class.mutex);
    if (Region* region = size_class.current) {
      const int64_t index = take(*region);
      if (index != kNoCell) return hand_out(*region, index, slot, address);
    }
    for (Region* region = size_class.regions; region; region = region->next) {
      const int64_t index = take(*region);
      if (index == kNoCell) continue;
      size_class.current = region;
      return hand_out(*region, index, slot, address);
    }
    if (Region* region = add_region(s, size_class, shift)) {
      size_class.current = region;
      return hand_out(*region, take(*region), slot, address);
    }
  }
  allocate_unreserved(s, bytes, slot, address);
}

void release(void* address) {
  if (pjrt::abandoned()) return;
  Space& s = space();
  const auto value = reinterpret_cast<uintptr_t>(address);
  if (unreserved(value)) {
    std::unique_lock lock(s.fallback_mutex);
    s.fallback_unpinned.wait(lock, [&] { return s.pinned.load(std::memory_order_relaxed) != value; });
    s.fallback.erase(value);
    return;
  }
  Region* region = region_of(value);
  if (!region) return;
  const int64_t index = static_cast<int64_t>((value - region->base) >> region->shift);
  SizeClass& size_class = s.classes[region->shift - kMinimumShift];
  std::unique_lock lock(size_class.mutex);
  if (s.pinned.load(std::memory_order_relaxed) == value) [[unlikely]]
    size_class.unpinned.wait(lock, [&] { return s.pinned.load(std::memory_order_relaxed) != value; });
  const auto link = static_cast<uintptr_t>(region->free_head + 1);
  region->table[index].store(link << 1 | kFreeTag, std::memory_order_release);
  region->free_head = index;
}

Slot* find(const void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  if (const Region* region = region_of(address)) {
    const uintptr_t cell = region->table[(address - region->base) >> region->shift].load(std::memory_order_acquire);
    return cell & kFreeTag ? nullptr : reinterpret_cast<Slot*>(cell);
  }
  return unreserved(address) ? find_unreserved(space(), address, nullptr) : nullptr;
}

bool contains(const void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  return region_of(address) != nullptr || unreserved(address);
}

int64_t capacity(const void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  if (const Region* region = region_of(address)) return int64_t{1} << region->shift;
  int64_t bytes = 0;
  if (unreserved(address)) find_unreserved(space(), address, &bytes);
  return bytes;
}

// Note [Visiting]
// No lock of this unit is held while a visitor runs: it locks slots, and who holds a slot may be creating or destroying
// another. Instead the one address being visited is pinned, and only its own release waits for the visitor.
void for_each(const std::function<void(Slot&, void*)>& visit) {
  if (pjrt::abandoned()) return;
  Space& s = space();
  std::lock_guard one(s.visiting);
  const auto visit_pinned = [&](auto& lock, auto& unpinned, uintptr_t address, Slot* slot) {
    s.pinned.store(address, std::memory_order_relaxed);
    lock.unlock();
    visit(*slot, reinterpret_cast<void*>(address));
    lock.lock();
    s.pinned.store(0, std::memory_order_relaxed);
    unpinned.notify_all();
  };
  for (SizeClass& size_class : s.classes) {
    std::unique_lock lock(size_class.mutex);
    for (Region* region = size_class.regions; region; region = region->next)
      for (int64_t i = 0; i < region->used; ++i) {
        const uintptr_t cell = region->table[i].load(std::memory_order_acquire);
        if (!cell || cell & kFreeTag) continue;
        const uintptr_t address = region->base + (static_cast<uintptr_t>(i) << region->shift);
        visit_pinned(lock, size_class.unpinned, address, reinterpret_cast<Slot*>(cell));
      }
  }
  std::unique_lock lock(s.fallback_mutex);
  for (auto it = s.fallback.begin(); it != s.fallback.end();) {
    const uintptr_t address = it->first;
    visit_pinned(lock, s.fallback_unpinned, address, it->second.second);
    it = s.fallback.upper_bound(address);
  }
}

void lock_all() {
  Space& s = space();
  s.visiting.lock();
  for (SizeClass& size_class : s.classes) size_class.mutex.lock();
  s.fallback_mutex.lock();
}

void unlock_all() {
  Space& s = space();
  s.fallback_mutex.unlock();
  for (SizeClass& size_class : s.classes) size_class.mutex.unlock();
  s.visiting.unlock();
}

Usage usage() {
  Space& s = space();
  return {s.region_count.load(), s.reserved_bytes.load(), s.unreserved.load()};
}

}  // namespace torch_tpu::runtime::address_space
