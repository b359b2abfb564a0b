// torch.tpu.memory._record_memory_history: which storages came and went, and from where. Off unless asked for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace torch_tpu::aten {

struct TraceFrame {
  std::string file, function;
  int line = 0;
};

struct TraceEntry {
  bool allocated = false;  // false: freed
  int device = 0;
  int64_t address = 0, bytes = 0;
  int64_t microseconds = 0;  // since the epoch
  std::vector<TraceFrame> frames;
};

// Keeps the last `limit` entries from now on (0: stops and forgets), with up to `frames` Python frames for each.
void set_memory_trace(int64_t limit, int64_t frames);
std::vector<TraceEntry> memory_trace();

// Called for every new and dying storage; one relaxed load when off. The first takes the GIL when on: hold no lock.
void trace_allocation(int device, const void* address, int64_t bytes);
void trace_free(int device, const void* address, int64_t bytes);

// Where stacks come from; set by python/.
using StackSource = std::vector<TraceFrame> (*)(int64_t limit);
void set_stack_source(StackSource source);

}  // namespace torch_tpu::aten
