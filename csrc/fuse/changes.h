// What differs between regions of the same ops: shapes, values that are part of a program, the wiring.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "fuse/step.h"

namespace torch_tpu::fuse {

// "op 3 of 12, aten::neg: operand 1 is tensor<4xf32> here, tensor<5xf32> before"
std::string difference(std::span<const StepRef> now, std::span<const StepRef> before);

// Notices sequences of ops (by name) that keep coming in another form. Not for several threads at once.
class Changes {
 public:
  // A region of these steps is seen for the first time. What makes it another one than the last of the same ops; empty
  // for the first. Logs one line (level info) once a sequence has come in kMany forms.
  std::string note(std::span<const StepRef> steps);

  static constexpr int kMany = 16;

 private:
  struct Sequence {
    std::vector<StepRef> last;
    int forms = 0;
  };
  std::unordered_map<uint64_t, Sequence> sequences_;  // by the names' hash
};

}  // namespace torch_tpu::fuse
