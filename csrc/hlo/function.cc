#include "hlo/function.h"

#include <algorithm>

namespace torch_tpu::hlo {
namespace {

std::string type_list(const std::vector<Type>& types) {
  std::string text = "(";
  for (const Type& type : types) text += (text.size() > 1 ? ", " : "") + type.text();
  return text + ")";
}

}  // namespace

std::string Composition::text() const {
  std::vector<const Function*> functions;
  std::string body;
  // Calls of several results are named as a group: %c2#0, %c2#1.
  auto name = [&](const Source& source) {
    if (source.call < 0) return "%p" + std::to_string(source.index);
    std::string text = "%c" + std::to_string(source.call);
    if (calls[source.call].function->results.size() > 1) text += "#" + std::to_string(source.index);
    return text;
  };
  auto type = [&](const Source& source) {
    return source.call < 0 ? parameters[source.index] : calls[source.call].function->results[source.index];
  };
  auto names = [&](const std::vector<Source>& sources) {
    std::string text = "(";
    for (const Source& source : sources) text += (text.size() > 1 ? ", " : "") + name(source);
    return text + ")";
  };
  for (size_t i = 0; i < calls.size(); ++i) {
    const Function& function = *calls[i].function;
    auto place = std::find_if(functions.begin(), functions.end(),
                              [&](const Function* known) { return known->text == function.text; });
    const auto index = static_cast<size_t>(place - functions.begin());
    if (place == functions.end()) functions.push_back(&function);
    const size_t count = function.results.size();
    body += "    %c" + std::to_string(i) + (count > 1 ? ":" + std::to_string(count) : "") + " = \"func.call\"" +
            names(calls[i].operands) + " {callee = @f" + std::to_string(index) +
            "} : " + type_list(function.parameters) + " -> " + type_list(function.results) + "\n";
  }
  std::string text = "module @region {\n";
  for (size_t i = 0; i < functions.size(); ++i)
    text += "  func.func private @f" + std::to_string(i) + functions[i]->text + "\n";
  text += "  func.func @main(";
  for (size_t i = 0; i < parameters.size(); ++i) {
    text += (i ? ", %p" : "%p") + std::to_string(i) + ": " + parameters[i].text();
    if (donated_to[i] >= 0) text += " {tf.aliasing_output = " + std::to_string(donated_to[i]) + " : i32}";
  }
  std::vector<Type> types;
  for (const Source& source : results) types.push_back(type(source));
  text += ") -> " + type_list(types) + " {\n" + body + "    \"func.return\"" + names(results) + " : " +
          type_list(types) + " -> ()\n  }\n}\n";
  return text;
}

}  // namespace torch_tpu::hlo
