#include "aten/program.h"

#include <ATen/Context.h>

#include <algorithm>
#include <mutex>
#include <numeric>
#include <unordered_map>

#include "aten/index_check.h"
#include "aten/storage.h"
#include "base/env.h"
#include "hlo/view.h"
#include "ops/promote.h"
#include "runtime/engine.h"
#include "runtime/hooks.h"
#include "runtime/statistics.h"

namespace torch_tpu::aten {
namespace {

// Programs whose largest value has fewer elements than this compile in the fast profile: their kernels take
// microseconds either way, and the compile is a third as long (engine.md, 7.4).
constexpr int64_t kFastProfileElements = 65536;

class Emitter {
 public:
  explicit Emitter(const Call& call, Inference inference)
      : call_(call), plan_(*call.plan), inference_(std::move(inference)) {}

  // Fills the entry (all but the step) and the step (all but the program); returns the text of the program.
  Result<std::string> emit(Entry& entry, fuse::Step& step);

 private:
  void add_parameters(Entry& entry);
  ops::Args arguments();
  ops::Arg tensor_arg(const TensorUse& use);
  ops::Arg plain_arg(size_t i);
  hlo::Value base_of(int operand, const TensorUse& use);
  void write_back(Entry& entry, const hlo::Values& values);
  void add_fresh(Entry& entry, const hlo::Values& values);
  void add_donations(const Entry& entry, fuse::Step& step);
  size_t written_count() const;
  void note(const hlo::Type& type) { largest_ = std::max(largest_, element_count(type.shape)); }

