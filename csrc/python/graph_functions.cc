// torch_tpu._C.graph: the calls of torch_tpu/compile. See csrc/graph/README.md.
#include "python/functions.h"

#include <torch/csrc/autograd/python_variable.h>

#include "graph/graph.h"

namespace torch_tpu::python {
namespace {

// A graph, the Python function that runs it op by op, and what its outputs are beside tensors.
struct Compiled {
  Compiled(std::string name, graph::CompilerOptions options) : graph(std::move(name), std::move(options)) {}
  graph::Graph graph;
  Ref replay;  // (list of arguments) -> list of outputs
  // By variant: for each output the number of its tensor, or -1 and the object itself (None, a number).
  struct Output {
    int tensor = -1;
    Ref object;
  };
  std::unordered_map<const graph::Variant*, std::vector<Output>> outputs;  // guarded by the GIL
};

constexpr const char* kCapsule = "torch_tpu.graph";

Compiled* compiled_of(PyObject* object) { return static_cast<Compiled*>(PyCapsule_GetPointer(object, kCapsule)); }

bool to_arguments(PyObject* list, std::vector<c10::IValue>* arguments) {
  if (!PyList_Check(list)) {
    PyErr_SetString(PyExc_TypeError, "graph_call: expected a list of arguments");
    return false;
  }
  const Py_ssize_t count = PyList_GET_SIZE(list);
  arguments->reserve(static_cast<size_t>(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* item = PyList_GET_ITEM(list, i);
    if (THPVariable_Check(item)) {
      arguments->emplace_back(THPVariable_Unpack(item));
    } else if (item == Py_None) {
      arguments->emplace_back();
    } else if (PyBool_Check(item)) {
      arguments->emplace_back(item == Py_True);
    } else if (PyFloat_Check(item)) {
      arguments->emplace_back(PyFloat_AS_DOUBLE(item));
    } else {
      int64_t number;
      if (!to_int(item, &number)) return false;
      arguments->emplace_back(number);
    }
  }
  return true;
}

Ref to_python(const c10::IValue& value) {
  if (value.isTensor()) return Ref(THPVariable_Wrap(value.toTensor()));
  if (value.isBool()) return from(value.toBool());
  if (value.isInt()) return from(value.toInt());
  if (value.isDouble()) return from(value.toDouble());
  return none();
}

class Open {
 public:
  explicit Open(graph::Capture& capture) : previous_(fuse::Recorder::exchange_capture(&capture)) {}
  ~Open() { fuse::Recorder::exchange_capture(previous_); }
  Open(const Open&) = delete;
  Open& operator=(const Open&) = delete;

 private:
  fuse::Recorder* previous_;
};

// Calls the replay on stand-ins. Null with an exception set; NotImplementedError has the op that cannot be captured.
std::shared_ptr<const graph::Variant> capture(Compiled& compiled, const graph::Gathered& gathered) {
  graph::Capture capture(gathered.device);
  std::vector<at::Tensor> slots, tensors;
  std::vector<Compiled::Output> outputs;
  std::shared_ptr<graph::Variant> variant;
  {
    Open open(capture);
    Ref list(PyList_New(0));
    for (const c10::IValue& argument : graph::stand_ins(gathered, capture, slots)) {
      Ref item = to_python(argument);
      if (!item || PyList_Append(list.get(), item.get()) != 0) return nullptr;
    }
    Ref result(PyObject_CallOneArg(compiled.replay.get(), list.get()));
    if (!result) return nullptr;
    Ref sequence(PySequence_Fast(result.get(), "a graph returns a list of outputs"));
    if (!sequence) return nullptr;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(sequence.get()); ++i) {
      PyObject* item = PySequence_Fast_GET_ITEM(sequence.get(), i);
      Compiled::Output output;
      if (THPVariable_Check(item) && THPVariable_Unpack(item).is_privateuseone()) {
        output.tensor = static_cast<int>(tensors.size());
        tensors.push_back(THPVariable_Unpack(item));
      } else {
        output.object = Ref(Py_NewRef(item));
      }
      outputs.push_back(std::move(output));
    }
  }
  {
    WithoutGil released;
    variant = capture.finish(compiled.graph.name(), compiled.graph.options(), tensors, slots);
  }
  auto kept = compiled.graph.add(gathered.key, variant);
  compiled.outputs.try_emplace(kept.get(), std::move(outputs));
  return kept;
}

bool to_options(PyObject* dict, graph::CompilerOptions* options) {
  Py_ssize_t position = 0;
  PyObject *key, *value;
  while (PyDict_Next(dict, &position, &key, &value)) {
    std::string name, text;
    int64_t number;
    if (!to_string(key, &name)) return false;
    if (PyBool_Check(value)) {
      (*options)[name] = value == Py_True;
    } else if (PyFloat_Check(value)) {
      (*options)[name] = PyFloat_AS_DOUBLE(value);
    } else if (PyLong_Check(value)) {
      if (!to_int(value, &number)) return false;
      (*options)[name] = number;
    } else {
      if (!to_string(value, &text)) return false;
      (*options)[name] = std::move(text);
    }
  }
  return true;
}

PyObject* graph_new(PyObject* const* arguments, Py_ssize_t count) {
  std::string name;
  graph::CompilerOptions options;
  if (!expect_count("graph_new", count, 3) || !to_string(arguments[0], &name)) return nullptr;
  if (!PyDict_Check(arguments[2])) {
    PyErr_SetString(PyExc_TypeError, "graph_new: expected a dict of compiler options");
    return nullptr;
  }
  if (!to_options(arguments[2], &options)) return nullptr;
  auto compiled = std::make_unique<Compiled>(name, std::move(options));
  compiled->replay = Ref(Py_NewRef(arguments[1]));
  return PyCapsule_New(compiled.release(), kCapsule, [](PyObject* capsule) { delete compiled_of(capsule); });
}

PyObject* graph_call(PyObject* const* arguments, Py_ssize_t count) {
  if (!expect_count("graph_call", count, 2)) return nullptr;
  Compiled* compiled = compiled_of(arguments[0]);
  std::vector<c10::IValue> values;
  if (!compiled || !to_arguments(arguments[1], &values)) return nullptr;
  for (int tries = 0; tries < 1000; ++tries) {
    graph::Gathered gathered;
    std::shared_ptr<const graph::Variant> variant;
    {
      WithoutGil released;
      gathered = graph::gather(values);
      variant = compiled->graph.find(gathered.key);
    }
    if (!variant) variant = capture(*compiled, gathered);
    if (!variant) return nullptr;
    std::optional<std::vector<at::Tensor>> tensors;
    {
      WithoutGil released;
      tensors = graph::run(compiled->graph, *variant, gathered);
    }
    if (!tensors) continue;
    const auto& outputs = compiled->outputs.at(variant.get());
    Ref list(PyList_New(static_cast<Py_ssize_t>(outputs.size())));
    if (!list) return nullptr;
    for (size_t i = 0; i < outputs.size(); ++i) {
      PyObject* item = outputs[i].tensor >= 0 ? THPVariable_Wrap(std::move((*tensors)[outputs[i].tensor]))
                                              : Py_NewRef(outputs[i].object.get());
      if (item == nullptr) return nullptr;
      PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), item);
    }
    // The caller's list is given up (a boxed call), so that what only the graph needed is free.
    if (PyList_SetSlice(arguments[1], 0, PyList_GET_SIZE(arguments[1]), nullptr) != 0) return nullptr;
    return list.release();
  }
  PyErr_SetString(PyExc_RuntimeError, "a compiled graph: another thread kept changing an argument's memory");
  return nullptr;
}

PyObject* graph_variants(PyObject* const* arguments, Py_ssize_t count) {
  if (!expect_count("graph_variants", count, 1)) return nullptr;
  Compiled* compiled = compiled_of(arguments[0]);
  return compiled ? from(static_cast<int64_t>(compiled->graph.variants())).release() : nullptr;
}

}  // namespace

PyMethodDef graph_functions[] = {
    function<graph_new>(
        "graph_new",
        "graph_new(name, replay, options) -> graph. replay(arguments) runs it op by op, returns a list; "
        "options of XLA by name."),
    function<graph_call>("graph_call",
                         "graph_call(graph, arguments) -> list of outputs. Empties the list of arguments. Compiles "
                         "when their layout is new; NotImplementedError if an op cannot be captured."),
    function<graph_variants>("graph_variants", "graph_variants(graph) -> number of programs."), kEnd};

}  // namespace torch_tpu::python
