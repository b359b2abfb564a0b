// What one thread has recorded and not run yet.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <vector>

#include "fuse/cutter.h"
#include "fuse/regions.h"
#include "fuse/step.h"

namespace torch_tpu::fuse {

class Region final : public runtime::Debtor {
 public:
  // The calling thread's region while it records: always (set_recording) or while a Recording is open; else nullptr.
  static Region* recording();

  // Records a step on a device. `inputs`: one value per parameter, owed by this region or by nobody. Fills `outputs`
  // with one owed value per result. The caller may hold slot locks.
  void record(const StepRef& step, int device, std::span<const runtime::ValueRef> inputs,
              std::span<runtime::ValueRef> outputs);

  // An upper bound of the memory that the recorded steps will ask for.
  int64_t owed_bytes() const { return bytes_.load(std::memory_order_relaxed); }

  // Runs everything recorded. A failure stays in the values that it left without a buffer.
  void pay() override;
  // The same if it is for this device; the first failure since one was asked for last.
  Status pay_device(int device);
  Status failure();

 private:
  friend class Recording;
  struct Recorded {
    StepRef step;
    size_t inputs;   // position in values_ of its first input
    size_t outputs;  // and of its first result
  };
  struct Wiring;

  void run_all();
  Wiring wire() const;
  Blueprint blueprint(const Wiring& wiring) const;
  bool run_joint(Joint& joint, const Wiring& wiring);
  void run_steps();
  void run_step(const Recorded& recorded);
  void fail(const runtime::ValueRef& value, const Error& error);

  std::mutex mutex_;
  Cutter cutter_;
  int device_ = 0;
  std::atomic<int64_t> bytes_{0};  // of the results recorded
  std::vector<Recorded> steps_;
  std::vector<runtime::ValueRef> values_;
  std::optional<Error> failure_;
};

// Ops of this thread are recorded while one is open; at the end of the outermost one they run.
class Recording {
 public:
  Recording();
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  // Ends the recording: runs what is recorded, unless an outer one is open. The first failure.
  Status finish();

 private:
  bool open_ = true;
};

// Every thread records from now on (fused eager), or only inside of a Recording. Turned off, what other threads have
// recorded stays owed until somebody needs it.
void set_recording(bool always);

}  // namespace torch_tpu::fuse
