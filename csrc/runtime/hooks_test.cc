#include "runtime/hooks.h"

#include <gtest/gtest.h>

namespace torch_tpu::runtime::hooks {
namespace {

TEST(Hooks, TheCallSiteIsEmptyUntilAHookIsSet) {
  set_call_site(nullptr);
  EXPECT_EQ(call_site(), "");
  set_call_site([] { return std::string("model.py:12"); });
  EXPECT_EQ(call_site(), "model.py:12");
  set_call_site(nullptr);
}

}  // namespace
}  // namespace torch_tpu::runtime::hooks
