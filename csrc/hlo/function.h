// A program's function apart from its module, and one module out of several functions.
//
// The engine inlines the calls, so a composed module is compiled as if its parts had been written in one piece; equal
// parts are written once.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "hlo/type.h"

namespace torch_tpu::hlo {

struct Function {
  std::string text;  // from the parameter list on: "(%arg0: tensor<4xf32>) -> tensor<4xf32> { ... }"; no attributes
  std::vector<Type> parameters, results;
};
using FunctionRef = std::shared_ptr<const Function>;

// Where a value comes from: result `index` of call `call`, or parameter `index` of the composition (call < 0).
struct Source {
  int call = -1;
  int index = 0;
  bool operator==(const Source&) const = default;
};

struct Composition {
  struct Call {
    FunctionRef function;
    std::vector<Source> operands;  // one per parameter of the function; calls before this one only
  };
  std::vector<Type> parameters;
  std::vector<int> donated_to;  // per parameter: the result it may share memory with (tf.aliasing_output), or -1
  std::vector<Call> calls;
  std::vector<Source> results;

  // Text of the whole module.
  std::string text() const;
};

}  // namespace torch_tpu::hlo
