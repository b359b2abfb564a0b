#include "hlo/attributes.h"

namespace torch_tpu::hlo {
namespace {

std::string joined(const std::vector<int64_t>& values) {
  std::string out;
  for (size_t i = 0; i < values.size(); ++i) {
    if (i) out += ", ";
    out += std::to_string(values[i]);
  }
  return out;
}

}  // namespace

std::string bracketed(const std::vector<int64_t>& values) { return "[" + joined(values) + "]"; }

std::string i64_array(const std::vector<int64_t>& values) {
  return values.empty() ? "array<i64>" : "array<i64: " + joined(values) + ">";
}

std::string bool_array(const std::vector<bool>& values) {
  if (values.empty()) return "array<i1>";
  std::string out = "array<i1: ";
  for (size_t i = 0; i < values.size(); ++i) {
    if (i) out += ", ";
    out += values[i] ? "true" : "false";
  }
  return out + ">";
}

std::string padding_pairs(const std::vector<int64_t>& low, const std::vector<int64_t>& high) {
  const std::string type = " : tensor<" + std::to_string(low.size()) + "x2xi64>";
  if (low.empty()) return "dense<>" + type;
  std::string out = "dense<[";
  for (size_t i = 0; i < low.size(); ++i) {
    if (i) out += ", ";
    out += "[" + std::to_string(low[i]) + ", " + std::to_string(high[i]) + "]";
  }
  return out + "]>" + type;
}

std::string i64_attribute(std::string_view name, int64_t value) {
  return std::string(name) + " = " + std::to_string(value) + " : i64";
}

std::string bool_attribute(std::string_view name, bool value) {
  return std::string(name) + (value ? " = true" : " = false");
}

std::string quoted(std::string_view text) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  std::string out = "\"";
  for (unsigned char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c < 0x20 || c >= 0x7F) {
      out += '\\';
      out += kHex[c >> 4];
      out += kHex[c & 15];
    } else {
      out += static_cast<char>(c);
    }
  }
  return out + "\"";
}

}  // namespace torch_tpu::hlo
