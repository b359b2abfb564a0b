#include "graph/graph.h"

#include <ATen/Context.h>
#include <c10/core/DefaultDtype.h>

#include <algorithm>
#include <cstring>

#include "aten/device.h"
#include "aten/generator.h"
#include "aten/index_check.h"
#include "aten/kernel.h"
#include "aten/modes.h"
#include "aten/scalar_cache.h"
#include "aten/storage.h"
#include "fuse/step.h"
#include "runtime/hooks.h"
#include "runtime/late_error.h"
#include "runtime/statistics.h"
#include "runtime/stream.h"

namespace torch_tpu::graph {
namespace {

enum Tag : uint64_t { kTagNone = 1, kTagTensor, kTagHostTensor, kTagInt, kTagDouble, kTagBool };

void push_type(std::vector<uint64_t>& key, const hlo::Type& type) {
  key.push_back(static_cast<uint64_t>(type.dtype) | static_cast<uint64_t>(type.shape.size()) << 8);
  for (int64_t s : type.shape) key.push_back(static_cast<uint64_t>(s));
}

void add_tensor(Gathered& g, const at::Tensor& t, size_t i) {
  if (!t.is_privateuseone()) {
    g.key.push_back(kTagHostTensor | static_cast<uint64_t>(t.scalar_type()) << 8 |
                    static_cast<uint64_t>(t.dim()) << 16);
    for (int64_t s : t.sizes()) g.key.push_back(static_cast<uint64_t>(s));
    return;
  }
  const int device = t.device().index();
  if (g.device < 0) g.device = device;
  TORCH_CHECK(g.device == device,
              "Expected all tensors to be on the same device, but found at least two devices, tpu:", g.device,
              " and tpu:", device, "! (a compiled graph)");
  runtime::Slot* slot = aten::slot_of(t);
  auto place = std::find(g.slots.begin(), g.slots.end(), slot);
  const int number = static_cast<int>(place - g.slots.begin());
  const bool first = place == g.slots.end();
  if (first) {
    g.slots.push_back(slot);
    g.values.push_back(aten::read_slot(*slot));
  }
  g.slot_of[i] = number;
  g.key.push_back(kTagTensor | static_cast<uint64_t>(t.scalar_type()) << 8 | static_cast<uint64_t>(t.dim()) << 16 |
                  static_cast<uint64_t>(t.is_conj()) << 24 | static_cast<uint64_t>(t.is_neg()) << 25 |
                  static_cast<uint64_t>(first) << 26 | static_cast<uint64_t>(number) << 32);
  for (int64_t s : t.sizes()) g.key.push_back(static_cast<uint64_t>(s));
  for (int64_t s : t.strides()) g.key.push_back(static_cast<uint64_t>(s));
  g.key.push_back(static_cast<uint64_t>(t.storage_offset()));
  if (!first) return;
  g.key.push_back(static_cast<uint64_t>(slot->bytes()));
  if (const runtime::ValueRef& value = g.values.back())
    push_type(g.key, value->type);
  else
    g.key.push_back(0);
}

uint64_t ambient() {
  auto& context = at::globalContext();
  return static_cast<uint64_t>(context.float32MatmulPrecision()) |
         static_cast<uint64_t>(context.deterministicAlgorithms()) << 4 |
         static_cast<uint64_t>(c10::get_default_dtype_as_scalartype()) << 8 |
         static_cast<uint64_t>(aten::index_check()) << 16;
}

// A tensor that looks at another's storage.
at::Tensor view_of_storage(const at::Tensor& of, at::ScalarType dtype, at::IntArrayRef sizes, at::IntArrayRef strides,
                           int64_t offset, bool conj, bool neg) {
  auto tensor = at::detail::make_tensor<at::TensorImpl>(
      c10::Storage(of.storage()), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::scalarTypeToTypeMeta(dtype));
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(sizes, strides, offset);
  if (conj) tensor._set_conj(true);
  if (neg) tensor._set_neg(true);
  return tensor;
}

class Locks {
 public:
  Locks(const Variant& variant, const Gathered& g) {
    for (const Write& write : variant.writes) slots_.push_back(g.slots[write.argument_slot]);
    std::sort(slots_.begin(), slots_.end());
    for (runtime::Slot* slot : slots_) slot->mutex.lock();
  }
  ~Locks() {
    for (runtime::Slot* slot : slots_) slot->mutex.unlock();
  }
  Locks(const Locks&) = delete;
  Locks& operator=(const Locks&) = delete;

 private:
  std::vector<runtime::Slot*> slots_;
};

// The newest values of the slots that will be written; false if one has another type now, or is owed again.
bool refresh(const Variant& variant, Gathered& g) {
  for (const Write& write : variant.writes) {
    const runtime::ValueRef& newest = g.slots[write.argument_slot]->value;
    runtime::ValueRef& value = g.values[write.argument_slot];
    if (newest.get() == value.get()) continue;
    if (!newest || !value || !(newest->type == value->type) || newest->debtor.load(std::memory_order_acquire))
      return false;
    value = newest;
  }
  return true;
}

class Run {
 public:
  Run(const Graph& graph, const Variant& variant, Gathered& g) : graph_(graph), variant_(variant), g_(g) {}

