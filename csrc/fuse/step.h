// One op's program as something that can be recorded, and the running of one program.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "hlo/function.h"
#include "runtime/slot.h"
#include "store/program_store.h"

namespace torch_tpu::fuse {

struct Donation {
  int parameter;  // may give its memory
  int output;     // to this result
};

struct Step {
  uint64_t id = 0;             // no two steps of a process have the same
  const char* name = nullptr;  // "aten::add_.Tensor"; lives for ever
  std::string site;            // the user's line that called it first: "model.py:12", or empty
  store::ProgramRef program;
  hlo::FunctionRef function;
  std::vector<Donation> donations;
  int64_t bytes = 0;     // of results and temporaries
  int64_t elements = 0;  // of the largest value
};
using StepRef = std::shared_ptr<const Step>;

uint64_t next_step_id();

struct Launch {
  const char* name;
  const store::ProgramRef& program;
  int device = 0;
  int64_t bytes = 0;  // for the memory limit: results that take new memory, and temporaries
  std::span<PJRT_Buffer* const> arguments;
  std::span<const int64_t> kept;  // arguments that the program may overwrite but this call must not
};
// Submits: admission under the memory limit, one retry when the device is out of memory, the completion token. Fills
// one output per result; the caller owns them. The caller may hold slot locks.
Status launch(const Launch& launch, std::span<PJRT_Buffer*> outputs);

}  // namespace torch_tpu::fuse
