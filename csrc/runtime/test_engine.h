// For tests: the embedded engine with two devices, and programs whose running time is known.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "runtime/engine.h"
#include "runtime/slot.h"

namespace torch_tpu::runtime::testing {

// Opens the engine on first use.
inline Engine& engine() {
  static Engine* const opened = [] {
    setenv("TORCH_TPU_NUM_DEVICES", "2", 1);
    Engine::configure("", TORCH_TPU_EMBEDDED_PLUGIN);
    Result<Engine*> result = Engine::get();
    if (!result.ok()) {
      ADD_FAILURE() << result.error().message;
      std::abort();
    }
    return result.value();
  }();
  return *opened;
}

// One f32[count] argument, one result of the same type: x + x.
inline std::string doubling(int64_t count) {
  const std::string type = "tensor<" + std::to_string(count) + "xf32>";
  return "module { func.func @main(%x: " + type + ") -> " + type + " { %y = stablehlo.add %x, %x : " + type +
         " return %y : " + type + " } }";
}

// The same type, but `rounds` times x + sin x: tens of milliseconds per ten rounds of a million elements. The addition
// matters: the engine runs a program inside Execute unless it counts a thousand additions or products.
inline std::string slow(int64_t count, int rounds) {
  const std::string type = "tensor<" + std::to_string(count) + "xf32>";
  return "module { func.func @main(%a: " + type + ") -> " + type + R"( {
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %r:2 = stablehlo.while(%i = %zero, %x = %a) : tensor<i32>, )" +
         type + R"(
    cond {
      %n = stablehlo.constant dense<)" +
         std::to_string(rounds) + R"(> : tensor<i32>
      %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    } do {
      %one = stablehlo.constant dense<1> : tensor<i32>
      %j = stablehlo.add %i, %one : tensor<i32>
      %s = stablehlo.sine %x : )" +
         type + R"(
      %y = stablehlo.add %s, %x : )" +
         type + R"(
      stablehlo.return %j, %y : tensor<i32>, )" +
         type + R"(
    }
    return %r#1 : )" +
         type + " } }";
}

inline pjrt::Executable compile(const std::string& text) {
  Result<pjrt::Executable> compiled = engine().client().compile(text, {});
  if (!compiled.ok()) ADD_FAILURE() << compiled.error().message;
  return compiled.ok() ? compiled.take() : pjrt::Executable();
}

inline ValueRef upload(const std::vector<float>& data, int device = 0) {
  const Shape shape{static_cast<int64_t>(data.size())};
  Result<pjrt::Buffer> buffer = engine().client().from_host(data.data(), DType::kF32, shape, device);
  if (!buffer.ok()) ADD_FAILURE() << buffer.error().message;
  return ValueRef(new BufferValue(buffer.take(), {DType::kF32, shape}, device, static_cast<int64_t>(data.size() * 4)));
}

// Runs a one-argument one-result program and returns the result and its completion event.
struct Submitted {
  ValueRef result;
  pjrt::Event completion;
};
inline Submitted submit(const pjrt::Executable& program, const ValueRef& argument) {
  PJRT_Buffer* arguments[] = {argument->buffer.get()};
  PJRT_Buffer* outputs[1] = {};
  pjrt::Executable::Call call;
  call.arguments = arguments;
  call.argument_count = 1;
  call.device = argument->device;
  call.want_completion = true;
  Result<pjrt::Event> event = program.execute(call, outputs, 1);
  if (!event.ok()) ADD_FAILURE() << event.error().message;
  pjrt::Buffer buffer(&engine().client(), outputs[0]);
  return {ValueRef(new BufferValue(std::move(buffer), argument->type, argument->device, argument->bytes)),
          event.take()};
}

}  // namespace torch_tpu::runtime::testing