  std::vector<at::Tensor> operator()() {
    // Before the program: what an output keeps of an argument must not be overwritten.
    std::vector<runtime::ValueRef> kept;
    for (const OutputSlot& slot : variant_.slots) kept.push_back(before(slot.origin));
    for (const Write& write : variant_.writes) kept.push_back(before(write.origin));
    draw();
    if (variant_.program) submit();
    for (size_t i = 0; i < variant_.writes.size(); ++i) {
      const Write& write = variant_.writes[i];
      runtime::Slot& slot = *g_.slots[write.argument_slot];
      slot.error.reset();
      slot.value = after(write.origin, kept[variant_.slots.size() + i]);
    }
    std::vector<at::Tensor> storages;
    for (size_t i = 0; i < variant_.slots.size(); ++i) storages.push_back(storage(variant_.slots[i], kept[i]));
    std::vector<at::Tensor> outputs;
    for (const OutputTensor& o : variant_.outputs)
      outputs.push_back(view_of_storage(storages[o.slot], o.dtype, o.sizes, o.strides, o.offset, o.conj, o.neg));
    return outputs;
  }

  void watch() {
    for (const Flag& flag : variant_.flags) {
      runtime::watch_flag(results_[flag.result], flag.op, flag.site, flag.sentence);
      if (aten::index_check() == aten::IndexCheck::kCall)
        aten::check(runtime::check_flags(variant_.device, /*wait=*/true));
    }
  }

 private:
  runtime::ValueRef host_number(int argument) const {
    const at::Tensor& t = g_.arguments[argument].toTensor();
    return aten::device_scalar(variant_.device, aten::to_dtype(t.scalar_type()),
                               static_cast<const unsigned char*>(t.const_data_ptr()));
  }

  runtime::ValueRef before(const Origin& origin) const {
    switch (origin.kind) {
      case Origin::Kind::kArgumentSlot:
        return g_.values[origin.index];
      case Origin::Kind::kHostNumber:
        return host_number(origin.index);
      case Origin::Kind::kConstant:
        return origin.constant;
      default:
        return {};
    }
  }
  runtime::ValueRef after(const Origin& origin, const runtime::ValueRef& kept) const {
    return origin.kind == Origin::Kind::kResult ? results_[origin.index] : kept;
  }

  at::Tensor storage(const OutputSlot& slot, const runtime::ValueRef& kept) const {
    if (slot.argument_slot >= 0) {
      const auto argument = std::find(g_.slot_of.begin(), g_.slot_of.end(), slot.argument_slot) - g_.slot_of.begin();
      return g_.arguments[argument].toTensor();
    }
    at::Tensor bytes = aten::empty_strided_on(variant_.device, {slot.bytes}, {1}, at::kByte);
    aten::slot_of(bytes)->value = after(slot.origin, kept);
    return bytes;
  }

  void draw() {
    for (const RandomState& state : variant_.random_states) {
      const auto [seed, offset] = aten::resolve(state.generator, variant_.device).reserve(state.blocks);
      states_.push_back({seed, offset});
    }
  }

  runtime::ValueRef random_value(int index) const {
    auto buffer =
        aten::take(aten::engine().client().from_host(states_[index].data(), DType::kU64, {2}, variant_.device));
    return runtime::ValueRef(new runtime::BufferValue(std::move(buffer), {DType::kU64, {2}}, variant_.device, 16));
  }

  void submit() {
    std::vector<runtime::ValueRef> own;  // of this run only
    std::vector<PJRT_Buffer*> arguments;
    for (const Parameter& parameter : variant_.parameters) {
      switch (parameter.kind) {
        case Parameter::Kind::kSlot:
          arguments.push_back(g_.values[parameter.index]->buffer.get());
          continue;
        case Parameter::Kind::kHostNumber:
          own.push_back(host_number(parameter.index));
          break;
        case Parameter::Kind::kConstant:
          own.push_back(parameter.constant);
          break;
        case Parameter::Kind::kRandomState:
          own.push_back(random_value(parameter.index));
          break;
      }
      arguments.push_back(own.back()->buffer.get());
    }
    int64_t bytes = variant_.program->temporary_bytes + variant_.result_bytes;
    std::vector<int64_t> not_donated;
    for (int p : variant_.donated) {
      const runtime::ValueRef& value = g_.values[variant_.parameters[p].index];
      // The slot's reference and this call's.
      if (value.use_count() > 2 || !value->donatable.load(std::memory_order_relaxed)) {
        not_donated.push_back(p);
      } else {
        value->consumed = true;
        bytes -= value->bytes;
      }
    }
    runtime::totals().donations += static_cast<int64_t>(variant_.donated.size() - not_donated.size());
    std::vector<PJRT_Buffer*> buffers(variant_.results.size());
    const Status status = fuse::launch(
        {graph_.name().c_str(), variant_.program, variant_.device, bytes, arguments, not_donated}, buffers);
    if (!status.ok()) fail(status.error());
    // Before the results are counted as memory: what was overwritten is gone.
    for (const Write& write : variant_.writes)
      g_.values[write.argument_slot] = g_.slots[write.argument_slot]->value = {};
    const pjrt::Client& client = aten::engine().client();
    for (size_t i = 0; i < buffers.size(); ++i) {
      const hlo::Type& type = variant_.results[i];
      const int64_t size = element_count(type.shape) * byte_size(type.dtype);
      results_.emplace_back(new runtime::BufferValue(pjrt::Buffer(&client, buffers[i]), type, variant_.device, size));
    }
  }

