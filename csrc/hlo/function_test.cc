#include "hlo/function.h"

#include <gtest/gtest.h>

#include "hlo/builder.h"

namespace torch_tpu::hlo {
namespace {

const Type kF4{DType::kF32, {4}};

// x -> (x + x, x * x)
FunctionRef both() {
  Builder b;
  const Value x = b.parameter(kF4, 0);
  auto function = std::make_shared<Function>();
  EXPECT_TRUE(b.finish({b.add(x, x), b.mul(x, x)}, "main", function.get()).ok());
  return function;
}

TEST(Function, HasTypesAndNoDonation) {
  const FunctionRef f = both();
  EXPECT_EQ(f->parameters, (std::vector<Type>{kF4}));
  EXPECT_EQ(f->results, (std::vector<Type>{kF4, kF4}));
  EXPECT_EQ(f->text.rfind("(", 0), 0u);
  EXPECT_EQ(f->text.find("aliasing"), std::string::npos);
  EXPECT_EQ(f->text.find("module"), std::string::npos);
}

TEST(Composition, WritesEqualFunctionsOnce) {
  Composition c;
  c.parameters = {kF4};
  c.donated_to = {1};
  c.calls = {{both(), {{-1, 0}}}, {both(), {{0, 1}}}};
  c.results = {{0, 0}, {1, 0}};
  const std::string text = c.text();
  EXPECT_NE(text.find("func.func private @f0"), std::string::npos);
  EXPECT_EQ(text.find("@f1"), std::string::npos);
  EXPECT_NE(text.find("%c1:2 = \"func.call\"(%c0#1) {callee = @f0}"), std::string::npos) << text;
  EXPECT_NE(text.find("%p0: tensor<4xf32> {tf.aliasing_output = 1 : i32}"), std::string::npos) << text;
  EXPECT_NE(text.find("\"func.return\"(%c0#0, %c1#0)"), std::string::npos) << text;
}

}  // namespace
}  // namespace torch_tpu::hlo
