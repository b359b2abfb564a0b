// From a call to its cached entry: the loaded program and everything a hit needs to run and wrap it.
#pragma once

#include <memory>

#include "aten/call.h"
#include "aten/infer.h"
#include "fuse/step.h"

namespace torch_tpu::aten {

// A fresh result: what tensor to make, and which program output holds it.
struct FreshResult {
  OutMeta meta;
  int output = -1;   // -1: zero elements, no buffer
  hlo::Type buffer;  // type of the program output (sizes in storage order)
  int64_t bytes = 0;
};

// A written slot: program output `output` becomes the value of operand `operand`'s slot.
struct WrittenSlot {
  int operand = -1;
  int output = -1;
  hlo::Type buffer;
};

struct Entry {
  fuse::StepRef step;                 // null when there is nothing to run
  c10::SmallVector<int, 8> operands;  // which of Call::operands the program takes, in order
  std::vector<FreshResult> fresh;
  std::vector<WrittenSlot> written;
  int rng_parameter = -1;   // program parameter of the {seed, offset} pair
  uint64_t rng_blocks = 0;  // Philox blocks that the generator advances by
  int flag_output = -1;     // index-check word
  bool falls_back = false;  // the rule does not do these dtypes: run on the CPU
  std::string fallback_reason;
  std::vector<std::vector<int64_t>> resize;  // out= arguments must be resized first, then the call starts again
  bool must_resize = false;
};
using EntryRef = std::shared_ptr<const Entry>;

// Infers, emits and compiles. Raises user errors; returns an entry that falls back when the rule says so. Without
// `compile` the entry's step has its function only.
EntryRef make_entry(const Call& call, bool compile = true);

// The StableHLO text of a call (tests, debugging, ahead-of-time checks); does not compile.
std::string program_text(const Call& call);

}  // namespace torch_tpu::aten
