// For tests: builds the module of one rule from described arguments.
#pragma once

#include <string>
#include <vector>

#include "ops/table.h"

namespace torch_tpu::ops::testing {

class RuleCall {
 public:
  explicit RuleCall(std::string name) : name_(std::move(name)) {}

  RuleCall& tensor(DType dtype, Shape shape) {
    Arg arg;
    arg.kind = Arg::Kind::kTensor;
    arg.value = b_.parameter({dtype, std::move(shape)});
    return push(std::move(arg));
  }
  // A list of tensors; an invalid dtype stands for an absent entry.
  RuleCall& tensors(const std::vector<Type>& types) {
    Arg arg;
    arg.kind = Arg::Kind::kTensorList;
    for (const Type& type : types) arg.values.push_back(type.dtype == DType::kInvalid ? Value() : b_.parameter(type));
    return push(std::move(arg));
  }
  // An operand.
  RuleCall& scalar(DType dtype = DType::kF64) {
    Arg arg;
    arg.kind = Arg::Kind::kScalar;
    arg.scalar.value = b_.parameter({dtype, {}});
    return push(std::move(arg));
  }
  // A value that the row specialises on.
  RuleCall& constant(double v) {
    Arg arg;
    arg.kind = Arg::Kind::kScalar;
    arg.scalar = {b_.scalar(DType::kF64, v), v};
    return push(std::move(arg));
  }
  RuleCall& integer(int64_t v) {
    Arg arg;
    arg.kind = Arg::Kind::kInt;
    arg.i = v;
    return push(std::move(arg));
  }
  RuleCall& ints(std::vector<int64_t> v) {
    Arg arg;
    arg.kind = Arg::Kind::kIntList;
    arg.ints = std::move(v);
    return push(std::move(arg));
  }
  RuleCall& number(double v) {
    Arg arg;
    arg.kind = Arg::Kind::kDouble;
    arg.d = v;
    return push(std::move(arg));
  }
  RuleCall& flag(bool v) {
    Arg arg;
    arg.kind = Arg::Kind::kBool;
    arg.b = v;
    return push(std::move(arg));
  }
  RuleCall& text(std::string v) {
    Arg arg;
    arg.kind = Arg::Kind::kString;
    arg.s = std::move(v);
    return push(std::move(arg));
  }
  RuleCall& none() { return push(Arg()); }
  // With Context::index_checks set, as in debug mode.
  RuleCall& checking_indices() {
    index_checks_ = true;
    return *this;
  }
  RuleCall& on(Platform platform) {
    platform_ = platform;
    return *this;
  }

  // Runs the rule; checks that the results have the types `results`. `fresh` says how many of the last ones the
  // inferred types cover (rows that write arguments have none for those).
  Result<std::string> module(const std::vector<Type>& results, size_t fresh) {
    const Row* row = find_row(name_, platform_);
    if (row == nullptr) return Error{ErrorCode::kInternal, name_ + ": no row"};
    Context context(b_, name_, std::vector<Type>(results.end() - static_cast<int64_t>(fresh), results.end()));
    context.platform = platform_;
    context.index_checks = index_checks_;
    if (row->random) context.rng_state = b_.parameter({DType::kU64, {2}});
    Values values = row->rule(context, Args(args_));
    if (b_.error()) return *b_.error();
    if (index_checks_ && context.bad_indices.empty()) {
      return Error{ErrorCode::kInternal, name_ + ": checked no index"};
    }
    if (values.size() != results.size()) return Error{ErrorCode::kInternal, name_ + ": wrong number of results"};
    for (size_t i = 0; i < results.size(); ++i) {
      if (!values[i] || values[i].type() != results[i]) {
        return Error{ErrorCode::kInternal, name_ + ": result " + std::to_string(i) + " is " +
                                               (values[i] ? values[i].type().text() : "absent") + ", expected " +
                                               results[i].text()};
      }
    }
    return b_.finish(values);
  }
  Result<std::string> module(const std::vector<Type>& results) { return module(results, results.size()); }

 private:
  RuleCall& push(Arg arg) {
    args_.push_back(std::move(arg));
    return *this;
  }

  std::string name_;
  Platform platform_ = Platform::kCpu;
  bool index_checks_ = false;
  hlo::Builder b_;
  std::vector<Arg> args_;
};

}  // namespace torch_tpu::ops::testing
