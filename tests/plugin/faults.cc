#include "faults.h"

#include <array>
#include <cstdio>
#include <mutex>
#include <sstream>
#include <string_view>

namespace torch_tpu::test_plugin {
namespace {

constexpr std::array<std::string_view, 7> kNames = {"execute",  "execute_after", "output",        "upload",
                                                    "download", "compile",       "compile_region"};

struct Order {
  long first = 0, last = -1;  // which calls fail
  PJRT_Error_Code code = PJRT_Error_Code_INTERNAL;
  long seen = 0;
};

std::mutex mutex;
std::array<Order, kNames.size()> orders;  // guarded by mutex

Order& order_of(Fault fault) { return orders[static_cast<size_t>(fault)]; }

}  // namespace

Failure next_fault(Fault fault) {
  std::lock_guard lock(mutex);
  Order& order = order_of(fault);
  const long number = ++order.seen;
  if (number < order.first || number > order.last) return {};
  const std::string name(kNames[static_cast<size_t>(fault)]);
  return {order.code, "test plugin: injected fault <" + name + "> at call " + std::to_string(number)};
}

void order_fault(Fault fault, int n, int count, PJRT_Error_Code code) {
  std::lock_guard lock(mutex);
  Order& order = order_of(fault);
  order.first = order.seen + n;
  order.last = n > 0 ? order.first + count - 1 : order.seen;
  order.code = code;
}

void cancel_faults() {
  std::lock_guard lock(mutex);
  for (Order& order : orders) order.last = -1;
}

long calls(Fault fault) {
  std::lock_guard lock(mutex);
  return order_of(fault).seen;
}

bool order_faults(const std::string& list) {
  std::istringstream items(list);
  for (std::string item; std::getline(items, item, ',');) {
    const size_t colon = item.find(':');
    int n = 0, count = 0, code = 0;
    size_t kind = 0;
    while (kind < kNames.size() && item.substr(0, colon) != kNames[kind]) ++kind;
    if (kind == kNames.size() || colon == std::string::npos ||
        std::sscanf(item.c_str() + colon, ":%d:%d:%d", &n, &count, &code) != 3)
      return false;
    order_fault(static_cast<Fault>(kind), n, count, static_cast<PJRT_Error_Code>(code));
  }
  return true;
}

}  // namespace torch_tpu::test_plugin
