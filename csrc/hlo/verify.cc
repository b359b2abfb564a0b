#include "hlo/verify.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace torch_tpu::hlo {
namespace {

struct Names {
  std::vector<std::string> required, optional;
};

// Spec: the "Inputs" table of each operation. Operations that take no attributes are in `kPlain`.
const std::map<std::string, Names, std::less<>>& attributes() {
  static const std::map<std::string, Names, std::less<>> table = {
      {"chlo.ragged_dot", {{"ragged_dot_dimension_numbers"}, {"precision_config"}}},
      {"chlo.top_k", {{"k"}, {}}},
      {"func.call", {{"callee"}, {}}},
      {"stablehlo.all_gather", {{"all_gather_dim", "replica_groups"}, {"channel_handle", "use_global_device_ids"}}},
      {"stablehlo.all_reduce", {{"replica_groups"}, {"channel_handle", "use_global_device_ids"}}},
      {"stablehlo.all_to_all",
       {{"split_dimension", "concat_dimension", "split_count", "replica_groups"}, {"channel_handle"}}},
      {"stablehlo.batch_norm_inference", {{"epsilon", "feature_index"}, {}}},
      {"stablehlo.broadcast_in_dim", {{"broadcast_dimensions"}, {}}},
      {"stablehlo.cholesky", {{}, {"lower"}}},
      {"stablehlo.collective_permute", {{"source_target_pairs"}, {"channel_handle"}}},
      {"stablehlo.compare", {{"comparison_direction"}, {"compare_type"}}},
      {"stablehlo.composite", {{"name", "decomposition"}, {"composite_attributes", "version"}}},
      {"stablehlo.concatenate", {{"dimension"}, {}}},
      {"stablehlo.constant", {{"value"}, {}}},
      {"stablehlo.convolution",
       {{"dimension_numbers", "feature_group_count", "batch_group_count"},
        {"window_strides", "padding", "lhs_dilation", "rhs_dilation", "window_reversal", "precision_config"}}},
      {"stablehlo.custom_call",
       {{"call_target_name"},
        {"has_side_effect", "backend_config", "api_version", "called_computations", "operand_layouts", "result_layouts",
         "output_operand_aliases"}}},
      {"stablehlo.dot_general", {{"dot_dimension_numbers"}, {"precision_config", "algorithm"}}},
      {"stablehlo.dynamic_slice", {{"slice_sizes"}, {}}},
      {"stablehlo.exponential", {{}, {"result_accuracy"}}},
      {"stablehlo.fft", {{"fft_type", "fft_length"}, {}}},
      {"stablehlo.gather", {{"dimension_numbers", "slice_sizes"}, {"indices_are_sorted"}}},
      {"stablehlo.get_dimension_size", {{"dimension"}, {}}},
      {"stablehlo.iota", {{"iota_dimension"}, {}}},
      {"stablehlo.map", {{"dimensions"}, {}}},
      {"stablehlo.pad", {{"edge_padding_low", "edge_padding_high", "interior_padding"}, {}}},
      {"stablehlo.reduce", {{"dimensions"}, {}}},
      {"stablehlo.reduce_precision", {{"exponent_bits", "mantissa_bits"}, {}}},
      {"stablehlo.reduce_scatter",
       {{"scatter_dimension", "replica_groups"}, {"channel_handle", "use_global_device_ids"}}},
      {"stablehlo.reduce_window",
       {{"window_dimensions"}, {"window_strides", "base_dilations", "window_dilations", "padding"}}},
      {"stablehlo.reverse", {{"dimensions"}, {}}},
      {"stablehlo.rng_bit_generator", {{"rng_algorithm"}, {}}},
      {"stablehlo.scatter", {{"scatter_dimension_numbers"}, {"indices_are_sorted", "unique_indices"}}},
      {"stablehlo.select_and_scatter", {{}, {"window_dimensions", "window_strides", "padding"}}},
      {"stablehlo.set_dimension_size", {{"dimension"}, {}}},
      {"stablehlo.slice", {{"start_indices", "limit_indices", "strides"}, {}}},
      {"stablehlo.sort", {{}, {"dimension", "is_stable"}}},
      {"stablehlo.transpose", {{"permutation"}, {}}},
      {"stablehlo.triangular_solve", {{"left_side", "lower", "unit_diagonal", "transpose_a"}, {}}},
  };
  return table;
}

const std::set<std::string, std::less<>>& plain() {
  static const std::set<std::string, std::less<>> names = {"chlo.acos",
                                                           "chlo.acosh",
                                                           "chlo.asin",
                                                           "chlo.asinh",
                                                           "chlo.atan",
                                                           "chlo.atanh",
                                                           "chlo.bessel_i1e",
                                                           "chlo.conj",
                                                           "chlo.cosh",
                                                           "chlo.digamma",
                                                           "chlo.erf",
                                                           "chlo.erf_inv",
                                                           "chlo.erfc",
                                                           "chlo.is_inf",
                                                           "chlo.is_neg_inf",
                                                           "chlo.is_pos_inf",
                                                           "chlo.lgamma",
                                                           "chlo.next_after",
                                                           "chlo.polygamma",
                                                           "chlo.sinh",
                                                           "chlo.square",
                                                           "chlo.tan",
                                                           "chlo.zeta",
                                                           "func.return",
                                                           "stablehlo.abs",
                                                           "stablehlo.add",
                                                           "stablehlo.and",
                                                           "stablehlo.atan2",
                                                           "stablehlo.bitcast_convert",
                                                           "stablehlo.case",
                                                           "stablehlo.cbrt",
                                                           "stablehlo.ceil",
                                                           "stablehlo.clamp",
                                                           "stablehlo.complex",
                                                           "stablehlo.convert",
                                                           "stablehlo.cosine",
                                                           "stablehlo.count_leading_zeros",
                                                           "stablehlo.divide",
                                                           "stablehlo.dynamic_update_slice",
                                                           "stablehlo.exponential_minus_one",
                                                           "stablehlo.floor",
                                                           "stablehlo.if",
                                                           "stablehlo.imag",
                                                           "stablehlo.is_finite",
                                                           "stablehlo.log",
                                                           "stablehlo.log_plus_one",
                                                           "stablehlo.logistic",
                                                           "stablehlo.maximum",
                                                           "stablehlo.minimum",
                                                           "stablehlo.multiply",
                                                           "stablehlo.negate",
                                                           "stablehlo.not",
                                                           "stablehlo.optimization_barrier",
                                                           "stablehlo.or",
                                                           "stablehlo.partition_id",
                                                           "stablehlo.popcnt",
                                                           "stablehlo.power",
                                                           "stablehlo.real",
                                                           "stablehlo.remainder",
                                                           "stablehlo.replica_id",
                                                           "stablehlo.reshape",
                                                           "stablehlo.return",
                                                           "stablehlo.round_nearest_afz",
                                                           "stablehlo.round_nearest_even",
                                                           "stablehlo.rsqrt",
                                                           "stablehlo.select",
                                                           "stablehlo.shift_left",
                                                           "stablehlo.shift_right_arithmetic",
                                                           "stablehlo.shift_right_logical",
                                                           "stablehlo.sign",
                                                           "stablehlo.sine",
                                                           "stablehlo.sqrt",
                                                           "stablehlo.subtract",
                                                           "stablehlo.tan",
                                                           "stablehlo.tanh",
                                                           "stablehlo.while",
                                                           "stablehlo.xor"};
  return names;
}

std::string listed(const Names& names) {
  std::string out;
  for (const auto* list : {&names.required, &names.optional})
    for (const std::string& name : *list) out += (out.empty() ? "" : ", ") + name;
  return out.empty() ? "none" : "one of " + out;
}

Status check(const std::string& op, const std::set<std::string>& found) {
  const auto row = attributes().find(op);
  if (row == attributes().end() && !plain().contains(op))
    return Error{ErrorCode::kInternal,
                 "verify: operation, got <" + op + ">, expected <one of the table in hlo/verify.cc>"};
  const Names names = row == attributes().end() ? Names{} : row->second;
  std::set<std::string> known(names.required.begin(), names.required.end());
  known.insert(names.optional.begin(), names.optional.end());
  for (const std::string& name : found)
    if (!known.contains(name) && name != "mhlo.frontend_attributes")
      return Error{ErrorCode::kInternal, op + ": attribute, got <" + name + ">, expected <" + listed(names) + ">"};
  for (const std::string& name : names.required)
    if (!found.contains(name))
      return Error{ErrorCode::kInternal, op + ": attributes, got <no " + name + ">, expected <it>"};
  return {};
}

// Reads operations one after the other; regions are between "({" and "})" behind the operands.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  // Reads up to the end of the text, or of the region that is open.
  Status operations() {
    while (at_ < text_.size() && !failed_) {
      const char c = text_[at_];
      if (c == '"') {
        if (Status s = operation(); !s.ok()) return s;
      } else if (c == '}' && depth_ > 0) {
        return {};
      } else if (c == '(' || c == '<' || c == '[') {
        skip_bracketed();
      } else if (text_.substr(at_).starts_with("loc(")) {
        at_ += 3;
        skip_bracketed();
      } else {
        ++at_;
      }
    }
    return failed_ ? malformed() : Status{};
  }

