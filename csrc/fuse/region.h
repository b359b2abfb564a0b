// What one thread has recorded and not run yet.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <vector>

#include "fuse/cutter.h"
#include "fuse/recorder.h"
#include "fuse/regions.h"
#include "fuse/step.h"

namespace torch_tpu::fuse {

class Region final : public Recorder {
 public:
  // The region that the calling thread records into: always (set_recording) or while a Recording is open; else nullptr.
  static Region* recording();
  // An op of the calling thread has run without being recorded: is it time to record again? (Note [Regions that
  // change])
  static void observe(const Step& step);

  // Under memory pressure a step runs as in strict mode, so that out of memory raises at the call.
  bool makes_room(int device, int64_t bytes) override;
  void record(const StepRef& step, int device, std::span<runtime::ValueRef> inputs,
              std::span<runtime::ValueRef> outputs) override;
  // Where that is what the program's next round will do too (Note [One region for a training step]).
  bool join() override;

  bool empty() const { return empty_.load(std::memory_order_acquire); }

  // Runs everything recorded. A failure stays in the values that it left without a buffer.
  void pay() override;
  void pay(Cut cut);
  // The same if it is for this device (or -1).
  void pay_device(int device);
  // The first failure on the device (or any, -1) that nobody was told of, once.
  Status take_failure(int device);
  // Is anything recorded? With `run`, runs it if nothing was added since the last look. Does not wait for the lock.
  bool look(bool run);

  // A thread takes the region over.
  void set_of_backward(bool is) { of_backward_.store(is, std::memory_order_relaxed); }

 private:
  friend class Recording;
  struct Recorded {
    StepRef step;
    size_t inputs;   // position in values_ of its first input
    size_t outputs;  // and of its first result
  };
  struct Wiring;
  using FailureRef = std::shared_ptr<runtime::Failure>;

  void run_all(Cut cut);
  void end_stream(Cut cut);
  bool run_as_one(Cut cut);
  void note_change(const Meeting& meeting);
  Wiring wire() const;
  size_t place_of(const hlo::Source& result) const { return steps_[result.call].outputs + result.index; }
  Blueprint blueprint(const Wiring& wiring, const Returned& returned) const;
  bool run_joint(const Joint& joint, const Wiring& wiring);
  void run_steps();
  void run_step(const Recorded& recorded);
  void fail(const runtime::ValueRef& value, const FailureRef& failure);

  std::mutex mutex_;
  Cutter cutter_;
  int device_ = 0;
  int64_t stream_ = 0;                    // that its thread was in at the first step
  std::atomic<bool> of_backward_{false};  // its thread is autograd's
  std::atomic<bool> empty_{true};         // set once the values are settled
  std::atomic<int64_t> bytes_{0};         // an upper bound of what the recorded steps will ask for
  std::vector<Recorded> steps_;
  std::vector<runtime::ValueRef> values_;
  std::vector<std::pair<int, FailureRef>> failures_;  // by device; those that nobody was told of
  // Since the last cut, with what has run early.
  size_t steps_since_cut_ = 0;
  int64_t bytes_since_cut_ = 0;
  double work_since_cut_ = 0;
  bool torn_ = false;                 // some has run early
  int64_t grown_ = 0, seen_ = -1;     // steps recorded ever; at the last look
  int new_in_a_row_ = 0;              // regions
  std::atomic<bool> resting_{false};  // its thread's ops run without being recorded
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

// The calling thread is about to work in another stream: what it has recorded belongs to the present one.
void run_before_switch_of_stream();

}  // namespace torch_tpu::fuse
