// Runs what a Builder has written on the engine that tests run on, bytes in and bytes out.
#pragma once

#include <utility>
#include <vector>

#include "hlo/builder.h"
#include "hlo/verify.h"
#include "pjrt/test_engine.h"

namespace torch_tpu::runtime {

using Bytes = std::vector<unsigned char>;

struct Tensor {
  hlo::Type type;
  Bytes bytes;
};

// The results' bytes; an empty list and a test failure on any error.
inline std::vector<Bytes> run_program(hlo::Builder& b, const hlo::Values& results, const std::vector<Tensor>& inputs) {
  const auto failed = [](const std::string& message) {
    ADD_FAILURE() << message;
    return std::vector<Bytes>();
  };
  auto text = b.finish(results, "test");
  if (!text.ok()) return failed(text.error().message);
  if (const Status status = hlo::verify_attributes(text.value()); !status.ok()) return failed(status.error().message);
  pjrt::CompileOptions options = pjrt::test_options();
  options.overrides = {{"xla_cpu_enable_fast_min_max", false},
                       {"xla_backend_optimization_level", int64_t{0}},
                       {"xla_llvm_disable_expensive_passes", true}};
  auto executable = pjrt::test_client().compile(text.value(), options);
  if (!executable.ok()) return failed(executable.error().message + "\n" + text.value());
  std::vector<pjrt::Buffer> arguments;
  std::vector<PJRT_Buffer*> pointers;
  for (const Tensor& input : inputs) {
    auto buffer = pjrt::test_client().from_host(input.bytes.data(), input.type.dtype, input.type.shape, 0);
    if (!buffer.ok()) return failed(buffer.error().message);
    arguments.push_back(buffer.take());
    pointers.push_back(arguments.back().get());
  }
  std::vector<PJRT_Buffer*> outputs(results.size());
  pjrt::Executable::Call call;
  call.arguments = pointers.data();
  call.argument_count = pointers.size();
  auto event = executable.value().execute(call, outputs.data(), outputs.size());
  if (!event.ok()) return failed(event.error().message + "\n" + text.value());
  std::vector<Bytes> all;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const pjrt::Buffer buffer(&pjrt::test_client(), outputs[i]);
    Bytes bytes(results[i].numel() * byte_size(results[i].dtype()));
    auto copied = buffer.to_host(bytes.data(), bytes.size());
    if (!copied.ok()) return failed(copied.error().message);
    if (const Status status = copied.value().wait(); !status.ok()) return failed(status.error().message);
    all.push_back(std::move(bytes));
  }
  return all;
}

}  // namespace torch_tpu::runtime
