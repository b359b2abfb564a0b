// Ops captured instead of run: what the kernel asks of the room graph, which is above this one.
#pragma once

#include <optional>
#include <string>

#include "aten/program.h"
#include "fuse/recorder.h"

namespace torch_tpu::aten {

// A capture that is open takes all ops of its thread; nothing is compiled, run or waited for. Every recorder that
// is set with `fuse::Recorder::exchange_capture` is one.
class Capture : public fuse::Recorder {
 public:
  // Of the calling thread, or nullptr.
  static Capture* current() { return static_cast<Capture*>(fuse::Recorder::capture()); }

  // The entry for a call, without a program of its own.
  virtual EntryRef entry(const Call& call) = 0;
  // A value for {seed, offset}, which each run of what is captured draws from the generator.
  virtual runtime::ValueRef random_state(const std::optional<at::Generator>& generator, uint64_t blocks) = 0;
  // The number is the same in every run.
  virtual runtime::ValueRef number(DType dtype, const unsigned char* bytes) = 0;
  // As runtime::watch_flag, at each run.
  virtual void watch_flag(runtime::ValueRef flag, const std::string& op, const char* sentence) = 0;
  // The op cannot be captured: raises.
  [[noreturn]] virtual void refuse(const std::string& op, const std::string& why) = 0;

 protected:
  ~Capture() = default;
};

}  // namespace torch_tpu::aten