  const Call& call_;
  const Plan& plan_;
  Inference inference_;
  hlo::Builder b_;
  std::vector<hlo::Value> bases_;  // by operand: its current contents (after earlier write-backs)
  std::vector<int> parameter_;     // by operand: its program parameter, or -1
  int parameters_ = 0;
  hlo::Value rng_;
  hlo::Values outputs_;
  int64_t largest_ = 0;
};

void Emitter::add_parameters(Entry& entry) {
  bases_.resize(call_.operands.size());
  parameter_.assign(call_.operands.size(), -1);
  for (size_t i = 0; i < call_.operands.size(); ++i) {
    const Operand& operand = call_.operands[i];
    if (operand.kind == Operand::Kind::kSlot && !operand.value) continue;
    const hlo::Type& type = operand.kind == Operand::Kind::kSlot ? operand.value->type : operand.type;
    bases_[i] = b_.parameter(type);
    note(type);
    parameter_[i] = parameters_++;
    entry.operands.push_back(static_cast<int>(i));
  }
  const int when = plan_.row->random_when;
  if (plan_.row->random && (when < 0 || call_.arguments[when].toDouble() != 0)) {
    rng_ = b_.parameter({DType::kU64, {2}});
    entry.rng_parameter = parameters_++;
  }
}

// The contents of the slot behind a tensor argument. A slot that was never written reads as zeros.
hlo::Value Emitter::base_of(int operand, const TensorUse& use) {
  if (operand >= 0 && bases_[operand]) return bases_[operand];
  const DType dtype = to_dtype(use.tensor->scalar_type());
  const int64_t bytes = slot_of(*use.tensor)->bytes();
  hlo::Value zeros = b_.zeros({dtype, {bytes / byte_size(dtype)}});
  if (operand >= 0) bases_[operand] = zeros;
  return zeros;
}

ops::Arg Emitter::tensor_arg(const TensorUse& use) {
  ops::Arg arg;
  if (use.tensor == nullptr) return arg;
  arg.kind = ops::Arg::Kind::kTensor;
  arg.wrapped = use.tensor->unsafeGetTensorImpl()->is_wrapped_number();
  const ViewSpec view = view_of(*use.tensor);
  if (use.tensor->is_cpu()) {
    arg.value = bases_[use.operand];
  } else if (element_count(view.sizes) == 0) {
    arg.value = b_.zeros({view.dtype, view.sizes});
  } else {
    hlo::ViewRoute route = hlo::ViewRoute::kIdentity;
    arg.value = hlo::read_view(b_, base_of(use.operand, use), view, &route);
    if (route == hlo::ViewRoute::kGather) ++runtime::totals().view_gathers;
  }
  note(arg.value.type());
  return arg;
}

ops::Arg Emitter::plain_arg(size_t i) {
  using Kind = ops::Arg::Kind;
  const c10::IValue& v = call_.arguments[i];
  ops::Arg arg;
  if (v.isNone()) return arg;
  auto integer = [](const c10::IValue& x) { return x.isInt() ? x.toInt() : x.toSymInt().expect_int(); };
  switch (plan_.args[i].kind) {
    case ArgKind::kInt:
      arg.kind = Kind::kInt;
      arg.i = integer(v);
      break;
    case ArgKind::kIntList:
      arg.kind = Kind::kIntList;
      for (const auto& x : v.toListRef()) arg.ints.push_back(integer(x));
      break;
    case ArgKind::kDouble:
      arg.kind = Kind::kDouble;
      arg.d = v.toDouble();
      break;
    case ArgKind::kDoubleList:
      arg.kind = Kind::kDoubleList;
      for (const auto& x : v.toListRef()) arg.doubles.push_back(x.toScalar().toDouble());
      break;
    case ArgKind::kScalarList:
      arg.kind = Kind::kScalarList;
      for (const auto& x : v.toListRef()) {
        arg.doubles.push_back(x.toScalar().toDouble());
        arg.values.push_back(b_.scalar(DType::kF64, x.toScalar().toDouble()));
      }
      break;
    case ArgKind::kBool:
      arg.kind = Kind::kBool;
      arg.b = v.toBool();
      break;
    case ArgKind::kBoolList:
      arg.kind = Kind::kBoolList;
      for (const auto& x : v.toListRef()) arg.bools.push_back(x.toBool());
      break;
    case ArgKind::kString:
      arg.kind = Kind::kString;
      arg.s = v.toStringRef();
      break;
    case ArgKind::kDType:
      arg.kind = Kind::kDType;
      arg.dtype = to_dtype(static_cast<at::ScalarType>(v.toInt()));
      break;
    default:
      arg.kind = Kind::kOther;
  }
  return arg;
}

ops::Args Emitter::arguments() {
  std::vector<ops::Arg> args(plan_.functional_args);
  for (size_t i = 0; i < plan_.args.size(); ++i) {
    const int k = plan_.args[i].functional;
    if (k < 0 || plan_.args[i].kind == ArgKind::kTensor || plan_.args[i].kind == ArgKind::kScalar) continue;
    if (plan_.args[i].kind != ArgKind::kTensorList)
      args[k] = plain_arg(i);
    else if (!call_.arguments[i].isNone() && call_.element < 0)
      args[k].kind = ops::Arg::Kind::kTensorList;
  }
  for (const TensorUse& use : call_.tensors) {
    const int k = plan_.args[use.argument].functional;
    if (k < 0) continue;
    ops::Arg arg = tensor_arg(use);
    if (plan_.args[use.argument].kind == ArgKind::kTensorList && call_.element < 0)
      args[k].values.push_back(arg.value);
    else
      args[k] = std::move(arg);
  }
  for (const ScalarUse& use : call_.scalars) {
    ops::Arg& arg = args[plan_.args[use.argument].functional];
    const c10::IValue& v = call_.arguments[use.argument];
    if (plan_.args[use.argument].kind == ArgKind::kScalar)
      arg.kind = ops::Arg::Kind::kScalar;
    else
      arg = plain_arg(use.argument);
    if (use.operand >= 0) {
      arg.scalar.value = bases_[use.operand];
    } else {
      arg.scalar.constant = use.constant;
      arg.scalar.value = v.isDouble() ? b_.scalar(DType::kF64, use.constant)
                         : v.isBool() ? b_.scalar_int(DType::kBool, static_cast<int64_t>(use.constant))
                                      : b_.scalar_int(DType::kI64, static_cast<int64_t>(use.constant));
    }
  }
  return ops::Args(std::move(args));
}

size_t Emitter::written_count() const {
  size_t n = 0;
  for (const TensorUse& use : call_.tensors) n += use.written && use.tensor != nullptr;
  return n;
}

// Turns the new value of every written argument into a new value of its slot.
void Emitter::write_back(Entry& entry, const hlo::Values& values) {
  std::vector<int> touched;
  size_t next = 0;
  for (const TensorUse& use : call_.tensors) {
    if (!use.written || use.tensor == nullptr) continue;
    hlo::Value x = values[next++];
    if (use.operand < 0 || !x) continue;  // zero elements
    ViewSpec view = view_of(*use.tensor);
    x = b_.broadcast(b_.convert(x, view.dtype), view.sizes);
    if (b_.error()) return;
    hlo::ViewRoute route = hlo::ViewRoute::kIdentity;
    bases_[use.operand] = hlo::write_view(b_, base_of(use.operand, use), view, x, &route);
    if (route == hlo::ViewRoute::kGather) ++runtime::totals().view_gathers;
    if (std::find(touched.begin(), touched.end(), use.operand) == touched.end()) touched.push_back(use.operand);
  }
  for (int operand : touched) {
    entry.written.push_back({operand, static_cast<int>(outputs_.size()), bases_[operand].type()});
    outputs_.push_back(bases_[operand]);
  }
}

// Order of the dimensions in memory, outermost first.
std::vector<int64_t> storage_order(const OutMeta& meta) {
  std::vector<int64_t> order(meta.sizes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    // Dimensions of size 1 keep their place relative to their neighbours.
    if (meta.sizes[a] == 1 || meta.sizes[b] == 1) return false;
    return meta.strides[a] > meta.strides[b];
  });
  return order;
}

bool is_dense(const OutMeta& meta, const std::vector<int64_t>& order) {
  int64_t expected = 1;
  for (size_t k = order.size(); k-- > 0;) {
    if (meta.sizes[order[k]] != 1 && meta.strides[order[k]] != expected) return false;
    expected *= meta.sizes[order[k]];
  }
  return true;
}

void Emitter::add_fresh(Entry& entry, const hlo::Values& values) {
  for (size_t i = 0; i < inference_.outs.size(); ++i) {
    FreshResult fresh;
    fresh.meta = inference_.outs[i];
    hlo::Value x = i < values.size() ? values[i] : hlo::Value();
    if (fresh.meta.defined) {
      const DType dtype = to_dtype(fresh.meta.type);
      std::vector<int64_t> order = storage_order(fresh.meta);
      if (!is_dense(fresh.meta, order)) {
        // Overlapping or padded strides from inference (a meta kernel that returns an expanded tensor): our result is
        // a tensor of its own, dense.
        fresh.meta.strides = contiguous_strides(fresh.meta.sizes);
        std::iota(order.begin(), order.end(), 0);
      }
      const int64_t count = element_count(fresh.meta.sizes);
      fresh.bytes = count * byte_size(dtype);
      if (!x || x.type() != hlo::Type{dtype, fresh.meta.sizes}) {
        b_.fail(ErrorCode::kInternal, plan_.name + ": the rule's result " + std::to_string(i) + " is " +
                                          (x ? x.type().text() : "absent") + ", inferred " +
                                          hlo::Type{dtype, fresh.meta.sizes}.text());
        return;
      }
      if (count > 0) {
        x = b_.transpose(x, order);
        if (b_.error()) return;
        fresh.buffer = x.type();
        fresh.output = static_cast<int>(outputs_.size());
        outputs_.push_back(x);
        note(x.type());
      }
    }
    entry.fresh.push_back(std::move(fresh));
  }
}

// A written slot may give its memory to its own new value.
void Emitter::add_donations(const Entry& entry, fuse::Step& step) {
  for (const WrittenSlot& written : entry.written) {
    const int parameter = parameter_[written.operand];
    if (parameter < 0 || !(call_.operands[written.operand].value->type == written.buffer)) continue;
    b_.donate(parameter, written.output);
    step.donations.push_back({parameter, written.output});
  }
}

Result<std::string> Emitter::emit(Entry& entry, fuse::Step& step) {
  const auto engine = runtime::Engine::get();
  if (!engine.ok()) return engine.error();
  add_parameters(entry);
  ops::Args args = arguments();
  std::vector<hlo::Type> outs;
  for (const OutMeta& meta : inference_.outs)
    outs.push_back(meta.defined ? hlo::Type{to_dtype(meta.type), meta.sizes} : hlo::Type{});
  ops::Context context(b_, plan_.row->name, std::move(outs));
  context.platform =
      engine.value()->client().platform() == pjrt::PlatformKind::kTpu ? ops::Platform::kTpu : ops::Platform::kCpu;
  const auto precision = at::globalContext().float32MatmulPrecision();
  context.precision = precision == at::Float32MatmulPrecision::HIGHEST ? hlo::Precision::kHighest
                      : precision == at::Float32MatmulPrecision::HIGH  ? hlo::Precision::kHigh
                                                                       : hlo::Precision::kDefault;
  context.deterministic = at::globalContext().deterministicAlgorithms();
  context.index_checks = plan_.row->checks_index && index_check() != IndexCheck::kOff;
  context.rng_state = rng_;
  b_.set_origin(plan_.row->name);
  b_.use_host_reductions(context.platform == ops::Platform::kCpu);
  const ops::Row* row = plan_.row->only ? ops::find_row(plan_.row->name, context.platform) : plan_.row;
  if (row == nullptr) return Error{ErrorCode::kNotImplemented, plan_.name + ": has no rule for this kind of device"};
  hlo::Values values = b_.error() ? hlo::Values() : row->rule(context, args);
  if (b_.error()) return *b_.error();
  // A mutating row returns new values of its written arguments first, then the fresh results; a functional row's
  // results go to the written arguments of its in-place and out= forms.
  const size_t written = written_count();
  hlo::Values fresh;
  if (plan_.form == Form::kMutating) {
    if (values.size() < written) return Error{ErrorCode::kInternal, plan_.name + ": the rule returned too few values"};
    fresh.assign(values.begin() + static_cast<int64_t>(written), values.end());
    values.resize(written);
  }
  if (plan_.form != Form::kFunctional) {
    if (values.size() < written) return Error{ErrorCode::kInternal, plan_.name + ": the rule returned too few values"};
    write_back(entry, values);
  }
  if (plan_.form == Form::kFunctional) add_fresh(entry, values);
  if (plan_.form == Form::kMutating) add_fresh(entry, fresh);
  if (!context.bad_indices.empty()) {
    hlo::Value bad = context.bad_indices[0];
    for (size_t i = 1; i < context.bad_indices.size(); ++i) bad = b_.logical_or(bad, context.bad_indices[i]);
    entry.flag_output = static_cast<int>(outputs_.size());
    outputs_.push_back(b_.convert(bad, DType::kI32));
  }
  if (b_.error()) return *b_.error();
  entry.rng_blocks = static_cast<uint64_t>(context.random_blocks);
  add_donations(entry, step);
  auto function = std::make_shared<hlo::Function>();
  auto text = b_.finish(outputs_, "main", function.get());
  for (const hlo::Type& type : function->results) step.bytes += element_count(type.shape) * byte_size(type.dtype);
  step.name = plan_.name.c_str();
  step.function = std::move(function);
  step.elements = largest_;
  return text;
}

// The tensor arguments as the compile log shows them: "float32[2, 3]", with strides where they are not contiguous.
std::vector<std::string> describe(const Call& call) {
  std::vector<std::string> texts;
  for (const TensorUse& use : call.tensors) {
    if (use.tensor == nullptr) {
      texts.push_back("None");
      continue;
    }
    std::string text =
        std::string(torch_name(to_dtype(use.tensor->scalar_type()))) + to_string(use.tensor->sizes().vec());
    if (!use.tensor->is_contiguous()) text += " strides " + to_string(use.tensor->strides().vec());
    texts.push_back(std::move(text));
  }
  return texts;
}

std::string joined(const std::vector<std::string>& texts) {
  std::string text = "(";
  for (const std::string& t : texts) text += (text.size() > 1 ? ", " : "") + t;
  return text + ")";
}

// Why a program is needed: the first of its op, or what differs from the op's most recent one.
std::string reason_for(const Call& call, const std::vector<std::string>& now) {
  static std::mutex mutex;
  static auto* latest = new std::unordered_map<uint64_t, std::vector<std::string>>;
  std::vector<std::string> before;
  {
    std::lock_guard<std::mutex> lock(mutex);
    auto [place, first] = latest->try_emplace(call.plan->id, now);
    if (first) return "first call of this op";
    before = std::exchange(place->second, now);
  }
  for (size_t i = 0; i < std::min(now.size(), before.size()); ++i)
    if (now[i] != before[i]) return "argument " + std::to_string(i) + " is " + now[i] + ", was " + before[i];
  if (now.size() != before.size()) return "another number of tensors than before";
  return "an attribute, the alias pattern or a mode (precision, deterministic, index checks) differs";
}

}  // namespace

