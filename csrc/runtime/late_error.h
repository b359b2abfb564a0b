// Errors that are known only after a program has run: an index out of range, an operand's value that is not allowed.
//
// A program of a row that checks indices returns one extra word (i32, 0 = fine). It is kept here until the next host
// read or synchronisation looks at it.
#pragma once

#include <string>

#include "base/error.h"
#include "runtime/slot.h"

namespace torch_tpu::runtime {

// `site` is the user's line ("model.py:12") or empty. `sentence` (static) says what a set flag means; null: an index
// out of range.
void watch_flag(ValueRef flag, std::string op, std::string site, const char* sentence = nullptr);
// Looks at the flags of a device whose programs are complete; with `wait`, at all of them. The first set flag gives
// kIndex: `aten::index.Tensor: index out of range (submitted at model.py:12)`, or kInvalidArgument with its sentence.
// Reported flags are forgotten, so an error is raised once. Costs one relaxed load when none is pending.
Status check_flags(int device, bool wait);

}  // namespace torch_tpu::runtime
