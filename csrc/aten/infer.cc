#include "aten/infer.h"

#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>

#include <map>

#include "aten/meta_kernels.h"
#include "aten/storage.h"

namespace torch_tpu::aten {
namespace {

// Meta twins of the call's tensors. Arguments that share a slot share a meta storage, so that PyTorch's own overlap
// checks see what they would see on a device.
class MetaTensors {
 public:
  at::Tensor twin(const at::Tensor& t) {
    // Numbers in host memory stay what they are: meta kernels take them beside meta tensors.
    if (!t.defined() || !t.is_privateuseone()) return t;
    at::Tensor meta = on_storage(storage_for(slot_of(t)), t);
    auto* impl = meta.unsafeGetTensorImpl();
    if (t.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
    if (t.is_conj()) impl->_set_conj(true);
    if (t.is_neg()) impl->_set_neg(true);
    return meta;
  }

 private:
  static c10::Storage new_storage(size_t bytes) {
    auto flat =
        at::empty_strided({static_cast<int64_t>(bytes)}, {1}, at::TensorOptions().dtype(at::kByte).device(at::kMeta));
    return flat.storage();
  }
  c10::Storage storage_for(runtime::Slot* slot) {
    auto found = storages_.find(slot);
    if (found == storages_.end()) found = storages_.emplace(slot, new_storage(slot->bytes())).first;
    return found->second;
  }
  static at::Tensor on_storage(c10::Storage storage, const at::Tensor& like) {
    auto tensor = at::detail::make_tensor_base<at::TensorImpl>(
        std::move(storage), c10::DispatchKeySet(c10::DispatchKey::Meta), like.dtype());
    tensor.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
    return at::Tensor(std::move(tensor));
  }
  std::map<runtime::Slot*, c10::Storage> storages_;
};

c10::IValue meta_argument(const Call& call, size_t i, MetaTensors& twins) {
  const c10::IValue& v = call.arguments[i];
  const ArgKind kind = call.plan->args[i].kind;
  if (v.isNone()) return v;
  if (kind == ArgKind::kTensor) return twins.twin(v.toTensor());
  if (kind == ArgKind::kDevice) return c10::Device(c10::kMeta);
  if (kind == ArgKind::kGenerator) return c10::IValue();
  if (kind != ArgKind::kTensorList) return v;
  if (v.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const c10::IValue& item : v.toListRef()) list.push_back(twins.twin(item.toTensor()));
    return list;
  }
  c10::List<std::optional<at::Tensor>> list;
  for (const c10::IValue& item : v.toListRef())
    list.push_back(item.isTensor() ? std::optional<at::Tensor>(twins.twin(item.toTensor())) : std::nullopt);
  return list;
}

// Runs the meta kernel below autograd, autocast and user modes: the compiled one where PyTorch has it, else the one in
// the dispatcher, which may be Python.
void call_meta(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  if (const c10::KernelFunction* compiled = meta_kernel(toString(op.operator_name()))) {
    compiled->callBoxed(op, c10::DispatchKeySet(c10::DispatchKey::Meta), stack);
    return;
  }
  c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  op.callBoxed(stack);
}

bool has_meta(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::Meta) ||
         op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) ||
         op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional);
}

OutMeta meta_of(const at::Tensor& t) {
  OutMeta m;
  m.defined = t.defined();
  if (!m.defined) return m;
  m.type = t.scalar_type();
  m.sizes = t.sizes().vec();
  m.strides = t.strides().vec();
  return m;
}

std::vector<OutMeta> collect(const Plan& plan, const torch::jit::Stack& stack) {
  std::vector<OutMeta> outs;
  const auto& returns = plan.functional.schema().returns();
  for (size_t i = 0; i < returns.size(); ++i) {
    const auto* alias = returns[i].alias_info();
    if (alias != nullptr && alias->isWrite()) continue;
    const c10::IValue& v = stack[stack.size() - returns.size() + i];
    if (v.isTensor()) {
      outs.push_back(meta_of(v.toTensor()));
    } else if (v.isTensorList()) {
      for (const c10::IValue& item : v.toListRef()) outs.push_back(meta_of(item.toTensor()));
    } else {
      OutMeta number;
      if (v.isInt()) number.number = v.toInt();
      outs.push_back(number);
    }
  }
  return outs;
}

// Arguments of the functional form, in its order, as meta.
torch::jit::Stack functional_stack(const Call& call, MetaTensors& twins) {
  const Plan& plan = *call.plan;
  torch::jit::Stack stack(plan.functional_args);
  for (int k = 0; k < plan.functional_args; ++k) {
    const auto& arg = plan.functional.schema().arguments()[k];
    stack[k] =
        arg.name() == "device" ? c10::IValue(c10::Device(c10::kMeta)) : arg.default_value().value_or(c10::IValue());
  }
  for (size_t i = 0; i < plan.args.size(); ++i)
    if (plan.args[i].functional >= 0) stack[plan.args[i].functional] = meta_argument(call, i, twins);
  return stack;
}

