#include "aten/kernel.h"

#include <ATen/native/Resize.h>

#include <algorithm>

#include "aten/backward_pass.h"
#include "aten/capture.h"
#include "aten/data_dependent.h"
#include "aten/device.h"
#include "aten/fallback.h"
#include "aten/generator.h"
#include "aten/index_check.h"
#include "aten/modes.h"
#include "aten/op_cache.h"
#include "aten/scalar_cache.h"
#include "aten/storage.h"
#include "fuse/region.h"
#include "runtime/hooks.h"
#include "runtime/late_error.h"
#include "runtime/memory.h"
#include "runtime/statistics.h"
#include "runtime/stream.h"

namespace torch_tpu::aten {
namespace {

// Locks of the slots that a call writes, taken in address order and held until their new values are in place.
class WriteLocks {
 public:
  explicit WriteLocks(Call& call) {
    for (Operand& operand : call.operands)
      if (operand.written) slots_.push_back(operand.slot);
    std::sort(slots_.begin(), slots_.end());
    for (runtime::Slot* slot : slots_) slot->mutex.lock();
  }
  ~WriteLocks() {
    for (runtime::Slot* slot : slots_) slot->mutex.unlock();
  }
  WriteLocks(const WriteLocks&) = delete;
  WriteLocks& operator=(const WriteLocks&) = delete;

 private:
  c10::SmallVector<runtime::Slot*, 4> slots_;
};

// Between gathering and locking another thread may have swapped a written slot's value, made this thread's recording
// end or the mode another. The newest value is used; false if its buffer has another type than the key says, or if an
// operand is owed that `recorder` (who takes this op, or null) does not owe: gathering again makes it run.
bool refresh(Call& call, const fuse::Recorder* recorder) {
  for (Operand& operand : call.operands) {
    if (!operand.value) continue;
    if (operand.written) {
      if (operand.slot->error) raise(*operand.slot->error);
      const runtime::ValueRef& newest = operand.slot->value;
      if (newest.get() != operand.value.get()) {
        if (!newest || !(newest->type == operand.value->type)) return false;
        operand.value = newest;
      }
    }
    // Whether it failed may be read only once nobody owes it.
    const runtime::Debtor* debtor = operand.value->debtor.load(std::memory_order_acquire);
    if (debtor != nullptr ? debtor != recorder : operand.value->failure != nullptr) return false;
  }
  return true;
}

class Submission {
 public:
  Submission(Call& call, const Entry& entry, const std::optional<at::Generator>& generator, Capture* capture)
      : call_(call),
        entry_(entry),
        device_(call.device < 0 ? 0 : call.device),
        generator_(generator),
        capture_(capture) {}

  // Runs the program, or records it where there is a recorder.
  void submit(fuse::Recorder* recorder);
  void store_written();
  void wrap_fresh(Results& results);
  void finish();

 private:
  void collect_scalars();
  runtime::ValueRef random_state();
  void record(fuse::Recorder& recorder);
  void execute();
  // Fills the parameters that must survive; the bytes of those that need not.
  int64_t collect_donations(c10::SmallVector<int64_t, 4>& kept);
  [[noreturn]] void fail(const Error& error);

