// What a rule sees: the arguments of one ATen call as typed StableHLO values and plain C++ attributes, and the types
// that its results must have. No PyTorch type appears here or below.
#pragma once

#include <complex>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hlo/builder.h"

namespace torch_tpu::ops {

using hlo::Builder;
using hlo::Dims;
using hlo::Type;
using hlo::Value;
using hlo::Values;

// Which kind of device the program is for: rows may differ where the platforms do.
enum class Platform { kCpu, kTpu };

// A `Scalar` argument: a 0-d operand of the program (f64, i64, bool or c128), or, where the row lists the value, a
// specialised constant.
struct ScalarArg {
  Value value;                     // rank 0; always set, a constant when specialised
  std::optional<double> constant;  // set only when specialised
};

// One argument of the functional schema, in the schema's order.
struct Arg {
  enum class Kind {
    kNone,        // an optional that is absent
    kTensor,      // value, wrapped
    kTensorList,  // values (an absent entry of Tensor?[] is a default-constructed Value)
    kScalar,
    kScalarList,  // values
    kInt,         // int, SymInt, and ScalarType / MemoryFormat / Layout given as ints are kDType / kInt
    kIntList,
    kDouble,
    kDoubleList,
    kBool,
    kBoolList,
    kString,
    kDType,
    kOther,  // Device, Generator, ...: rules do not look at these
  };
  Kind kind = Kind::kNone;
  Value value;
  // A Python number that PyTorch wrapped into a 0-d tensor: takes part in type promotion as a number.
  bool wrapped = false;
  Values values;
  ScalarArg scalar;
  int64_t i = 0;
  double d = 0;
  bool b = false;
  std::string s;
  DType dtype = DType::kInvalid;
  std::vector<int64_t> ints;
  std::vector<double> doubles;
  std::vector<bool> bools;
};

class Args {
 public:
  explicit Args(std::vector<Arg> args) : args_(std::move(args)) {}
  size_t size() const { return args_.size(); }
  const Arg& at(size_t i) const { return args_[i]; }
  bool none(size_t i) const { return i >= args_.size() || args_[i].kind == Arg::Kind::kNone; }
  // A tensor; an absent optional gives a default-constructed Value.
  Value tensor(size_t i) const { return none(i) ? Value() : args_[i].value; }
  const Values& tensors(size_t i) const { return args_[i].values; }
  // A Scalar as a 0-d value of its own dtype (f64 / i64 / bool / c128). Convert it where it is used.
  Value scalar(size_t i) const { return none(i) ? Value() : args_[i].scalar.value; }
  // The number itself, only where the row specialises on it.
  std::optional<double> scalar_constant(size_t i) const { return none(i) ? std::nullopt : args_[i].scalar.constant; }
  int64_t integer(size_t i) const { return args_[i].i; }
  int64_t integer_or(size_t i, int64_t otherwise) const { return none(i) ? otherwise : args_[i].i; }
  double number(size_t i) const { return args_[i].d; }
  double number_or(size_t i, double otherwise) const { return none(i) ? otherwise : args_[i].d; }
  bool flag(size_t i) const { return args_[i].b; }
  bool flag_or(size_t i, bool otherwise) const { return none(i) ? otherwise : args_[i].b; }
  const std::string& string(size_t i) const { return args_[i].s; }
  std::string string_or(size_t i, std::string otherwise) const { return none(i) ? otherwise : args_[i].s; }
  const std::vector<int64_t>& ints(size_t i) const { return args_[i].ints; }
  std::vector<int64_t> ints_or(size_t i, std::vector<int64_t> otherwise) const {
    return none(i) ? otherwise : args_[i].ints;
  }
  const std::vector<double>& numbers(size_t i) const { return args_[i].doubles; }
  const std::vector<bool>& flags(size_t i) const { return args_[i].bools; }
  DType dtype_or(size_t i, DType otherwise) const { return none(i) ? otherwise : args_[i].dtype; }

 private:
  std::vector<Arg> args_;
};

class Context {
 public:
  Context(Builder& builder, std::string op, std::vector<Type> outs)
      : b(builder), op(std::move(op)), outs(std::move(outs)) {}

  Builder& b;
  // "aten::add.Tensor"
  std::string op;
  // Inferred types of the results of the functional form, in order. The rule's values must have exactly these types.
  // A result that PyTorch leaves undefined (output_mask false) has dtype kInvalid: return a default Value for it.
  std::vector<Type> outs;
  Platform platform = Platform::kCpu;
  hlo::Precision precision = hlo::Precision::kHighest;
  bool deterministic = false;

  const Type& out(size_t i = 0) const { return outs[i]; }

  // Remembers an error in the house grammar, "op: message"; the result is a placeholder.
  Value fail(std::string message) { return b.fail(ErrorCode::kInvalidArgument, op + ": " + std::move(message)); }

  // For rows marked random: a u64[2] operand {seed, offset} of this call's generator.
  Value rng_state;
  // Philox blocks that this call uses; 0: one for every four elements of the largest result or written argument.
  int64_t random_blocks = 0;

  // Reports that `bad` (bool, any shape) must be all false: an index out of range, or what Row::checking says.
  // Collected into one word per program; whether and when the user sees the error is the runtime's business. Only when
  // `index_checks` is set.
  void check_index(Value bad);
  bool index_checks = false;
  Values bad_indices;  // rank-0 bools gathered by check_index
};

// Every rule has this form. Rules never throw: mistakes go through Context::fail.
using Rule = std::function<Values(Context&, const Args&)>;

}  // namespace torch_tpu::ops
