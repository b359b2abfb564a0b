// The engine that tests run on: the embedded one, or the plugin that TORCH_TPU_TEST_PLUGIN names.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "pjrt/client.h"

#ifndef TORCH_TPU_EMBEDDED_PLUGIN  // set by CMake for the tests
#define TORCH_TPU_EMBEDDED_PLUGIN ""
#endif

namespace torch_tpu::pjrt {

inline PluginChoice test_plugin() {
  const char* path = std::getenv("TORCH_TPU_TEST_PLUGIN");
  return {path && *path ? path : TORCH_TPU_EMBEDDED_PLUGIN, "test"};
}

// Two devices; opened once, never closed.
inline const Client& test_client() {
  static const Client* const client = [] {
    Result<const Plugin*> plugin = Plugin::load(test_plugin());
    if (!plugin.ok()) {
      ADD_FAILURE() << plugin.error().message;
      std::abort();
    }
    Result<std::unique_ptr<Client>> made = Client::create(plugin.value(), {.device_count = 2, .threads = 2});
    if (!made.ok()) {
      ADD_FAILURE() << made.error().message;
      std::abort();
    }
    return made.take().release();
  }();
  return *client;
}

inline CompileOptions test_options() { return {.portable = test_client().portable_executables()}; }

// `main` of one argument list and one result list, in MLIR's generic form.
inline std::string test_module(const std::string& arguments, const std::string& body, const std::string& types,
                               const std::string& results, const std::string& attributes = "") {
  return "module @test {\n\"func.func\"() ({\n^bb0(" + arguments + "):\n" + body + "\n}) {" + "function_type = (" +
         types + ") -> (" + results + "), sym_name = \"main\"" + attributes + "} : () -> ()\n}\n";
}

// f(a, b) = a + b over `type`, e.g. "tensor<4xf32>". With `donate`, the result takes the memory of a.
inline std::string test_add(const std::string& type, bool donate = false) {
  return test_module("%a: " + type + ", %b: " + type,
                     "  %0 = \"stablehlo.add\"(%a, %b) : (" + type + ", " + type + ") -> " + type + "\n" +
                         "  \"func.return\"(%0) : (" + type + ") -> ()",
                     type + ", " + type, type, donate ? ", arg_attrs = [{tf.aliasing_output = 0 : i32}, {}]" : "");
}

template <typename T>
std::vector<T> read_back(const Buffer& buffer, size_t count) {
  std::vector<T> values(count);
  Result<Event> done = buffer.to_host(values.data(), count * sizeof(T));
  EXPECT_TRUE(done.ok()) << (done.ok() ? "" : done.error().message);
  if (!done.ok()) return values;
  Status status = done.value().wait();
  EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
  return values;
}

template <typename T>
Buffer upload(const std::vector<T>& values, DType dtype, int device = 0) {
  Result<Buffer> buffer = test_client().from_host(values.data(), dtype, {static_cast<int64_t>(values.size())}, device);
  EXPECT_TRUE(buffer.ok()) << (buffer.ok() ? "" : buffer.error().message);
  return buffer.ok() ? buffer.take() : Buffer();
}

inline Executable compile(const std::string& text) {
  Result<Executable> executable = test_client().compile(text, test_options());
  EXPECT_TRUE(executable.ok()) << (executable.ok() ? "" : executable.error().message);
  return executable.ok() ? executable.take() : Executable();
}

// Runs a program of one result.
inline Result<Buffer> run(const Executable& executable, const std::vector<const Buffer*>& arguments,
                          const std::vector<int64_t>& keep = {}, Event* completion = nullptr) {
  std::vector<PJRT_Buffer*> raw;
  for (const Buffer* argument : arguments) raw.push_back(argument->get());
  PJRT_Buffer* output = nullptr;
  Result<Event> done = executable.execute({.arguments = raw.data(),
                                           .argument_count = raw.size(),
                                           .non_donatable = keep.data(),
                                           .non_donatable_count = keep.size(),
                                           .want_completion = completion != nullptr},
                                          &output, 1);
  if (!done.ok()) return done.error();
  if (completion) *completion = done.take();
  return Buffer(&test_client(), output);
}

}  // namespace torch_tpu::pjrt
