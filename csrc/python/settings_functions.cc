#include "python/functions.h"

#include "aten/index_check.h"
#include "aten/modes.h"
#include "aten/op_cache.h"
#include "aten/sync_debug.h"
#include "base/env.h"
#include "store/compile_options.h"

namespace torch_tpu::python {
namespace {

constexpr const char* kFallbackNames[] = {"warn", "quiet", "error"};
constexpr const char* kSyncNames[] = {"default", "warn", "error"};
constexpr const char* kEagerNames[] = {"strict", "fused", "debug"};
constexpr const char* kIndexNames[] = {"off", "late", "call"};

// The position of the argument among the names; -1 with ValueError set.
template <size_t N>
int position(const char* function, PyObject* const* arguments, Py_ssize_t count, const char* const (&names)[N]) {
  std::string given;
  if (!expect_count(function, count, 1) || !to_string(arguments[0], &given)) return -1;
  std::string list;
  for (size_t i = 0; i < N; ++i) {
    if (given == names[i]) return static_cast<int>(i);
    list += (i ? ", '" : "'") + std::string(names[i]) + "'";
  }
  PyErr_Format(PyExc_ValueError, "torch.tpu.%s: unknown mode, got <%s>, expected one of %s", function, given.c_str(),
               list.c_str());
  return -1;
}

PyObject* eager_mode(PyObject* const*, Py_ssize_t) {
  return from(kEagerNames[static_cast<int>(aten::eager_mode())]).release();
}
PyObject* set_eager_mode(PyObject* const* arguments, Py_ssize_t count) {
  const int i = position("eager_mode", arguments, count, kEagerNames);
  if (i < 0) return nullptr;
  {
    WithoutGil released;  // leaving the fused mode runs what is recorded
    aten::set_eager_mode(static_cast<aten::EagerMode>(i));
  }
  return none().release();
}

PyObject* fallback_policy(PyObject* const*, Py_ssize_t) {
  return from(kFallbackNames[static_cast<int>(aten::fallback_mode())]).release();
}
PyObject* set_fallback_policy(PyObject* const* arguments, Py_ssize_t count) {
  const int i = position("fallback", arguments, count, kFallbackNames);
  if (i < 0) return nullptr;
  aten::set_fallback_mode(static_cast<aten::FallbackMode>(i));
  return none().release();
}

PyObject* sync_debug_mode(PyObject* const*, Py_ssize_t) {
  return from(kSyncNames[static_cast<int>(aten::sync_debug_mode())]).release();
}
PyObject* set_sync_debug_mode(PyObject* const* arguments, Py_ssize_t count) {
  const int i = position("set_sync_debug_mode", arguments, count, kSyncNames);
  if (i < 0) return nullptr;
  aten::set_sync_debug_mode(static_cast<aten::SyncDebugMode>(i));
  return none().release();
}

PyObject* index_check(PyObject* const*, Py_ssize_t) {
  return from(kIndexNames[static_cast<int>(aten::index_check_setting())]).release();
}
PyObject* set_index_check(PyObject* const* arguments, Py_ssize_t count) {
  const int i = position("index_check", arguments, count, kIndexNames);
  if (i < 0) return nullptr;
  aten::set_index_check(static_cast<aten::IndexCheck>(i));
  return none().release();
}

PyObject* allow_excess_precision(PyObject* const*, Py_ssize_t) {
  return from(store::allow_excess_precision()).release();
}
PyObject* set_allow_excess_precision(PyObject* const* arguments, Py_ssize_t count) {
  bool on = false;
  if (!expect_count("set_allow_excess_precision", count, 1) || !to_bool(arguments[0], &on)) return nullptr;
  if (on != store::allow_excess_precision()) {
    store::set_allow_excess_precision(on);
    aten::OpCache::instance().clear();  // its entries hold programs of the other kind
  }
  return none().release();
}

// [(name, type, default, stage, documentation)].
PyObject* environment_variables(PyObject* const*, Py_ssize_t) {
  Ref list(PyList_New(0));
  for (const env::Variable& v : env::variables()) {
    Ref row(Py_BuildValue("(sssss)", v.name, v.type, v.fallback, v.stage, v.doc));
    if (!list || !row || PyList_Append(list.get(), row.get()) != 0) return nullptr;
  }
  return list.release();
}

// Raises ValueError for the first variable that is set to something that does not parse.
PyObject* check_environment(PyObject* const*, Py_ssize_t) {
  for (const env::Variable& v : env::variables()) {
    const std::string type = v.type;
    Status status;
    const auto note = [&](const auto& result) {
      if (!result.ok()) status = result.error();
    };
    if (type == "flag")
      note(env::flag(v.name));
    else if (type == "int")
      note(env::integer(v.name, INT64_MIN, INT64_MAX));
    else if (type == "bytes")
      note(env::bytes(v.name));
    else if (type.starts_with("one of"))
      note(env::one_of(v.name));
    if (!status.ok()) return set_error(status.error());
  }
  return none().release();
}

}  // namespace

PyMethodDef settings_functions[] = {
    function<eager_mode>("eager_mode", "'strict', 'fused' or 'debug'."),
    function<set_eager_mode>("set_eager_mode", "('strict' | 'fused' | 'debug')"),
    function<fallback_policy>("fallback_policy", "'warn', 'quiet' or 'error'."),
    function<set_fallback_policy>("set_fallback_policy", "('warn' | 'quiet' | 'error')"),
    function<sync_debug_mode>("sync_debug_mode", "'default', 'warn' or 'error'."),
    function<set_sync_debug_mode>("set_sync_debug_mode", "('default' | 'warn' | 'error')"),
    function<index_check>("index_check", "'off', 'late' or 'call'."),
    function<set_index_check>("set_index_check", "('off' | 'late' | 'call')"),
    function<allow_excess_precision>("allow_excess_precision",
                                     "May the compiler elide casts to a narrower dtype and back?"),
    function<set_allow_excess_precision>("set_allow_excess_precision", "(on)"),
    function<environment_variables>("environment_variables", "[(name, type, default, stage, documentation)]"),
    function<check_environment>("check_environment", "Raises ValueError for the first variable that does not parse."),
    kEnd};

}  // namespace torch_tpu::python
