// A graph of ATen calls and its programs, one for each layout of arguments.
#pragma once

#include <ATen/core/ivalue.h>

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/hash.h"
#include "graph/capture.h"

namespace torch_tpu::graph {

// Arguments of one call, looked at once: the slots behind the tensors and everything that makes another program.
struct Gathered {
  std::vector<c10::IValue> arguments;  // tensors, ints, doubles, bools, None
  std::vector<runtime::Slot*> slots;   // each once
  std::vector<runtime::ValueRef> values;
  std::vector<int> slot_of;  // by argument; -1: it is no tpu tensor
  std::vector<uint64_t> key;
  int device = -1;
};
// Runs what owes the arguments their buffers. Raises the errors of earlier programs, and PyTorch's for mixed devices.
Gathered gather(std::vector<c10::IValue> arguments);

// For every tensor argument one that stands for it while `capture` is open; other arguments as they are. `slots`
// receives one tensor for every slot.
std::vector<c10::IValue> stand_ins(const Gathered& gathered, Capture& capture, std::vector<at::Tensor>& slots);

class Graph {
 public:
  // `name`: for the compile log.
  Graph(std::string name, CompilerOptions options) : name_(std::move(name)), options_(std::move(options)) {}
  const std::string& name() const { return name_; }
  const CompilerOptions& options() const { return options_; }

  std::shared_ptr<const Variant> find(const std::vector<uint64_t>& key);
  // The one that is kept: another thread may have been first.
  std::shared_ptr<const Variant> add(const std::vector<uint64_t>& key, std::shared_ptr<const Variant> variant);
  size_t variants();

 private:
  struct HashOf {
    size_t operator()(const std::vector<uint64_t>& key) const {
      return hash128(key.data(), key.size() * sizeof(uint64_t)).low;
    }
  };
  const std::string name_;
  const CompilerOptions options_;
  std::mutex mutex_;
  std::unordered_map<std::vector<uint64_t>, std::shared_ptr<const Variant>, HashOf> variants_;
};

// Submits the program; its output tensors. Empty if an argument's layout changed meanwhile: gather again.
std::optional<std::vector<at::Tensor>> run(const Graph& graph, const Variant& variant, Gathered& gathered);

}  // namespace torch_tpu::graph
