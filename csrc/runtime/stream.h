// Streams, events, completion tokens.
//
// PJRT orders work by data, so a stream is a label: the set of submissions made under it that are not known to be
// complete. Every submission that is not known to run inline leaves a token here, whether or not its outputs live.
#pragma once

#include <cstdint>
#include <memory>

#include "pjrt/client.h"

namespace torch_tpu::runtime {

struct Stream {
  int device = 0;
  int64_t id = 0;  // 0 is the default stream
  bool operator==(const Stream&) const = default;
};

// The calling thread's current device and, per device, current stream.
int current_device();
void set_current_device(int device);
Stream current_stream(int device);
// Returns the previous one.
Stream exchange_stream(Stream stream);
Stream new_stream(int device, int priority = 0);

// Must the submission about to be made leave a token? Always, unless its program runs inside the submitting call
// (`runs_inline`) and nothing it could wait for is unfinished: the engine queues even the smallest program whose inputs
// are not ready yet. Costs one relaxed load when the device is idle.
bool needs_token(int device, bool runs_inline);
// Leaves a token for work submitted now on the device's current stream.
void leave_token(int device, pjrt::Event completion);
// Destroys the handle of a buffer that work submitted just now consumes (donation), without waiting for that work.
void bury(int device, pjrt::Buffer consumed);
// Asking, waiting and recording events first run what threads have recorded (hooks::run_recorded).
bool query(Stream stream);
Status synchronize(Stream stream);
Status synchronize_device(int device);
// Waits for what has been submitted, only that: for callers that may be in the middle of submitting.
Status wait_for_submissions(int device);
// Number of tokens not yet seen complete (tests, statistics).
int64_t outstanding(int device);

// What torch.Event is made of. record() captures the stream's outstanding tokens.
class EventRecord {
 public:
  void record(Stream stream, bool timing);
  bool recorded() const { return state_ != nullptr; }
  bool query() const;
  Status synchronize() const;
  // Makes later waits for `stream` (query, synchronize, records) also wait for this event. Nothing if not recorded.
  void block(Stream stream) const;
  // Milliseconds from this event's completion to the other's. Fails if either lacks timing or is not complete.
  Result<double> elapsed_to(const EventRecord& end) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace torch_tpu::runtime