  Call& call_;
  const Entry& entry_;
  const int device_;
  const std::optional<at::Generator>& generator_;
  Capture* const capture_;  // null: the program runs, now or later
  c10::SmallVector<runtime::ValueRef, 4> outputs_;
};

void Submission::collect_scalars() {
  for (int index : entry_.operands) {
    Operand& operand = call_.operands[index];
    if (operand.kind != Operand::Kind::kScalar) continue;
    operand.value = capture_ != nullptr ? capture_->number(operand.type.dtype, operand.bytes)
                                        : device_scalar(device_, operand.type.dtype, operand.bytes);
  }
}

runtime::ValueRef Submission::random_state() {
  if (capture_ != nullptr) return capture_->random_state(generator_, entry_.rng_blocks);
  const auto [seed, offset] = resolve(generator_, device_).reserve(entry_.rng_blocks);
  const uint64_t state[2] = {seed, offset};
  auto buffer = take(engine().client().from_host(state, DType::kU64, {2}, device_));
  return runtime::ValueRef(new runtime::BufferValue(std::move(buffer), {DType::kU64, {2}}, device_, sizeof state));
}

// A written slot's buffer is donated when the slot's reference and this call's are the only two.
int64_t Submission::collect_donations(c10::SmallVector<int64_t, 4>& kept) {
  int64_t bytes = 0;
  for (const fuse::Donation& donation : entry_.step->donations) {
    const Operand& operand = call_.operands[entry_.operands[donation.parameter]];
    if (operand.value.use_count() > 2 || !operand.value->donatable.load(std::memory_order_relaxed)) {
      kept.push_back(donation.parameter);
    } else {
      operand.value->consumed = true;
      bytes += operand.value->bytes;
    }
  }
  runtime::totals().donations += static_cast<int64_t>(entry_.step->donations.size() - kept.size());
  return bytes;
}

void Submission::fail(const Error& error) {
  // What was donated to a submission that failed may be gone: then its slot says so at every read.
  for (const fuse::Donation& donation : entry_.step->donations) {
    Operand& operand = call_.operands[entry_.operands[donation.parameter]];
    if (operand.value->buffer.deleted())
      operand.slot->error =
          Error{error.code, call_.plan->name + ": failed and consumed this tensor's memory: " + error.message};
  }
  raise(error);
}

void Submission::submit(fuse::Recorder* recorder) {
  collect_scalars();
  if (recorder != nullptr) {
    record(*recorder);
  } else {
    execute();
    fuse::Region::observe(*entry_.step);
  }
}

void Submission::record(fuse::Recorder& recorder) {
  if (!recorder.makes_room(device_, entry_.step->bytes)) {
    execute();
    return;
  }
  c10::SmallVector<runtime::ValueRef, 8> inputs;
  for (int index : entry_.operands) inputs.push_back(std::move(call_.operands[index].value));
  if (entry_.rng_parameter >= 0) inputs.push_back(random_state());
  outputs_.resize(entry_.step->function->results.size());
  recorder.record(entry_.step, device_, {inputs.data(), inputs.size()}, {outputs_.data(), outputs_.size()});
}

void Submission::execute() {
  c10::SmallVector<PJRT_Buffer*, 8> arguments, buffers;
  c10::SmallVector<int64_t, 4> kept;
  for (int index : entry_.operands) arguments.push_back(call_.operands[index].value->buffer.get());
  runtime::ValueRef state;
  if (entry_.rng_parameter >= 0) {
    state = random_state();
    arguments.push_back(state->buffer.get());
  }
  const int64_t donated = collect_donations(kept);
  const auto& types = entry_.step->function->results;
  buffers.resize(types.size());
  const Status status = fuse::launch({call_.plan->name.c_str(),
                                      entry_.step->program,
                                      device_,
                                      entry_.step->bytes - donated,
                                      {arguments.data(), arguments.size()},
                                      {kept.data(), kept.size()}},
                                     {buffers.data(), buffers.size()});
  if (!status.ok()) fail(status.error());
  // Before the results are counted as memory: what was overwritten is gone.
  for (const WrittenSlot& written : entry_.written)
    call_.operands[written.operand].value = call_.operands[written.operand].slot->value = {};
  for (size_t i = 0; i < types.size(); ++i) {
    const int64_t bytes = element_count(types[i].shape) * byte_size(types[i].dtype);
    outputs_.emplace_back(
        new runtime::BufferValue(pjrt::Buffer(&engine().client(), buffers[i]), types[i], device_, bytes));
    outputs_.back()->producer = call_.plan->name.c_str();
  }
}

void Submission::store_written() {
  for (const WrittenSlot& written : entry_.written) {
    Operand& operand = call_.operands[written.operand];
    operand.value = {};
    operand.slot->error.reset();
    operand.slot->value = std::move(outputs_[written.output]);
  }
}

void Submission::wrap_fresh(Results& results) {
  for (const FreshResult& fresh : entry_.fresh) {
    if (!fresh.meta.defined) {
      results.push_back(fresh.meta.number ? c10::IValue(*fresh.meta.number) : c10::IValue(at::Tensor()));
      continue;
    }
    at::Tensor tensor = empty_strided_on(device_, fresh.meta.sizes, fresh.meta.strides, fresh.meta.type);
    if (fresh.output >= 0) slot_of(tensor)->value = std::move(outputs_[fresh.output]);
    results.emplace_back(std::move(tensor));
  }
}

// Index checks and debug waits; no slot is locked any more.
void Submission::finish() {
  if (capture_ != nullptr) {
    if (entry_.flag_output >= 0)
      capture_->watch_flag(std::move(outputs_[entry_.flag_output]), call_.plan->name, call_.plan->row->check_sentence);
    return;
  }
  if (entry_.flag_output >= 0) {
    runtime::watch_flag(std::move(outputs_[entry_.flag_output]), call_.plan->name, runtime::hooks::call_site(),
                        call_.plan->row->check_sentence);
    if (index_check() == IndexCheck::kCall) check(runtime::check_flags(device_, /*wait=*/true));
  }
  if (debug_mode()) synchronize_device(device_);
}

void resize_outputs(const Plan& plan, const c10::IValue* arguments, const Entry& entry) {
  for (size_t k = 0; k < plan.written.size() && k < entry.resize.size(); ++k) {
    const c10::IValue& v = arguments[plan.written[k]];
    if (v.isTensor() && v.toTensor().defined()) at::native::resize_output(v.toTensor(), entry.resize[k]);
  }
}

std::optional<at::Generator> generator_argument(const Plan& plan, const c10::IValue* arguments) {
  for (size_t i = 0; i < plan.args.size(); ++i)
    if (plan.args[i].kind == ArgKind::kGenerator && !arguments[i].isNone()) return arguments[i].toGenerator();
  return std::nullopt;
}

EntryRef entry_for(Call& call, Capture* capture) {
  if (capture != nullptr) return capture->entry(call);
  auto& cache = OpCache::instance();
  if (EntryRef hit = cache.find(call.key)) {
    runtime::totals().memory_hits.fetch_add(1, std::memory_order_relaxed);
    return hit;
  }
  return cache.insert(call.key, make_entry(call));
}

// What a capture writes must be its own: another tensor would be left with a value that there never is.
void refuse_writes_outside(const Call& call, Capture& capture) {
  for (const Operand& operand : call.operands)
    if (operand.written && operand.value && operand.value->debtor.load(std::memory_order_relaxed) == nullptr)
      capture.refuse(call.plan->name, "it writes to a tensor that is not an input of the graph");
}

// One attempt; false when a concurrent writer changed a slot's type between gathering and locking, or out= tensors
// had to be resized first.
bool attempt(const Plan& plan, const c10::IValue* arguments, int element, Results& results, std::string* reason,
             bool& fell_back) {
  Call call;
  call.plan = &plan;
  call.arguments = arguments;
  call.element = element;
  gather(call);
  Capture* const capture = Capture::current();
  EntryRef entry = entry_for(call, capture);
  if (entry->must_resize) {
    resize_outputs(plan, arguments, *entry);
    return false;
  }
  if (entry->falls_back) {
    *reason = entry->fallback_reason;
    fell_back = true;
    return true;
  }
  const auto generator = entry->rng_parameter >= 0 ? generator_argument(plan, arguments) : std::nullopt;
  if (capture != nullptr) refuse_writes_outside(call, *capture);
  Submission submission(call, *entry, generator, capture);
  if (entry->step) {
    WriteLocks locks(call);
    // Asked once: the mode may change at any time.
    fuse::Recorder* const recorder = fuse::Recorder::current();
    if (!refresh(call, recorder)) return false;
    submission.submit(recorder);
    submission.store_written();
  }
  submission.wrap_fresh(results);
  if (entry->step) submission.finish();
  return true;
}

void return_results(const Plan& plan, torch::jit::Stack* stack, Results& results) {
  const size_t count = plan.args.size();
  c10::SmallVector<c10::IValue, 4> returned;
  size_t fresh = 0;
  for (const ReturnPlan& r : plan.returns) {
    if (r.alias_of >= 0) {
      returned.push_back((*stack)[stack->size() - count + r.alias_of]);
    } else if (r.list) {
      c10::List<at::Tensor> list;
      for (; fresh < results.size(); ++fresh) list.push_back(results[fresh].toTensor());
      returned.emplace_back(std::move(list));
    } else {
      returned.push_back(std::move(results[fresh++]));
    }
  }
  torch::jit::drop(*stack, count);
  for (auto& value : returned) stack->push_back(std::move(value));
}

size_t list_length(const Plan& plan, const c10::IValue* arguments) {
  for (size_t i = 0; i < plan.args.size(); ++i)
    if (plan.args[i].kind == ArgKind::kTensorList && arguments[i].isList()) return arguments[i].toListRef().size();
  return 0;
}

}  // namespace

bool run(const Plan& plan, const c10::IValue* arguments, int element, Results& results, std::string* reason) {
  // Before any lock: a thread of the parent may have held it when this child was forked.
  if (runtime::Engine::in_bad_fork()) take(runtime::Engine::get());
  runtime::totals().ops.fetch_add(1, std::memory_order_relaxed);
  keep_backward_passes_here();
  bool fell_back = false;
  for (int tries = 0; tries < 1000; ++tries) {
    results.clear();
    if (attempt(plan, arguments, element, results, reason, fell_back)) return !fell_back;
  }
  TORCH_CHECK(false, plan.name, ": another thread kept changing an argument's memory");
}

OpKernel::OpKernel(Plan plan) : plan_(std::move(plan)) {
  const auto& arguments = plan_.op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i)
    if (arguments[i].name() == "indices" && plan_.args[i].kind == ArgKind::kTensorList) indices_ = static_cast<int>(i);
}

