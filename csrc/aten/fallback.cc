#include "aten/fallback.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/CPUFallback.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <mutex>
#include <set>

#include "aten/capture.h"
#include "aten/device.h"
#include "aten/generator.h"
#include "aten/host_view.h"
#include "aten/modes.h"
#include "aten/storage.h"
#include "runtime/statistics.h"

namespace torch_tpu::aten {
namespace {

std::string describe_arguments(const torch::jit::Stack& stack, size_t count) {
  std::string text;
  for (size_t i = stack.size() - count; i < stack.size(); ++i) {
    if (!stack[i].isTensor() || !stack[i].toTensor().defined()) continue;
    const at::Tensor& t = stack[i].toTensor();
    if (!text.empty()) text += ", ";
    text += std::string(c10::toString(t.scalar_type())) + to_string(t.sizes().vec());
  }
  return text;
}

bool returns_view(const c10::FunctionSchema& schema) {
  for (const auto& r : schema.returns())
    if (r.alias_info() != nullptr && !r.alias_info()->isWrite()) return true;
  return false;
}

void warn_once(const std::string& name, const std::string& arguments, const std::string& reason) {
  static std::mutex mutex;
  static auto* seen = new std::set<std::string>;
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (!seen->insert(name).second) return;
  }
  TORCH_WARN(
      name, "(", arguments, ") runs on the CPU: ", reason,
      ". This is announced once per op; torch.tpu.stats() counts them, torch.tpu.fallback(\"error\") forbids them.");
}

// A device generator cannot drive a CPU kernel: a CPU generator seeded from its stream does, so that the numbers still
// follow torch.manual_seed.
void replace_generators(torch::jit::Stack* stack, size_t count, int device) {
  for (size_t i = stack->size() - count; i < stack->size(); ++i) {
    c10::IValue& v = (*stack)[i];
    if (!v.isGenerator() || v.toGenerator().device().type() != at::kPrivateUse1) continue;
    const auto [seed, offset] = resolve(v.toGenerator(), device).reserve(1);
    v = at::make_generator<at::CPUGeneratorImpl>(seed ^ (offset * 0x9E3779B97F4A7C15ull));
  }
}

int device_of(const torch::jit::Stack& stack, size_t count) {
  for (size_t i = stack.size() - count; i < stack.size(); ++i) {
    if (stack[i].isTensor() && stack[i].toTensor().defined() && stack[i].toTensor().is_privateuseone())
      return stack[i].toTensor().device().index();
    if (!stack[i].isTensorList()) continue;
    for (const auto& item : stack[i].toListRef())
      if (item.toTensor().defined() && item.toTensor().is_privateuseone()) return item.toTensor().device().index();
  }
  return device_index(-1);
}

void boxed_fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) { fall_back(op, stack, ""); }

}  // namespace

void fall_back(const c10::OperatorHandle& op, torch::jit::Stack* stack, const std::string& reason) {
  const auto& schema = op.schema();
  const std::string name = toString(op.operator_name());
  if (Capture* capture = Capture::current())
    capture->refuse(name, reason.empty() ? "the tpu device has no kernel for it" : reason);
  TORCH_CHECK_NOT_IMPLEMENTED(
      !returns_view(schema), name,
      ": this view op is not implemented for the tpu device, and a copy made on the CPU would not be a view");
  const size_t count = schema.arguments().size();
  const std::string why = reason.empty() ? "the tpu device has no kernel for it" : reason;
  switch (fallback_mode()) {
    case FallbackMode::kError:
      TORCH_CHECK_NOT_IMPLEMENTED(false, name, "(", describe_arguments(*stack, count), "): ", why,
                                  ", and CPU fallback is forbidden (torch.tpu.fallback)");
    case FallbackMode::kWarn:
      warn_once(name, describe_arguments(*stack, count), why);
      break;
    case FallbackMode::kQuiet:
      break;
  }
  runtime::count_fallback(name);
  replace_generators(stack, count, device_of(*stack, count));
  at::native::cpu_fallback(op, stack, /*error_on_views=*/true);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&boxed_fallback>()); }

}  // namespace torch_tpu::aten