// Factories take their dtype from the out= tensor when it is one.
void fill_factory_dtype(const Call& call, torch::jit::Stack& stack) {
  const Plan& plan = *call.plan;
  if (plan.form != Form::kOut || plan.written.empty()) return;
  const auto& arguments = plan.functional.schema().arguments();
  for (size_t k = 0; k < arguments.size(); ++k) {
    if (arguments[k].name() != "dtype" || !stack[k].isNone()) continue;
    bool given = false;
    for (const auto& arg : plan.args) given |= arg.functional == static_cast<int>(k);
    if (given) continue;
    const at::Tensor* out = tensor_argument(call, plan.written[0]);
    if (out != nullptr) stack[k] = static_cast<int64_t>(out->scalar_type());
  }
}

void run_functional(const Call& call, MetaTensors& twins, Inference& result) {
  const Plan& plan = *call.plan;
  torch::jit::Stack stack = functional_stack(call, twins);
  fill_factory_dtype(call, stack);
  if (OwnInference own = own_inference(toString(plan.functional.operator_name()))) {
    own(&stack);
  } else {
    TORCH_CHECK_NOT_IMPLEMENTED(has_meta(plan.functional), plan.name,
                                ": PyTorch has no shape inference for it and neither do we");
    call_meta(plan.functional, &stack);
  }
  result.outs = collect(plan, stack);
}

class Quiet final : public c10::WarningHandler {
 public:
  void process(const c10::Warning&) override {}
};

// The variant's own meta kernel: raises for results that cannot be cast or broadcast into their destination, resizes
// meta out= arguments where PyTorch would.
void run_variant(const Call& call, Inference& result) {
  const Plan& plan = *call.plan;
  MetaTensors twins;
  torch::jit::Stack stack;
  for (size_t i = 0; i < plan.args.size(); ++i) stack.push_back(meta_argument(call, i, twins));
  std::vector<at::Tensor> outs;
  if (plan.form == Form::kOut)
    for (int i : plan.written) outs.push_back(stack[i].toTensor());
  // A resized out= is announced once, when the real tensor is resized.
  Quiet quiet;
  c10::WarningUtils::WarningHandlerGuard guard(&quiet);
  // In-place forms without compiled inference, and those that ours replaces, are checked against the functional result
  // by our caller.
  const bool ours = own_inference(toString(plan.functional.operator_name())) != nullptr;
  if (plan.form == Form::kOut ? has_meta(plan.op) : meta_kernel(plan.name) != nullptr && !ours)
    call_meta(plan.op, &stack);
  result.resize.resize(plan.written.size());
  for (size_t k = 0; k < outs.size(); ++k) {
    const OutMeta& wanted = result.outs[k];
    const at::Tensor* real = tensor_argument(call, plan.written[k]);
    if (wanted.defined && real != nullptr && real->sizes() != at::IntArrayRef(wanted.sizes))
      result.resize[k] = wanted.sizes;
  }
}

}  // namespace

// PyTorch's own memory checks for in-place and out= kernels, which meta kernels written in Python leave out.
static void check_overlap(const Call& call) {
  const std::string& base = call.plan->functional.operator_name().name;
  // Filling an expanded tensor is well defined: every element gets the one value.
  if (base == "aten::fill" || base == "aten::zero") return;
  for (const TensorUse& out : call.tensors) {
    if (!out.written || out.tensor == nullptr) continue;
    at::assert_no_internal_overlap(*out.tensor);
    for (const TensorUse& in : call.tensors)
      if (!in.written && in.tensor != nullptr && in.operand == out.operand && in.operand >= 0)
        at::assert_no_partial_overlap(*out.tensor, *in.tensor);
  }
}

Inference infer(const Call& call) {
  check_overlap(call);
  Inference result;
  MetaTensors twins;
  const Plan& plan = *call.plan;
  if (call.element >= 0 || !plan.infers) return result;
  run_functional(call, twins, result);
  if (plan.form == Form::kInplace || plan.form == Form::kOut) {
    run_variant(call, result);
  }
  if (plan.form == Form::kInplace && !result.outs.empty()) {
    const at::Tensor* self = tensor_argument(call, plan.written[0]);
    TORCH_CHECK(self->sizes() == at::IntArrayRef(result.outs[0].sizes), "output with shape ", self->sizes(),
                " doesn't match the broadcast shape ", at::IntArrayRef(result.outs[0].sizes));
    TORCH_CHECK(c10::canCast(result.outs[0].type, self->scalar_type()), "result type ",
                c10::toString(result.outs[0].type), " can't be cast to the desired output type ",
                c10::toString(self->scalar_type()));
  }
  return result;
}

}  // namespace torch_tpu::aten
