#include "hlo/builder.h"

#include <algorithm>
#include <utility>

#include "hlo/attributes.h"

namespace torch_tpu::hlo {

const Type& Value::absent_type() {
  static const Type type;
  return type;
}

Builder::Builder() { scopes_.push_back({0, {}}); }

// --- errors ----------------------------------------------------------------------------------------------------------

Value Builder::fail(ErrorCode code, std::string message) {
  if (!error_) error_ = Error{code, std::move(message)};
  return placeholder({DType::kF32, {}});
}

Value Builder::mistake(std::string_view op, std::string_view what, std::string_view got, std::string_view expected,
                       const Type& type) {
  if (!error_) {
    std::string message = origin_.empty() ? "" : origin_ + ": ";
    message += std::string(op) + ": " + std::string(what) + ", got <" + std::string(got) + ">, expected <" +
               std::string(expected) + ">";
    error_ = Error{ErrorCode::kInternal, std::move(message)};
  }
  return placeholder(type);
}

bool Builder::present(std::string_view op, const Values& xs) {
  for (size_t i = 0; i < xs.size(); ++i) {
    if (xs[i]) continue;
    mistake(op, "operand " + std::to_string(i), "an absent value", "a value");
    return false;
  }
  return true;
}

bool Builder::same_type(std::string_view op, const Value& x, const Value& y) {
  if (x.type() == y.type()) return true;
  mistake(op, "operands of different types", x.type().text() + ", " + y.type().text(), "equal types");
  return false;
}

bool Builder::distinct_dims(std::string_view op, std::string_view what, const Dims& dims, int64_t rank) {
  std::vector<bool> seen(rank, false);
  for (int64_t d : dims) {
    if (d < 0 || d >= rank || seen[d]) {
      mistake(op, what, bracketed(dims), "distinct dimensions of rank " + std::to_string(rank));
      return false;
    }
    seen[d] = true;
  }
  return true;
}

Value Builder::make(const Type& type, std::string name) {
  nodes_.push_back({type, std::move(name), scopes_.back().id});
  return Value(&nodes_.back());
}

Values Builder::placeholders(const std::vector<Type>& types) {
  Values values;
  for (const Type& type : types) values.push_back(placeholder(type));
  return values;
}

bool Builder::visible(const Value& x) const {
  return std::any_of(scopes_.begin(), scopes_.end(), [&](const Scope& s) { return s.id == x.node_->scope; });
}

// --- the module ------------------------------------------------------------------------------------------------------

Value Builder::parameter(const Type& type, int64_t donated_to) {
  if (scopes_.size() != 1) return mistake("parameter", "added", "inside a region", "in @main", type);
  if (type.dtype == DType::kInvalid) return mistake("parameter", "dtype", "invalid", "a dtype");
  std::string name = "%a" + std::to_string(parameters_.size());
  parameters_.push_back({type, name, donated_to});
  return make(type, std::move(name));
}

void Builder::donate(int64_t parameter, int64_t result) {
  if (parameter < 0 || parameter >= static_cast<int64_t>(parameters_.size())) {
    mistake("donate", "parameter", std::to_string(parameter), "less than " + std::to_string(parameters_.size()));
    return;
  }
  parameters_[parameter].donated_to = result;
}

namespace {

int64_t bytes_of(const Type& type) { return element_count(type.shape) * byte_size(type.dtype); }

std::string type_list(const std::vector<Type>& types, bool always_parenthesised) {
  if (types.size() == 1 && !always_parenthesised) return types[0].text();
  std::string out = "(";
  for (size_t i = 0; i < types.size(); ++i) {
    if (i) out += ", ";
    out += types[i].text();
  }
  return out + ")";
}

std::vector<Type> types_of(const Values& xs) {
  std::vector<Type> types;
  types.reserve(xs.size());
  for (const Value& x : xs) types.push_back(x.type());
  return types;
}

// Module names come from op names ("aten::add.Tensor"), which are not MLIR identifiers.
std::string symbol(std::string_view name) {
  std::string out;
  for (char c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    out += plain ? c : '_';
  }
  if (out.empty() || (out[0] >= '0' && out[0] <= '9')) out.insert(0, "_");
  return out;
}

}  // namespace

Result<std::string> Builder::finish(const Values& results, std::string_view name, Function* function) {
  present("return", results);
  std::vector<bool> taken(results.size(), false);
  for (size_t i = 0; i < parameters_.size() && !error_; ++i) {
    const int64_t r = parameters_[i].donated_to;
    if (r < 0) continue;
    const std::string what = "parameter " + std::to_string(i) + " donated to result " + std::to_string(r);
    if (r >= static_cast<int64_t>(results.size())) {
      mistake("return", what, std::to_string(results.size()) + " results", "a result that exists");
    } else if (taken[r]) {
      mistake("return", what, "a result that already has a donor", "one donor per result");
    } else if (bytes_of(parameters_[i].type) != bytes_of(results[r].type())) {
      mistake("return", what, parameters_[i].type.text() + " for " + results[r].type().text(), "types of equal size");
    } else {
      taken[r] = true;
    }
  }
  for (const Value& r : results)
    if (!error_ && !visible(r)) mistake("return", "value", "one from inside a region", "a value of @main");
  if (error_) return *error_;

  std::string header, plain;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Parameter& p = parameters_[i];
    const std::string declared = (i ? ", " : "") + p.name + ": " + p.type.text();
    header += declared;
    plain += declared;
    if (p.donated_to >= 0) header += " {tf.aliasing_output = " + std::to_string(p.donated_to) + " : i32}";
  }
  std::string rest = ") -> " + type_list(types_of(results), false) + " {\n" + body_ + "    \"func.return\"(";
  for (size_t i = 0; i < results.size(); ++i) rest += (i ? ", " : "") + results[i].node_->name;
  rest += ") : " + type_list(types_of(results), true) + " -> ()\n  }\n";
  if (function != nullptr) {
    function->text = "(" + plain + rest;
    for (const Parameter& p : parameters_) function->parameters.push_back(p.type);
    function->results = types_of(results);
  }
  return "module @" + symbol(name) + " {\n  func.func @main(" + header + rest + "}\n";
}

