#include "graph/capture.h"

#include <algorithm>
#include <complex>
#include <cstring>
#include <unordered_set>

#include "aten/device.h"
#include "aten/scalar_cache.h"
#include "aten/storage.h"
#include "hlo/builder.h"
#include "runtime/hooks.h"

namespace torch_tpu::graph {
namespace {

// A function without parameters that returns the number; null for dtypes that are no kind of Python number.
hlo::FunctionRef number_function(DType dtype, const unsigned char* bytes) {
  hlo::Builder b;
  const hlo::Type type{dtype, {}};
  hlo::Value value;
  const auto as = [&]<typename T>(T) {
    T number;
    std::memcpy(&number, bytes, sizeof number);
    return number;
  };
  switch (dtype) {
    case DType::kF64:
      value = b.constant(type, as(double()));
      break;
    case DType::kF32:
      value = b.constant(type, as(float()));
      break;
    case DType::kI64:
      value = b.constant_int(type, as(int64_t()));
      break;
    case DType::kBool:
      value = b.constant_int(type, bytes[0] != 0);
      break;
    case DType::kC128:
      value = b.constant_complex(type, as(std::complex<double>()));
      break;
    default:
      return nullptr;
  }
  auto function = std::make_shared<hlo::Function>();
  if (!b.finish({value}, "main", function.get()).ok()) return nullptr;
  return function;
}

runtime::ValueRef value_in(const at::Tensor& tensor) { return aten::slot_of(tensor)->value; }

}  // namespace

Capture::~Capture() {
  const auto failure = std::make_shared<runtime::Failure>(
      Error{ErrorCode::kInternal, "this tensor has no value: it was made while torch.compile captured a graph"});
  for (const runtime::ValueRef& value : owed_) value->fail(failure);
}

runtime::ValueRef Capture::owed(hlo::Type type) {
  const int64_t bytes = element_count(type.shape) * byte_size(type.dtype);
  owed_.emplace_back(new runtime::BufferValue(*this, std::move(type), std::max(device_, 0), bytes));
  return owed_.back();
}

runtime::ValueRef Capture::owed_parameter(hlo::Type type, Parameter parameter) {
  runtime::ValueRef value = owed(std::move(type));
  parameters_.emplace(value.get(), std::move(parameter));
  return value;
}

at::Tensor Capture::slot_argument(int index, int64_t bytes, const hlo::Type* value) {
  at::Tensor tensor = aten::empty_strided_on(std::max(device_, 0), {bytes}, {1}, at::kByte);
  if (value != nullptr) aten::slot_of(tensor)->value = owed_parameter(*value, {Parameter::Kind::kSlot, index, {}});
  return tensor;
}

at::Tensor Capture::number_argument(int index, at::ScalarType dtype) {
  at::Tensor tensor = aten::empty_strided_on(std::max(device_, 0), {}, {}, dtype);
  aten::slot_of(tensor)->value = owed_parameter({aten::to_dtype(dtype), {}}, {Parameter::Kind::kHostNumber, index, {}});
  return tensor;
}

void Capture::pay() { refuse("", "it needs a value on the host"); }

void Capture::record(const fuse::StepRef& step, int device, std::span<runtime::ValueRef> inputs,
                     std::span<runtime::ValueRef> outputs) {
  if (device_ < 0) device_ = device;
  if (device != device_) refuse(step->name, "the graph uses several devices");
  Recorded recorded{step->function, step->donations, {}, {}};
  for (runtime::ValueRef& input : inputs) recorded.inputs.push_back(std::move(input));
  for (size_t k = 0; k < outputs.size(); ++k) {
    outputs[k] = owed(step->function->results[k]);
    outputs[k]->producer = step->name;
    recorded.outputs.push_back(outputs[k]);
  }
  steps_.push_back(std::move(recorded));
}

aten::EntryRef Capture::entry(const aten::Call& call) {
  aten::EntryRef& entry = entries_[{call.key.begin(), call.key.end()}];
  if (!entry) entry = aten::make_entry(call, /*compile=*/false);
  return entry;
}

runtime::ValueRef Capture::random_state(const std::optional<at::Generator>& generator, uint64_t blocks) {
  random_states_.push_back({generator, blocks});
  return owed_parameter({DType::kU64, {2}},
                        {Parameter::Kind::kRandomState, static_cast<int>(random_states_.size()) - 1, {}});
}

runtime::ValueRef Capture::number(DType dtype, const unsigned char* bytes) {
  runtime::ValueRef& value = numbers_[{dtype, std::string(bytes, bytes + byte_size(dtype))}];
  if (value) return value;
  hlo::FunctionRef function = number_function(dtype, bytes);
  if (!function) return value = aten::device_scalar(std::max(device_, 0), dtype, bytes);
  value = owed({dtype, {}});
  steps_.push_back({std::move(function), {}, {}, {value}});
  return value;
}

void Capture::watch_flag(runtime::ValueRef flag, const std::string& op, const char* sentence) {
  flags_.push_back({std::move(flag), op, runtime::hooks::call_site(), sentence});
}

void Capture::refuse(const std::string& op, const std::string& why) {
  if (refused_why_.empty()) {
    refused_op_ = op;
    refused_why_ = why;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(false, op.empty() ? "" : op + ": ", why, ", so it cannot be part of a compiled graph");
}

// From values to the module's parameters and results.
class Capture::Composer {
 public:
  Composer(const Capture& capture, Variant& variant) : capture_(capture), variant_(variant) {
    for (size_t s = 0; s < capture.steps_.size(); ++s)
      for (size_t k = 0; k < capture.steps_[s].outputs.size(); ++k)
        made_by_[capture.steps_[s].outputs[k].get()] = {static_cast<int>(s), static_cast<int>(k)};
  }

  Origin origin(const runtime::ValueRef& value) {
    if (!value) return {};
    if (auto made = made_by_.find(value.get()); made != made_by_.end())
      return {Origin::Kind::kResult, result(value, made->second), {}};
    auto parameter = capture_.parameters_.find(value.get());
    if (parameter == capture_.parameters_.end()) return {Origin::Kind::kConstant, -1, value};
    switch (parameter->second.kind) {
      case Parameter::Kind::kSlot:
        return {Origin::Kind::kArgumentSlot, parameter->second.index, {}};
      case Parameter::Kind::kHostNumber:
        return {Origin::Kind::kHostNumber, parameter->second.index, {}};
      default:
        TORCH_INTERNAL_ASSERT(false, "a random state is no tensor's value");
    }
  }

  // Where the wanted results are: the steps that they need, in order, as one module.
  hlo::Composition compose() {
    mark_needed();
    hlo::Composition c;
    std::vector<int> call_of(capture_.steps_.size(), -1);
    for (size_t s = 0; s < capture_.steps_.size(); ++s) {
      if (!needed_[s]) continue;
      const Recorded& step = capture_.steps_[s];
      hlo::Composition::Call call{step.function, {}};
      for (const runtime::ValueRef& input : step.inputs) call.operands.push_back(source(input, call_of, c));
      call_of[s] = static_cast<int>(c.calls.size());
      c.calls.push_back(std::move(call));
    }
    for (const Made& made : results_) c.results.push_back({call_of[made.step], made.output});
    c.donated_to.assign(c.parameters.size(), -1);
    for (size_t p = 0; p < variant_.parameters.size(); ++p) donate(p, c);
    return c;
  }

  const std::vector<hlo::Type>& result_types() const { return result_types_; }

 private:
  struct Made {
    int step, output;
  };

  int result(const runtime::ValueRef& value, Made made) {
    auto [place, first] = result_of_.try_emplace(value.get(), static_cast<int>(results_.size()));
    if (first) {
      results_.push_back(made);
      result_types_.push_back(value->type);
    }
    return place->second;
  }

  void mark_needed() {
    needed_.assign(capture_.steps_.size(), false);
    for (const Made& made : results_) needed_[made.step] = true;
    for (size_t s = capture_.steps_.size(); s-- > 0;) {
      if (!needed_[s]) continue;
      for (const runtime::ValueRef& input : capture_.steps_[s].inputs)
        if (auto made = made_by_.find(input.get()); made != made_by_.end()) needed_[made->second.step] = true;
    }
  }

  hlo::Source source(const runtime::ValueRef& value, const std::vector<int>& call_of, hlo::Composition& c) {
    if (auto made = made_by_.find(value.get()); made != made_by_.end())
      return {call_of[made->second.step], made->second.output};
    auto [place, first] = parameter_of_.try_emplace(value.get(), static_cast<int>(c.parameters.size()));
    if (first) {
      c.parameters.push_back(value->type);
      auto known = capture_.parameters_.find(value.get());
      variant_.parameters.push_back(
          known != capture_.parameters_.end() ? known->second : Parameter{Parameter::Kind::kConstant, -1, value});
    }
    return {-1, place->second};
  }

  // A slot's parameter may give its memory to the slot's new value.
  void donate(size_t p, hlo::Composition& c) {
    if (variant_.parameters[p].kind != Parameter::Kind::kSlot) return;
    for (const Write& write : variant_.writes) {
      if (write.argument_slot != variant_.parameters[p].index || write.origin.kind != Origin::Kind::kResult) continue;
      const int result = write.origin.index;
      const bool taken = std::find(c.donated_to.begin(), c.donated_to.end(), result) != c.donated_to.end();
      if (taken || !(result_types_[result] == c.parameters[p])) continue;
      c.donated_to[p] = result;
      variant_.donated.push_back(static_cast<int>(p));
    }
  }

  const Capture& capture_;
  Variant& variant_;
  std::unordered_map<const runtime::BufferValue*, Made> made_by_;
  std::unordered_map<const runtime::BufferValue*, int> result_of_, parameter_of_;
  std::vector<Made> results_;
  std::vector<hlo::Type> result_types_;
  std::vector<bool> needed_;
};

std::shared_ptr<Variant> Capture::finish(const std::string& name, const CompilerOptions& options,
                                         const std::vector<at::Tensor>& outputs,
                                         const std::vector<at::Tensor>& arguments) {
  auto variant = std::make_shared<Variant>();
  Composer composer(*this, *variant);
  std::unordered_map<const runtime::Slot*, int> argument_slots, output_slots;
  for (size_t k = 0; k < arguments.size(); ++k) {
    const runtime::Slot* slot = aten::slot_of(arguments[k]);
    argument_slots[slot] = static_cast<int>(k);
    Origin origin = composer.origin(slot->value);
    const bool unchanged = origin.kind == Origin::Kind::kNothing ||
                           (origin.kind == Origin::Kind::kArgumentSlot && origin.index == static_cast<int>(k));
    if (!unchanged) variant->writes.push_back({static_cast<int>(k), std::move(origin)});
  }
  for (const at::Tensor& tensor : outputs) {
    const runtime::Slot* slot = aten::slot_of(tensor);
    auto [place, first] = output_slots.try_emplace(slot, static_cast<int>(variant->slots.size()));
    if (first) {
      auto argument = argument_slots.find(slot);
      if (argument != argument_slots.end())
        variant->slots.push_back({argument->second, slot->bytes(), {}});
      else
        variant->slots.push_back({-1, slot->bytes(), composer.origin(value_in(tensor))});
    }
    variant->outputs.push_back({place->second, tensor.sizes().vec(), tensor.strides().vec(), tensor.storage_offset(),
                                tensor.scalar_type(), tensor.is_conj(), tensor.is_neg()});
  }
  for (const Watched& flag : flags_) {
    const Origin origin = composer.origin(flag.value);
    variant->flags.push_back({origin.index, flag.op, flag.site, flag.sentence});
  }
  const hlo::Composition composition = composer.compose();
  variant->results = composer.result_types();
  variant->device = std::max(device_, 0);
  variant->random_states = random_states_;
  variant->steps = composition.calls.size();
  if (variant->results.empty()) return variant;
  store::Request request;
  request.text = composition.text();
  request.device = variant->device;
  request.op = name;
  request.compile_options = options;
  request.detail = std::to_string(composition.calls.size()) + " ops, " + std::to_string(composition.parameters.size()) +
                   " parameters, " + std::to_string(composition.results.size()) + " results";
  request.why = "torch.compile";
  for (const hlo::Composition::Call& call : composition.calls)
    for (const hlo::Type& type : call.function->results)
      request.elements = std::max(request.elements, element_count(type.shape));
  for (const hlo::Type& type : variant->results)
    variant->result_bytes += element_count(type.shape) * byte_size(type.dtype);
  variant->program = aten::take(store::get(aten::engine().client(), request));
  return variant;
}

}  // namespace torch_tpu::graph
