#include "aten/plan.h"

#include <ATen/core/function_schema.h>

#include <atomic>
#include <unordered_map>

namespace torch_tpu::aten {
namespace {

uint64_t next_id() {
  static std::atomic<uint64_t> id{1};
  return id.fetch_add(1);
}

ArgKind list_kind(const c10::TypePtr& element) {
  switch (element->kind()) {
    case c10::TypeKind::TensorType:
      return ArgKind::kTensorList;
    case c10::TypeKind::NumberType:
      return ArgKind::kScalarList;
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
      return ArgKind::kIntList;
    case c10::TypeKind::FloatType:
      return ArgKind::kDoubleList;
    case c10::TypeKind::BoolType:
      return ArgKind::kBoolList;
    case c10::TypeKind::OptionalType:
      return list_kind(element->castRaw<c10::OptionalType>()->getElementType());
    default:
      return ArgKind::kOther;
  }
}

ArgKind kind_of(const c10::Argument& arg) {
  // real_type keeps ScalarType, Layout and MemoryFormat apart, which `type` shows as plain ints.
  c10::TypePtr type = arg.real_type();
  if (type->kind() == c10::TypeKind::OptionalType) type = type->castRaw<c10::OptionalType>()->getElementType();
  switch (type->kind()) {
    case c10::TypeKind::TensorType:
      return ArgKind::kTensor;
    case c10::TypeKind::NumberType:
      return ArgKind::kScalar;
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
      return ArgKind::kInt;
    case c10::TypeKind::FloatType:
      return ArgKind::kDouble;
    case c10::TypeKind::BoolType:
      return ArgKind::kBool;
    case c10::TypeKind::StringType:
      return ArgKind::kString;
    case c10::TypeKind::ScalarTypeType:
      return ArgKind::kDType;
    case c10::TypeKind::GeneratorType:
      return ArgKind::kGenerator;
    case c10::TypeKind::DeviceObjType:
      return ArgKind::kDevice;
    case c10::TypeKind::ListType:
      return list_kind(type->castRaw<c10::ListType>()->getElementType());
    case c10::TypeKind::LayoutType:
    case c10::TypeKind::MemoryFormatType:
      return ArgKind::kInt;
    default:
      return ArgKind::kOther;
  }
}

bool writes(const c10::Argument& arg) { return arg.alias_info() != nullptr && arg.alias_info()->isWrite(); }

bool is_factory_option(const std::string& name) {
  return name == "dtype" || name == "layout" || name == "device" || name == "pin_memory";
}

void fill_returns(Plan& plan) {
  const auto& schema = plan.op.schema();
  for (const auto& result : schema.returns()) {
    ReturnPlan r;
    r.list = result.type()->kind() == c10::TypeKind::ListType;
    if (const auto* alias = result.alias_info(); alias != nullptr && alias->isWrite()) {
      for (size_t i = 0; i < schema.arguments().size(); ++i) {
        const auto* info = schema.arguments()[i].alias_info();
        if (info != nullptr && info->beforeSets() == alias->beforeSets()) r.alias_of = static_cast<int>(i);
      }
    }
    plan.returns.push_back(r);
  }
}

void fill_args(Plan& plan) {
  for (size_t i = 0; i < plan.op.schema().arguments().size(); ++i) {
    const auto& arg = plan.op.schema().arguments()[i];
    ArgPlan a{kind_of(arg)};
    a.written = writes(arg);
    a.overwritten = a.written && plan.form == Form::kOut;
    if (a.written) plan.written.push_back(static_cast<int>(i));
    plan.args.push_back(a);
  }
  fill_returns(plan);
  plan.name = toString(plan.op.operator_name());
  plan.functional_args = static_cast<int>(plan.functional.schema().arguments().size());
  plan.id = next_id();
}

// Overloads by base name ("aten::add").
const std::unordered_map<std::string, std::vector<c10::OperatorName>>& overloads() {
  static const auto* table = [] {
    auto* t = new std::unordered_map<std::string, std::vector<c10::OperatorName>>;
    for (const auto& name : c10::Dispatcher::singleton().getAllOpNames()) (*t)[name.name].push_back(name);
    return t;
  }();
  return *table;
}

// Maps the variant's arguments to the functional ones by name; false if they do not correspond.
bool match_arguments(const c10::FunctionSchema& functional, const c10::FunctionSchema& variant, bool out,
                     std::vector<int>& map) {
  map.clear();
  std::vector<bool> used(functional.arguments().size(), false);
  for (const auto& arg : variant.arguments()) {
    int found = -1;
    if (!(out && writes(arg))) {
      for (size_t k = 0; k < functional.arguments().size(); ++k) {
        const auto& f = functional.arguments()[k];
        if (f.name() == arg.name() && *f.type() == *arg.type()) found = static_cast<int>(k);
      }
      if (found < 0) return false;
      used[found] = true;
    }
    map.push_back(found);
  }
  for (size_t k = 0; k < used.size(); ++k)
    if (!used[k] && !(out && is_factory_option(functional.arguments()[k].name()))) return false;
  return true;
}

// An op for which PyTorch has a CPU kernel beside the composite (silu_backward) takes one of ours as well: PyTorch
// calls it only where no gradient is asked for.
bool is_composite_implicit(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
         !op.hasKernelForDispatchKey(c10::DispatchKey::CPU);
}

std::optional<Plan> variant_plan(const ops::Row& row, const Plan& base, const c10::OperatorName& name, Form form) {
  auto op = c10::Dispatcher::singleton().findSchema(name);
  if (!op || is_composite_implicit(*op)) return std::nullopt;
  const auto& schema = op->schema();
  size_t written = 0;
  for (const auto& arg : schema.arguments()) written += writes(arg);
  std::vector<int> map;
  if (!match_arguments(base.op.schema(), schema, form == Form::kOut, map)) return std::nullopt;
  if (form == Form::kOut && written != base.op.schema().returns().size()) return std::nullopt;
  if (form == Form::kInplace && !(written == 1 && writes(schema.arguments()[0]))) return std::nullopt;
  Plan plan(*op, base.op);
  plan.row = &row;
  plan.form = form;
  fill_args(plan);
  for (size_t i = 0; i < map.size(); ++i) plan.args[i].functional = map[i];
  if (form == Form::kInplace) plan.args[0].overwritten = row.ignores_self;
  return plan;
}

}  // namespace

std::optional<Plan> plan_for_row(const ops::Row& row, std::string* problem) {
  const size_t dot = row.name.find('.');
  const c10::OperatorName name(row.name.substr(0, dot), dot == std::string::npos ? "" : row.name.substr(dot + 1));
  auto op = c10::Dispatcher::singleton().findSchema(name);
  if (!op) {
    *problem = row.name + ": PyTorch has no such op";
    return std::nullopt;
  }
  if (is_composite_implicit(*op)) {
    *problem = row.name + ": is CompositeImplicitAutograd, a kernel would take its gradient away";
    return std::nullopt;
  }
  Plan plan(*op, *op);
  plan.row = &row;
  fill_args(plan);
  for (int i : row.writes) {
    plan.args[i].written = true;
    plan.written.push_back(i);
  }
  for (size_t i = 0; i < plan.args.size(); ++i) plan.args[i].functional = static_cast<int>(i);
  plan.form = plan.written.empty() ? Form::kFunctional : Form::kMutating;
  if (plan.form == Form::kMutating) plan.args[0].overwritten = row.ignores_self;
  return plan;
}

Plan plan_overwriting(const ops::Row& row, const std::string& op, int written) {
  auto handle = c10::Dispatcher::singleton().findSchemaOrThrow(op.c_str(), "");
  Plan plan(handle, handle);
  plan.row = &row;
  plan.form = Form::kMutating;
  plan.infers = false;
  fill_args(plan);
  for (size_t i = 0; i < plan.args.size(); ++i) plan.args[i].functional = static_cast<int>(i);
  plan.args[written].written = plan.args[written].overwritten = true;
  plan.written = {written};
  return plan;
}

std::vector<Plan> plans_of_variants(const ops::Row& row, const Plan& base) {
  std::vector<Plan> plans;
  if (base.form != Form::kFunctional) return plans;
  const std::string& own = base.op.operator_name().name;
  const auto& all = overloads();
  if (auto found = all.find(own); found != all.end())
    for (const auto& name : found->second)
      if (name != base.op.operator_name())
        if (auto plan = variant_plan(row, base, name, Form::kOut)) plans.push_back(std::move(*plan));
  if (auto found = all.find(own + "_"); found != all.end())
    for (const auto& name : found->second)
      if (auto plan = variant_plan(row, base, name, Form::kInplace)) plans.push_back(std::move(*plan));
  return plans;
}

}  // namespace torch_tpu::aten