EntryRef make_entry(const Call& call, bool compile) {
  auto entry = std::make_shared<Entry>();
  Inference inference = infer(call);
  for (size_t k = 0; k < inference.resize.size(); ++k) entry->must_resize |= !inference.resize[k].empty();
  // A resize to a shape without dimensions is an empty list too, so the flag alone would miss it.
  if (call.plan->form == Form::kOut) {
    for (size_t k = 0; k < call.plan->written.size(); ++k) {
      const at::Tensor* out = tensor_argument(call, call.plan->written[k]);
      if (k < inference.outs.size() && inference.outs[k].defined && out != nullptr &&
          out->sizes() != at::IntArrayRef(inference.outs[k].sizes))
        entry->must_resize = true;
    }
  }
  if (entry->must_resize) {
    for (const OutMeta& meta : inference.outs) entry->resize.push_back(meta.sizes);
    return entry;
  }
  Emitter emitter(call, std::move(inference));
  auto step = std::make_shared<fuse::Step>();
  auto text = emitter.emit(*entry, *step);
  if (!text.ok()) {
    if (text.error().code != ErrorCode::kNotImplemented) raise(text.error());
    auto fallback = std::make_shared<Entry>();
    fallback->falls_back = true;
    fallback->fallback_reason = text.error().message;
    return fallback;
  }
  if (entry->rng_parameter >= 0) {
    int64_t count = 0;
    if (!entry->fresh.empty()) count = element_count(entry->fresh[0].meta.sizes);
    for (const TensorUse& use : call.tensors)
      if (use.written && use.tensor != nullptr) count = std::max<int64_t>(count, use.tensor->numel());
    // Wider elements and rejections reuse their block's counter with another draw (ops/philox.h).
    if (entry->rng_blocks == 0) entry->rng_blocks = static_cast<uint64_t>(std::max<int64_t>((count + 3) / 4, 1));
  }
  if (step->function->results.empty()) return entry;
  step->site = runtime::hooks::call_site();
  if (!compile) {
    entry->step = std::move(step);
    return entry;
  }
  store::Request request;
  request.text = text.take();
  const std::string profile = take(env::one_of("TORCH_TPU_COMPILE_PROFILE"));
  request.profile = profile == "fast" || (profile == "auto" && step->elements < kFastProfileElements)
                        ? store::Profile::kFast
                        : store::Profile::kFull;
  request.elements = step->elements;
  request.device = call.device < 0 ? 0 : call.device;
  request.op = call.plan->name;
  const std::vector<std::string> arguments = describe(call);
  request.detail = joined(arguments);
  request.why = reason_for(call, arguments);
  auto* engine = take(runtime::Engine::get());
  step->program = take(store::get(engine->client(), request));
  step->bytes += step->program->temporary_bytes;
  step->id = fuse::next_step_id();
  entry->step = std::move(step);
  return entry;
}

std::string program_text(const Call& call) {
  Entry entry;
  fuse::Step step;
  Emitter emitter(call, infer(call));
  return take(emitter.emit(entry, step));
}

}  // namespace torch_tpu::aten
