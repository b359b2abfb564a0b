#include "python/convert.h"

#include <c10/util/Exception.h>

namespace torch_tpu::python {
namespace {

// torch.OutOfMemoryError; RuntimeError when torch cannot be imported any more (interpreter exit).
PyObject* out_of_memory_class() {
  Ref torch(PyImport_ImportModule("torch"));
  if (torch) {
    Ref found(PyObject_GetAttrString(torch.get(), "OutOfMemoryError"));
    if (found) return found.release();
  }
  PyErr_Clear();
  return Py_NewRef(PyExc_RuntimeError);
}

PyObject* set_exception(PyObject* type, const std::string& message) {
  PyErr_SetString(type, message.c_str());
  return nullptr;
}

}  // namespace

PyObject* set_error(const Error& error) {
  switch (error.code) {
    case ErrorCode::kIndex:
      return set_exception(PyExc_IndexError, error.message);
    case ErrorCode::kType:
      return set_exception(PyExc_TypeError, error.message);
    case ErrorCode::kValue:
      return set_exception(PyExc_ValueError, error.message);
    case ErrorCode::kNotImplemented:
      return set_exception(PyExc_NotImplementedError, error.message);
    case ErrorCode::kOutOfMemory: {
      Ref type(out_of_memory_class());
      return set_exception(type.get(), error.message);
    }
    default:
      return set_exception(PyExc_RuntimeError, error.message);
  }
}

PyObject* guarded(PyObject* (*body)(PyObject* const*, Py_ssize_t), PyObject* const* arguments, Py_ssize_t count) {
  try {
    return body(arguments, count);
  } catch (const c10::IndexError& e) {
    return set_exception(PyExc_IndexError, e.what_without_backtrace());
  } catch (const c10::ValueError& e) {
    return set_exception(PyExc_ValueError, e.what_without_backtrace());
  } catch (const c10::TypeError& e) {
    return set_exception(PyExc_TypeError, e.what_without_backtrace());
  } catch (const c10::NotImplementedError& e) {
    return set_exception(PyExc_NotImplementedError, e.what_without_backtrace());
  } catch (const c10::OutOfMemoryError& e) {
    return set_error({ErrorCode::kOutOfMemory, e.what_without_backtrace()});
  } catch (const c10::Error& e) {
    return set_exception(PyExc_RuntimeError, e.what_without_backtrace());
  } catch (const std::exception& e) {
    return set_exception(PyExc_RuntimeError, e.what());
  }
}

bool expect_count(const char* function, Py_ssize_t count, Py_ssize_t expected) {
  if (count == expected) return true;
  PyErr_Format(PyExc_TypeError, "%s: expected %zd arguments, got %zd", function, expected, count);
  return false;
}

bool to_int(PyObject* object, int64_t* value) {
  *value = PyLong_AsLongLong(object);
  return !(*value == -1 && PyErr_Occurred());
}

bool to_double(PyObject* object, double* value) {
  *value = PyFloat_AsDouble(object);
  return !(*value == -1.0 && PyErr_Occurred());
}

bool to_string(PyObject* object, std::string* value) {
  if (!PyUnicode_Check(object)) {
    PyErr_Format(PyExc_TypeError, "expected a str, got <%.100s>", Py_TYPE(object)->tp_name);
    return false;
  }
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(object, &size);
  if (text == nullptr) return false;
  value->assign(text, static_cast<size_t>(size));
  return true;
}

bool to_bool(PyObject* object, bool* value) {
  const int truth = PyObject_IsTrue(object);
  *value = truth == 1;
  return truth >= 0;
}

Ref from(int64_t value) { return Ref(PyLong_FromLongLong(value)); }
Ref from(double value) { return Ref(PyFloat_FromDouble(value)); }
Ref from(bool value) { return Ref(PyBool_FromLong(value)); }
Ref from(const std::string& value) {
  return Ref(PyUnicode_DecodeUTF8(value.data(), static_cast<Py_ssize_t>(value.size()), "replace"));
}

bool set_item(const Ref& dict, const char* key, Ref value) {
  return dict && value && PyDict_SetItemString(dict.get(), key, value.get()) == 0;
}

}  // namespace torch_tpu::python
