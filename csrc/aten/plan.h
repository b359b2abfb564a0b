// What one registered overload does: derived once from its schema and its row.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string>
#include <vector>

#include "ops/table.h"

namespace torch_tpu::aten {

// The forms that one functional row serves.
enum class Form {
  kFunctional,  // foo: fresh results
  kInplace,     // foo_: result 0 is written to argument 0
  kOut,         // foo.out: result i is written to out argument i
  kMutating,    // the row itself names an op that writes arguments (uniform_, native_batch_norm)
};

enum class ArgKind : uint8_t {
  kTensor,
  kTensorList,
  kScalar,
  kScalarList,
  kInt,
  kIntList,
  kDouble,
  kDoubleList,
  kBool,
  kBoolList,
  kString,
  kDType,
  kGenerator,
  kDevice,
  kOther,
};

struct ArgPlan {
  ArgKind kind;
  int functional = -1;  // position in the row's schema; -1: an out= argument
  bool written = false;
  bool overwritten = false;  // its old contents are never read: an out= argument, the destination of a copy
};

struct ReturnPlan {
  int alias_of = -1;  // returns this argument itself
  bool list = false;  // returns all fresh results as a list
};

struct Plan {
  const ops::Row* row = nullptr;
  Form form = Form::kFunctional;
  std::string name;                // "aten::add_.Tensor"
  c10::OperatorHandle op;          // this overload
  c10::OperatorHandle functional;  // the row's overload (== op unless in-place or out=)
  std::vector<ArgPlan> args;
  std::vector<int> written;  // argument positions, schema order
  std::vector<ReturnPlan> returns;
  int functional_args = 0;  // number of arguments of the row's schema
  bool infers = true;       // false: writes only, shapes were checked by the caller
  uint64_t id = 0;          // enters the key

  Plan(c10::OperatorHandle op, c10::OperatorHandle functional) : op(std::move(op)), functional(std::move(functional)) {}
};

// The plan for a row's own overload, or an explanation why it cannot have one (unknown op, CompositeImplicit op).
std::optional<Plan> plan_for_row(const ops::Row& row, std::string* problem);
// The plan of a row whose overload writes `written` without saying so in its schema (`_copy_from`).
Plan plan_overwriting(const ops::Row& row, const std::string& op, int written);
// Plans of the in-place and out= forms found through the schema. Empty for mutating rows.
std::vector<Plan> plans_of_variants(const ops::Row& row, const Plan& base);

}  // namespace torch_tpu::aten
