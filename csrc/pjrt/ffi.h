// Functions of ours that a program calls: `stablehlo.custom_call @name` with api_version = 4, on the embedded engine.
//
// A handler runs on an engine thread while the program runs. It may not call into PJRT, take the GIL while the caller
// may hold it, or keep pointers. What it returns as an error is the error of the execution.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"
#include "base/shape.h"
#include "pjrt/plugin.h"

namespace torch_tpu::pjrt {

// Dense row-major host memory, 64-byte aligned.
struct FfiBuffer {
  DType dtype = DType::kInvalid;
  Shape shape;
  void* data = nullptr;
  template <typename T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

// An attribute of the custom call's backend_config dictionary. Integers of every width (bool too) are int64, floats
// double.
using FfiAttribute = std::variant<int64_t, double, std::string, std::vector<int64_t>, std::vector<double>>;

struct FfiCall {
  std::vector<FfiBuffer> arguments;  // to be read only
  std::vector<FfiBuffer> results;    // to be written whole
  std::map<std::string, FfiAttribute> attributes;

  // The attribute, or kInvalidArgument naming it when it is absent or of another kind.
  Result<int64_t> integer(const std::string& name) const;
  Result<double> real(const std::string& name) const;
  Result<std::string> text(const std::string& name) const;
  Result<std::vector<int64_t>> integers(const std::string& name) const;
};

using FfiHandler = std::function<Status(const FfiCall&)>;

// True if the plugin can call back.
bool supports_ffi(const Plugin& plugin);

// Makes `name` known to the plugin; a second call with the same name replaces the handler. kNotImplemented when the
// plugin has no such interface or refuses its version; at most 128 names per process.
Status register_ffi(const Plugin& plugin, const std::string& name, FfiHandler handler);

}  // namespace torch_tpu::pjrt
