// Who takes a thread's ops in place of the device.
#pragma once

#include <span>

#include "fuse/step.h"
#include "runtime/slot.h"

namespace torch_tpu::fuse {

// A region (region.h), which runs them later, or a capture (graph/capture.h), which makes a program of them. Every
// debtor of a value is one.
class Recorder : public runtime::Debtor {
 public:
  // Of the calling thread: its capture, else the region that it records into, else nullptr.
  static Recorder* current();
  // The calling thread's capture, or nullptr.
  static Recorder* capture();
  // The calling thread's ops go to `capture` from now on (nullptr: no longer). Returns the previous one.
  static Recorder* exchange_capture(Recorder* capture);

  // May the ops of a step on the device be recorded? False: there is no memory left for that, they must run.
  virtual bool makes_room(int device, int64_t bytes) = 0;
  // Records a step on a device. `inputs`: one value per parameter, owed by this recorder or by nobody; they are moved
  // from. Fills `outputs` with one owed value per result. The caller may hold slot locks.
  virtual void record(const StepRef& step, int device, std::span<runtime::ValueRef> inputs,
                      std::span<runtime::ValueRef> outputs) = 0;
  // Lets the calling thread go on in this recorder, which owes it a value. False if it must be paid instead.
  virtual bool join() = 0;

 protected:
  ~Recorder() = default;
};

}  // namespace torch_tpu::fuse
