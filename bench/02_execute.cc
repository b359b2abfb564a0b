// The floor under an eager `a + b` of 4 floats: PJRT Execute and the destruction of its result, nothing else.
//
//     bench_execute [plugin library]
//
// One JSON line per figure, microseconds per call, the minimum of the batches:
// {"bench", "contender", "figure", "value"}. "a + b sync us" awaits each result before it is destroyed.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "pjrt/client.h"

namespace torch_tpu::pjrt {
namespace {

constexpr int kBatches = 9, kCalls = 2000;

constexpr const char* kAdd = R"(module @add {
"func.func"() ({
^bb0(%a: tensor<4xf32>, %b: tensor<4xf32>):
  %0 = "stablehlo.add"(%a, %b) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  "func.return"(%0) : (tensor<4xf32>) -> ()
}) {function_type = (tensor<4xf32>, tensor<4xf32>) -> (tensor<4xf32>), sym_name = "main"} : () -> ()
}
)";

[[noreturn]] void fail(const Error& error) {
  std::fprintf(stderr, "bench_execute: %s\n", error.message.c_str());
  std::exit(1);
}

template <typename T>
T take(Result<T> result) {
  if (!result.ok()) fail(result.error());
  return result.take();
}

class Add {
 public:
  explicit Add(const Client& client)
      : client_(client),
        executable_(take(client.compile(kAdd, {.portable = client.portable_executables()}))),
        a_(take(client.from_host(kOnes, DType::kF32, {4}, 0))),
        b_(take(client.from_host(kOnes, DType::kF32, {4}, 0))) {}

  // Submits once; the result dies with the returned buffer.
  Buffer run() const {
    PJRT_Buffer* const arguments[] = {a_.get(), b_.get()};
    PJRT_Buffer* output = nullptr;
    take(executable_.execute({.arguments = arguments, .argument_count = 2}, &output, 1));
    return Buffer(&client_, output);
  }

  void await(const Buffer& result) const {
    const Status status = result.ready_event().wait();
    if (!status.ok()) fail(status.error());
  }

  void check() const {
    float values[4] = {};
    const Status status = take(run().to_host(values, sizeof(values))).wait();
    if (!status.ok()) fail(status.error());
    if (!std::all_of(std::begin(values), std::end(values), [](float v) { return v == 2.0f; }))
      fail({ErrorCode::kInternal, "add: wrong sum"});
  }

 private:
  static constexpr float kOnes[4] = {1, 1, 1, 1};
  const Client& client_;
  Executable executable_;
  Buffer a_, b_;
};

template <typename Body>
double best_microseconds(Body body) {
  double best = 1e30;
  for (int batch = 0; batch < kBatches; ++batch) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; ++i) body();
    const std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - start;
    best = std::min(best, taken.count() / kCalls);
  }
  return best;
}

void print(const char* figure, double value) {
  std::printf("{\"bench\": \"02_execute\", \"contender\": \"bare PJRT\", \"figure\": \"%s\", \"value\": %.4f}\n",
              figure, value);
}

void run(const std::string& library) {
  const Plugin* plugin = take(Plugin::load({library, "bench"}));
  const std::unique_ptr<Client> client = take(Client::create(plugin, {}));
  const Add add(*client);
  add.check();
  print("a + b host us", best_microseconds([&] { add.run(); }));
  print("a + b sync us", best_microseconds([&] {
          const Buffer result = add.run();
          add.await(result);
        }));
}

}  // namespace
}  // namespace torch_tpu::pjrt

int main(int argc, char** argv) {
  torch_tpu::pjrt::run(argc > 1 ? argv[1] : TORCH_TPU_EMBEDDED_PLUGIN);
  return 0;
}