  // What was donated to a submission that failed may be gone: then its slot says so at every read.
  [[noreturn]] void fail(const Error& error) {
    for (int p : variant_.donated) {
      const int slot = variant_.parameters[p].index;
      if (g_.values[slot]->buffer.deleted())
        g_.slots[slot]->error =
            Error{error.code, graph_.name() + ": failed and consumed this tensor's memory: " + error.message};
      else
        g_.values[slot]->consumed = false;
    }
    aten::raise(error);
  }

  const Graph& graph_;
  const Variant& variant_;
  Gathered& g_;
  std::vector<std::array<uint64_t, 2>> states_;
  std::vector<runtime::ValueRef> results_;
};

}  // namespace

Gathered gather(std::vector<c10::IValue> arguments) {
  if (runtime::Engine::in_bad_fork()) aten::take(runtime::Engine::get());
  Gathered g;
  g.arguments = std::move(arguments);
  g.slot_of.assign(g.arguments.size(), -1);
  g.key.reserve(8 * g.arguments.size() + 2);
  g.key.push_back(ambient());
  for (size_t i = 0; i < g.arguments.size(); ++i) {
    const c10::IValue& v = g.arguments[i];
    if (v.isTensor()) {
      add_tensor(g, v.toTensor(), i);
    } else if (v.isInt()) {
      g.key.insert(g.key.end(), {kTagInt, static_cast<uint64_t>(v.toInt())});
    } else if (v.isBool()) {
      g.key.insert(g.key.end(), {kTagBool, static_cast<uint64_t>(v.toBool())});
    } else if (v.isDouble()) {
      uint64_t bits;
      const double d = v.toDouble();
      std::memcpy(&bits, &d, sizeof bits);
      g.key.insert(g.key.end(), {kTagDouble, bits});
    } else {
      g.key.push_back(kTagNone);
    }
  }
  if (g.device < 0) g.device = runtime::current_device();
  g.key.push_back(static_cast<uint64_t>(g.device));
  return g;
}

std::vector<c10::IValue> stand_ins(const Gathered& g, Capture& capture, std::vector<at::Tensor>& slots) {
  for (size_t k = 0; k < g.slots.size(); ++k)
    slots.push_back(
        capture.slot_argument(static_cast<int>(k), g.slots[k]->bytes(), g.values[k] ? &g.values[k]->type : nullptr));
  std::vector<c10::IValue> all;
  for (size_t i = 0; i < g.arguments.size(); ++i) {
    const c10::IValue& v = g.arguments[i];
    if (!v.isTensor()) {
      all.push_back(v);
      continue;
    }
    const at::Tensor& t = v.toTensor();
    if (g.slot_of[i] >= 0)
      all.emplace_back(view_of_storage(slots[g.slot_of[i]], t.scalar_type(), t.sizes(), t.strides(), t.storage_offset(),
                                       t.is_conj(), t.is_neg()));
    else if (t.dim() == 0)
      all.emplace_back(capture.number_argument(static_cast<int>(i), t.scalar_type()));
    else
      all.push_back(v);
  }
  return all;
}

std::shared_ptr<const Variant> Graph::find(const std::vector<uint64_t>& key) {
  std::lock_guard lock(mutex_);
  auto place = variants_.find(key);
  return place == variants_.end() ? nullptr : place->second;
}

std::shared_ptr<const Variant> Graph::add(const std::vector<uint64_t>& key, std::shared_ptr<const Variant> variant) {
  std::lock_guard lock(mutex_);
  return variants_.try_emplace(key, std::move(variant)).first->second;
}

size_t Graph::variants() {
  std::lock_guard lock(mutex_);
  return variants_.size();
}

std::optional<std::vector<at::Tensor>> run(const Graph& graph, const Variant& variant, Gathered& gathered) {
  Run run(graph, variant, gathered);
  std::vector<at::Tensor> outputs;
  {
    Locks locks(variant, gathered);
    if (!refresh(variant, gathered)) return std::nullopt;
    outputs = run();
  }
  run.watch();
  if (aten::debug_mode()) aten::synchronize_device(variant.device);
  return outputs;
}

}  // namespace torch_tpu::graph
