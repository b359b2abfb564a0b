// Registers every row of the op table, with its in-place and out= forms.
#include "aten/register.h"

#include <torch/library.h>

#include <map>
#include <set>

#include "aten/kernel.h"
#include "aten/plan.h"
#include "aten/scalar_cache.h"
#include "runtime/memory.h"

namespace torch_tpu::aten {
namespace {

std::vector<std::string>& problems() {
  static auto* list = new std::vector<std::string>;
  return *list;
}
std::vector<std::string>& names() {
  static auto* list = new std::vector<std::string>;
  return *list;
}
std::map<std::string, const OpKernel*>& kernels() {
  static auto* map = new std::map<std::string, const OpKernel*>;
  return *map;
}

// Rows of PyTorch's ops and of our own ("tpu::"). Leaked, as TORCH_LIBRARY_IMPL's are.
torch::Library& library_of(const std::string& name) {
  static auto* libraries = new std::map<std::string, torch::Library*>;
  const std::string space = name.substr(0, name.find("::"));
  torch::Library*& library = (*libraries)[space];
  if (library == nullptr)
    library = new torch::Library(torch::Library::IMPL, space, c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  return *library;
}

void add(std::set<std::string>& seen, Plan plan) {
  const std::string name = plan.name;
  // A kernel written by hand goes before a row; a row of its own before the form that another row implies.
  if (plan.op.hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1) || !seen.insert(name).second) return;
  names().push_back(name);
  auto kernel = std::make_unique<OpKernel>(std::move(plan));
  kernels()[name] = kernel.get();  // lives as long as the registration: for ever
  library_of(name).impl(name.c_str(), torch::CppFunction::makeFromBoxedFunctor(std::move(kernel)));
}

void register_all() {
  std::set<std::string> seen;
  std::vector<std::pair<const ops::Row*, Plan>> bases;
  for (const ops::Row& row : ops::table()) {
    std::string problem;
    auto plan = plan_for_row(row, &problem);
    if (!plan) {
      problems().push_back(problem);
      continue;
    }
    add(seen, *plan);
    bases.emplace_back(&row, std::move(*plan));
  }
  for (const auto& [row, plan] : bases)
    for (Plan& variant : plans_of_variants(*row, plan)) add(seen, std::move(variant));
}

}  // namespace

void register_rows() {
  // Not a TORCH_LIBRARY_IMPL block: rows are built from tables of other files, whose initialisers may run later than
  // this file's.
  static const bool once = [] {
    register_all();
    // Under memory pressure the cached numbers go; programs stay, they cost no device memory worth their compile.
    runtime::add_reclaimer(&clear_scalar_cache);
    return true;
  }();
  static_cast<void>(once);
}

const std::vector<std::string>& row_problems() { return problems(); }
const std::vector<std::string>& registered_ops() { return names(); }
const Plan* find_plan(const std::string& name) {
  auto found = kernels().find(name);
  return found == kernels().end() ? nullptr : &found->second->plan();
}

}  // namespace torch_tpu::aten
