// Errors as values: a code, a sentence, and Result<T>. Exceptions exist only at the PyTorch edge (aten/, python/).
#pragma once

#include <cassert>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace torch_tpu {

enum class ErrorCode {
  kInternal,         // RuntimeError
  kInvalidArgument,  // RuntimeError with the caller's mistake named
  kIndex,            // IndexError
  kType,             // TypeError
  kValue,            // ValueError
  kNotImplemented,   // NotImplementedError
  kOutOfMemory,      // torch.OutOfMemoryError
  kUnavailable,      // no engine, no device
};

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;  // grammar: `op: what was wrong, got <...>, expected <...>`
};

// Holds a T or an Error. `value()` may be called only after `ok()` was seen true.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Error error) : state_(std::move(error)) {}  // NOLINT(google-explicit-constructor)
  bool ok() const { return state_.index() == 0; }
  T& value() {
    assert(ok());
    return std::get<0>(state_);
  }
  const T& value() const {
    assert(ok());
    return std::get<0>(state_);
  }
  T take() {
    assert(ok());
    return std::move(std::get<0>(state_));
  }
  const Error& error() const {
    assert(!ok());
    return std::get<1>(state_);
  }

 private:
  std::variant<T, Error> state_;
};

// Result of something that returns nothing.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Error error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)
  bool ok() const { return !error_.has_value(); }
  const Error& error() const {
    assert(!ok());
    return *error_;
  }

 private:
  std::optional<Error> error_;
};

}  // namespace torch_tpu
