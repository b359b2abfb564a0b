// Running totals of the process, read by torch.tpu.stats().
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>

namespace torch_tpu::runtime {

struct Totals {
  std::atomic<int64_t> ops{0};                  // op calls that reached a kernel of ours
  std::atomic<int64_t> executions{0};           // programs launched
  std::atomic<int64_t> joint_executions{0};     // of these, regions of several ops that ran as one
  std::atomic<int64_t> compiles{0};             // programs compiled by an engine (not served from disk)
  std::atomic<int64_t> background_compiles{0};  // compiled while nobody waited: not part of `compiles`
  std::atomic<int64_t> disk_hits{0};            // programs loaded from the disk store
  std::atomic<int64_t> memory_hits{0};          // op calls served by a program in memory
  std::atomic<int64_t> evictions{0};
  std::atomic<int64_t> fallbacks{0};  // op calls that ran on the CPU
  std::atomic<int64_t> host_to_device{0}, host_to_device_bytes{0};
  std::atomic<int64_t> device_to_host{0}, device_to_host_bytes{0};
  std::atomic<int64_t> donations{0};
  std::atomic<int64_t> view_gathers{0};  // views read or written by gather / scatter
};
Totals& totals();

void count_fallback(const std::string& op);
std::map<std::string, int64_t> fallbacks_by_op();

}  // namespace torch_tpu::runtime