bool OpKernel::prepare_indices(torch::jit::Stack* stack) {
  c10::IValue* arguments = stack->data() + (stack->size() - plan_.args.size());
  if (!needs_expansion(arguments[indices_])) return false;
  const at::Tensor self = arguments[0].toTensor();
  // _index_put_impl_(self, indices, values, accumulate, unsafe)
  if (plan_.name == "aten::_index_put_impl_" && arguments[2].toTensor().numel() == 1 && !arguments[3].toBool()) {
    if (at::Tensor mask = fillable_mask(self, arguments[indices_]); mask.defined()) {
      self.masked_fill_(mask, arguments[2].toTensor().reshape({}));
      torch::jit::drop(*stack, plan_.args.size());
      stack->emplace_back(self);
      return true;
    }
  }
  arguments[indices_] = expand_masks(self, arguments[indices_]);
  return false;
}

void OpKernel::operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  if (indices_ >= 0 && prepare_indices(stack)) return;
  const c10::IValue* arguments = stack->data() + (stack->size() - plan_.args.size());
  Results results;
  std::string reason;
  bool done = true;
  if (plan_.row->per_element) {
    fuse::Recording recording;
    const size_t n = list_length(plan_, arguments);
    for (size_t k = 0; k < n && done; ++k) {
      Results none;
      done = run(plan_, arguments, static_cast<int>(k), none, &reason);
    }
    check(recording.finish());
  } else {
    done = run(plan_, arguments, -1, results, &reason);
  }
  if (!done) {
    fall_back(op, stack, reason);
    return;
  }
  return_results(plan_, stack, results);
}

void synchronize_device(int device) {
  check(runtime::synchronize_device(device));
  check(runtime::check_flags(device, /*wait=*/true));
}

}  // namespace torch_tpu::aten
