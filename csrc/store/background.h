// Compiles that nobody waits for, on one thread of their own.
//
// One at a time; none starts while an op waits for a compile of its own, and they take at most a quarter of wall time:
// a compile doubles the latency of what the engine runs beside it (architecture.md, "Life of an op").
#pragma once

#include <functional>

namespace torch_tpu::store::background {

// Runs `work` later, in order. Starts the thread on first use. Nothing after Engine::shutdown() or in a forked child.
// `work` must not take the GIL nor throw.
void enqueue(std::function<void()> work);

// Waits until everything enqueued before has run; then nothing is paced. Must be called without the GIL.
void wait();

// Alive while an op waits for a compile: no background work starts meanwhile.
class ForegroundCompile {
 public:
  ForegroundCompile();
  ~ForegroundCompile();
  ForegroundCompile(const ForegroundCompile&) = delete;
  ForegroundCompile& operator=(const ForegroundCompile&) = delete;
};

}  // namespace torch_tpu::store::background
