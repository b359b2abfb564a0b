// Steps captured while a graph of ATen calls runs on stand-ins for its arguments, and the program they make.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "aten/capture.h"
#include "hlo/function.h"
#include "store/program_store.h"

namespace torch_tpu::graph {

// The user's options of XLA, by name.
using CompilerOptions = std::map<std::string, pjrt::OptionValue>;

// What a parameter of the program is at each run.
struct Parameter {
  enum class Kind { kSlot, kHostNumber, kConstant, kRandomState };
  Kind kind = Kind::kConstant;
  int index = -1;  // of the slot, of the argument, or of the random state
  runtime::ValueRef constant;
};
// What each run draws from a generator (the device's own if it is absent), used or not.
struct RandomState {
  std::optional<at::Generator> generator;
  uint64_t blocks = 0;
};
// Where a slot's value comes from.
struct Origin {
  enum class Kind { kNothing, kResult, kArgumentSlot, kHostNumber, kConstant };
  Kind kind = Kind::kNothing;
  int index = -1;
  runtime::ValueRef constant;
};
struct OutputSlot {
  int argument_slot = -1;  // the slot of an argument; else a new one of `bytes` with the value `origin`
  int64_t bytes = 0;
  Origin origin;
};
struct OutputTensor {
  int slot = -1;  // of the output slots
  std::vector<int64_t> sizes, strides;
  int64_t offset = 0;
  at::ScalarType dtype = at::kFloat;
  bool conj = false, neg = false;
};
struct Write {
  int argument_slot = -1;
  Origin origin;
};
struct Flag {
  int result = -1;
  std::string op, site;
  const char* sentence = nullptr;
};

// A graph's program for one layout of arguments.
struct Variant {
  store::ProgramRef program;  // null: the graph computes nothing
  int device = 0;
  std::vector<Parameter> parameters;
  std::vector<RandomState> random_states;
  std::vector<int> donated;  // parameters that may give their memory
  std::vector<hlo::Type> results;
  int64_t result_bytes = 0;
  std::vector<OutputSlot> slots;
  std::vector<OutputTensor> outputs;
  std::vector<Write> writes;
  std::vector<Flag> flags;
  size_t steps = 0;
};

class Capture final : public aten::Capture {
 public:
  // `device`: of the arguments, or -1.
  explicit Capture(int device) : device_(device) {}
  // Tensors that outlive the capture have no values.
  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  // A slot that stands for an argument's, and for a 0-dimensional argument in host memory.
  at::Tensor slot_argument(int index, int64_t bytes, const hlo::Type* value);
  at::Tensor number_argument(int index, at::ScalarType dtype);
  // The program that leaves these tensors, `written` being what stands for the arguments' slots. Compiles.
  std::shared_ptr<Variant> finish(const std::string& name, const CompilerOptions& options,
                                  const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& arguments);
  // Why an op could not be captured; empty if all could.
  const std::string& refused_op() const { return refused_op_; }
  const std::string& refused_why() const { return refused_why_; }

  void pay() override;
  bool makes_room(int, int64_t) override { return true; }
  void record(const fuse::StepRef& step, int device, std::span<runtime::ValueRef> inputs,
              std::span<runtime::ValueRef> outputs) override;
  bool join() override { return false; }
  aten::EntryRef entry(const aten::Call& call) override;
  runtime::ValueRef random_state(const std::optional<at::Generator>& generator, uint64_t blocks) override;
  runtime::ValueRef number(DType dtype, const unsigned char* bytes) override;
  void watch_flag(runtime::ValueRef flag, const std::string& op, const char* sentence) override;
  [[noreturn]] void refuse(const std::string& op, const std::string& why) override;

 private:
  struct Recorded {
    hlo::FunctionRef function;
    std::vector<fuse::Donation> donations;
    std::vector<runtime::ValueRef> inputs, outputs;
  };
  class Composer;

  runtime::ValueRef owed(hlo::Type type);
  runtime::ValueRef owed_parameter(hlo::Type type, Parameter parameter);

  int device_;
  std::vector<Recorded> steps_;
  std::vector<runtime::ValueRef> owed_;
  std::unordered_map<const runtime::BufferValue*, Parameter> parameters_;
  std::vector<RandomState> random_states_;
  std::map<std::pair<DType, std::string>, runtime::ValueRef> numbers_;
  std::map<std::vector<uint64_t>, aten::EntryRef> entries_;
  struct Watched {
    runtime::ValueRef value;
    std::string op, site;
    const char* sentence;
  };
  std::vector<Watched> flags_;
  std::string refused_op_, refused_why_;
};

}  // namespace torch_tpu::graph