// --- operations ------------------------------------------------------------------------------------------------------

std::string Builder::region_text(const std::vector<Type>& arguments, const Region& body) {
  std::string outer = std::exchange(body_, {});
  scopes_.push_back({next_scope_++, {}});
  ++depth_;
  Values args;
  std::string header;
  for (const Type& type : arguments) {
    args.push_back(make(type, "%" + std::to_string(next_id_++)));
    header += (header.empty() ? "" : ", ") + args.back().node_->name + ": " + type.text();
  }
  const Values results = body(*this, args);
  present("return", results);
  for (const Value& r : results)
    if (!error_ && !visible(r)) mistake("return", "value", "one from another region", "a value in scope");
  std::string text = arguments.empty() ? "" : std::string(2 * depth_ - 2, ' ') + "^bb0(" + header + "):\n";
  text += body_;
  if (!error_) {
    text += std::string(2 * depth_, ' ') + "\"stablehlo.return\"(";
    for (size_t i = 0; i < results.size(); ++i) text += (i ? ", " : "") + results[i].node_->name;
    text += ") : " + type_list(types_of(results), true) + " -> ()\n";
  }
  --depth_;
  scopes_.pop_back();
  body_ = std::move(outer);
  return text;
}

Values Builder::emit(std::string_view op, const Values& xs, const std::vector<Type>& results,
                     std::string_view attributes, const Regions& regions) {
  if (!present(op, xs) || error_) return placeholders(results);
  for (const Value& x : xs)
    if (!visible(x)) mistake(op, "operand", x.node_->name + " from inside a closed region", "a value in scope");
  std::string bodies;
  for (size_t i = 0; i < regions.size() && !error_; ++i) {
    bodies += i ? ", {\n" : " ({\n";
    bodies += region_text(regions[i].first, regions[i].second) + std::string(2 * depth_, ' ') + "}";
  }
  if (!regions.empty()) bodies += ")";
  return append(op, xs, results, attributes, bodies);
}

Values Builder::append(std::string_view op, const Values& xs, const std::vector<Type>& results,
                       std::string_view attributes, const std::string& bodies) {
  if (error_) return placeholders(results);
  Values values;
  const std::string name = "%" + std::to_string(next_id_++);
  std::string line(2 * depth_, ' ');
  if (!results.empty()) line += name + (results.size() > 1 ? ":" + std::to_string(results.size()) : "") + " = ";
  line += '"' + std::string(op) + "\"(";
  for (size_t i = 0; i < xs.size(); ++i) line += (i ? ", " : "") + xs[i].node_->name;
  line += ")" + bodies;
  if (!attributes.empty()) line += " {" + std::string(attributes) + "}";
  line += " : " + type_list(types_of(xs), true) + " -> " + type_list(results, results.size() != 1);
  if (!origin_.empty()) line += " loc(" + quoted(origin_) + ")";
  body_ += line + "\n";
  ++op_count_;
  for (size_t i = 0; i < results.size(); ++i)
    values.push_back(make(results[i], results.size() > 1 ? name + "#" + std::to_string(i) : name));
  return values;
}

Value Builder::emit_one(std::string_view op, const Values& xs, const Type& result, std::string_view attributes) {
  return emit(op, xs, {result}, attributes)[0];
}

Values Builder::generic(std::string_view op, const Values& xs, const std::vector<Type>& results,
                        std::string_view attributes, const Regions& regions) {
  return emit(op.find('.') == std::string_view::npos ? "stablehlo." + std::string(op) : std::string(op), xs, results,
              attributes, regions);
}

Region Builder::checked(std::string op, std::vector<Type> results, Region body) {
  return [op = std::move(op), results = std::move(results), body = std::move(body)](Builder& b, const Values& args) {
    Values values = body(b, args);
    if (!b.present(op, values)) return values;
    if (types_of(values) != results)
      b.mistake(op, "types returned by the region", type_list(types_of(values), true), type_list(results, true));
    return values;
  };
}

Region Builder::combiner(std::string op) {
  return [op = std::move(op)](Builder& b, const Values& args) -> Values { return {b.binary(op, args[0], args[1])}; };
}

}  // namespace torch_tpu::hlo
