// Between Python objects and C++ values, for functions of kind METH_FASTCALL. Include this first: it includes Python.h.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>
#include <string>
#include <utility>

#include "base/error.h"

namespace torch_tpu::python {

// Owns one reference.
class Ref {
 public:
  Ref() = default;
  explicit Ref(PyObject* object) : object_(object) {}
  Ref(Ref&& o) noexcept : object_(std::exchange(o.object_, nullptr)) {}
  Ref& operator=(Ref&& o) noexcept {
    std::swap(object_, o.object_);
    return *this;
  }
  ~Ref() { Py_XDECREF(object_); }
  explicit operator bool() const { return object_ != nullptr; }
  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }

 private:
  PyObject* object_ = nullptr;
};

// Releases the GIL for a scope: around everything that may wait, compile or touch the disk.
class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  ~WithoutGil() { PyEval_RestoreThread(state_); }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
};

// Sets the Python exception for an error and returns nullptr.
PyObject* set_error(const Error& error);

// Runs `body` and turns C++ exceptions into Python ones; returns what it returned, or nullptr.
PyObject* guarded(PyObject* (*body)(PyObject* const*, Py_ssize_t), PyObject* const* arguments, Py_ssize_t count);

// Each returns false with a Python exception set (TypeError, OverflowError) when the argument does not fit.
bool expect_count(const char* function, Py_ssize_t count, Py_ssize_t expected);
bool to_int(PyObject* object, int64_t* value);
bool to_double(PyObject* object, double* value);
bool to_string(PyObject* object, std::string* value);
bool to_bool(PyObject* object, bool* value);

Ref from(int64_t value);
Ref from(double value);
Ref from(bool value);
Ref from(const std::string& value);
inline Ref from(const char* value) { return from(std::string(value)); }
inline Ref from(int value) { return from(static_cast<int64_t>(value)); }
inline Ref none() { return Ref(Py_NewRef(Py_None)); }

// dict[key] = value; returns false with an exception set.
bool set_item(const Ref& dict, const char* key, Ref value);

}  // namespace torch_tpu::python
