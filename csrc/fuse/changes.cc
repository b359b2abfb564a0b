#include "fuse/changes.h"

#include <algorithm>

#include "base/log.h"

namespace torch_tpu::fuse {
namespace {

constexpr size_t kMostSequences = 256;
// Of each sequence, to bound what is kept: a difference is nearly always among the first ops.
constexpr size_t kMostSteps = 64;

// What the first differing type is; empty if none differs.
std::string difference(const char* what, const std::vector<hlo::Type>& now, const std::vector<hlo::Type>& before) {
  if (now.size() != before.size())
    return std::to_string(now.size()) + " " + what + "s here, " + std::to_string(before.size()) + " before";
  for (size_t i = 0; i < now.size(); ++i)
    if (!(now[i] == before[i]))
      return std::string(what) + " " + std::to_string(i + 1) + " is " + now[i].text() + " here, " + before[i].text() +
             " before";
  return "";
}

uint64_t hash_of_names(std::span<const StepRef> steps) {
  uint64_t hash = steps.size();
  for (const StepRef& step : steps) {
    hash = (hash ^ reinterpret_cast<uintptr_t>(step->name)) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 29;
  }
  return hash;
}

}  // namespace

std::string difference(std::span<const StepRef> now, std::span<const StepRef> before) {
  const size_t n = std::min(now.size(), before.size());
  for (size_t i = 0; i < n; ++i) {
    if (now[i]->id == before[i]->id) continue;
    const std::string where =
        "op " + std::to_string(i + 1) + " of " + std::to_string(now.size()) + ", " + now[i]->name + ": ";
    const hlo::Function &a = *now[i]->function, &b = *before[i]->function;
    std::string text = difference("operand", a.parameters, b.parameters);
    if (text.empty()) text = difference("result", a.results, b.results);
    if (text.empty()) text = "a value or a view that is part of its program differs";
    return where + text;
  }
  if (before.size() < now.size()) return "something after its first " + std::to_string(n) + " ops differs";
  return "the same ops in the same shapes are applied to other tensors among themselves";
}

std::string Changes::note(std::span<const StepRef> steps) {
  if (sequences_.size() >= kMostSequences) sequences_.clear();
  Sequence& sequence = sequences_[hash_of_names(steps)];
  std::string text;
  if (sequence.forms > 0) text = difference(steps, sequence.last);
  if (++sequence.forms == kMany && log::enabled(log::Level::kInfo))
    log::info("fused eager: " + std::to_string(steps.size()) + " ops from " + steps.front()->name + " to " +
              steps.back()->name + " came in " + std::to_string(kMany) + " forms and run op by op while they change; " +
              text);
  const size_t kept = std::min(steps.size(), kMostSteps);
  sequence.last.assign(steps.begin(), steps.begin() + static_cast<int64_t>(kept));
  return text;
}

}  // namespace torch_tpu::fuse