 private:
  Status malformed() const {
    return Error{ErrorCode::kInternal, "verify: text at " + std::to_string(at_) + ", got <" +
                                           std::string(text_.substr(std::min(at_, text_.size()), 40)) +
                                           ">, expected <an operation in generic form>"};
  }

  void spaces() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }

  std::string string() {
    std::string out;
    for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) {
      if (text_[at_] == '\\') ++at_;
      if (at_ < text_.size()) out += text_[at_];
    }
    ++at_;
    return out;
  }

  // Over a bracket, what is in it, and its partner. "->" is no bracket.
  void skip_bracketed() {
    static constexpr std::string_view kOpening = "(<[{", kClosing = ")>]}";
    std::string open;
    do {
      if (at_ >= text_.size()) {
        failed_ = true;
        return;
      }
      const char c = text_[at_];
      if (c == '"') {
        string();
        continue;
      }
      if (kOpening.find(c) != std::string_view::npos) open += c;
      const size_t closing = c == '>' && text_[at_ - 1] == '-' ? std::string_view::npos : kClosing.find(c);
      if (closing != std::string_view::npos) {
        if (open.back() != kOpening[closing]) {
          failed_ = true;
          return;
        }
        open.pop_back();
      }
      ++at_;
    } while (!open.empty());
  }

  Status operation() {
    const std::string op = string();
    if (at_ >= text_.size() || text_[at_] != '(') return malformed();
    skip_bracketed();
    if (failed_) return malformed();
    spaces();
    if (text_.substr(at_).starts_with("({")) {
      at_ += 2;
      ++depth_;
      for (;;) {
        if (Status s = operations(); !s.ok()) return s;
        if (at_ >= text_.size()) return malformed();
        ++at_;  // the region's "}"
        if (text_.substr(at_).starts_with(", {")) {
          at_ += 3;
          continue;
        }
        break;
      }
      --depth_;
      if (at_ >= text_.size() || text_[at_] != ')') return malformed();
      ++at_;
      spaces();
    }
    return check(op, dictionary());
  }

  // The names in "{a = 1 : i64, b}"; empty where there is no dictionary.
  std::set<std::string> dictionary() {
    std::set<std::string> names;
    if (at_ >= text_.size() || text_[at_] != '{') return names;
    ++at_;
    while (at_ < text_.size() && text_[at_] != '}') {
      std::string name;
      for (spaces(); at_ < text_.size() &&
                     (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_' || text_[at_] == '.');
           ++at_)
        name += text_[at_];
      if (name.empty()) {
        failed_ = true;
        return names;
      }
      names.insert(name);
      while (at_ < text_.size() && text_[at_] != ',' && text_[at_] != '}') {
        const char c = text_[at_];
        if (c == '"') {
          string();
        } else if (c == '(' || c == '<' || c == '[' || c == '{') {
          skip_bracketed();
        } else {
          ++at_;
        }
      }
      if (at_ < text_.size() && text_[at_] == ',') ++at_;
    }
    ++at_;
    return names;
  }

  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
  bool failed_ = false;
};

}  // namespace

Status verify_attributes(std::string_view module) {
  const size_t body = module.find("func.func");
  if (body == std::string_view::npos)
    return Error{ErrorCode::kInternal, "verify: module, got <no func.func>, expected <a function>"};
  return Reader(module.substr(body)).operations();
}

}  // namespace torch_tpu::hlo
