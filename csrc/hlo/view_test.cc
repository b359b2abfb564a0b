// Plans of views are carried out here on plain index lists and compared with the strides' own meaning; the executed
// comparison, dtypes and writes included, is runtime/view_execution_test.cc.
#include "hlo/view.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "hlo/view_plan.h"

namespace torch_tpu::hlo {
namespace {

ViewSpec spec(Shape sizes, std::vector<int64_t> strides, int64_t offset = 0, DType dtype = DType::kF32) {
  return {dtype, std::move(sizes), std::move(strides), offset, false, false};
}

// A dense array of element numbers; -1 is padding.
struct Array {
  Shape shape;
  std::vector<int64_t> data;
};

// result[index] = source[from(index)]; an index list that `from` cannot give a source for is padding.
Array rebuilt(const Array& source, const Shape& to, const std::function<bool(const Shape&, Shape&)>& from) {
  Array result{to, {}};
  Shape index(to.size(), 0), origin(source.shape.size(), 0);
  const auto strides = contiguous_strides(source.shape);
  for (int64_t n = 0; n < element_count(to); ++n) {
    int64_t at = 0;
    if (from(index, origin)) {
      for (size_t i = 0; i < origin.size(); ++i) at += origin[i] * strides[i];
      result.data.push_back(source.data[at]);
    } else {
      result.data.push_back(-1);
    }
    for (size_t d = to.size(); d-- > 0;) {
      if (++index[d] < to[d]) break;
      index[d] = 0;
    }
  }
  return result;
}

Array carried_out(Array x, const std::vector<ViewStep>& steps) {
  for (const ViewStep& step : steps) {
    EXPECT_EQ(x.shape, step.from);
    switch (step.kind) {
      case ViewStep::Kind::kReshape:
        EXPECT_EQ(element_count(step.to), element_count(step.from));
        x.shape = step.to;
        break;
      case ViewStep::Kind::kSlice:
        x = rebuilt(x, step.to, [&](const Shape& i, Shape& o) {
          for (size_t d = 0; d < o.size(); ++d) {
            o[d] = step.start[d] + i[d] * step.step[d];
            EXPECT_LT(o[d], step.limit[d]);
          }
          return true;
        });
        break;
      case ViewStep::Kind::kPad:
        x = rebuilt(x, step.to, [&](const Shape& i, Shape& o) {
          o = i;
          for (size_t d = 0; d < o.size(); ++d)
            if (i[d] >= step.from[d]) return false;
          return true;
        });
        break;
      case ViewStep::Kind::kTranspose:
        x = rebuilt(x, step.to, [&](const Shape& i, Shape& o) {
          for (size_t d = 0; d < o.size(); ++d) o[step.permutation[d]] = i[d];
          return true;
        });
        break;
    }
  }
  return x;
}

Array counting(const Shape& shape) {
  Array x{shape, std::vector<int64_t>(element_count(shape))};
  std::iota(x.data.begin(), x.data.end(), 0);
  return x;
}

// What the strides of the moving dimensions mean.
std::vector<int64_t> meant(const ViewSpec& view) {
  const auto dims = moving_dims(view);
  std::vector<int64_t> out;
  Shape index(dims.size(), 0);
  for (int64_t n = 0; n < element_count(sizes_of(dims)); ++n) {
    int64_t at = view.offset;
    for (size_t d = 0; d < dims.size(); ++d) at += index[d] * dims[d].stride;
    out.push_back(at);
    for (size_t d = dims.size(); d-- > 0;) {
      if (++index[d] < dims[d].size) break;
      index[d] = 0;
    }
  }
  return out;
}

TEST(Plan, RandomStridesMeanWhatTheySay) {
  const unsigned seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  int planned = 0, cases = 0;
  while (cases < 20000) {
    Shape base;
    for (int64_t i = pick(0, 4); i > 0; --i) base.push_back(pick(1, 6));
    ViewSpec view = spec({}, {});
    for (int64_t i = pick(0, 4); i > 0; --i) {
      view.sizes.push_back(pick(1, 5));
      view.strides.push_back(pick(0, 3) == 0 ? pick(0, 40)
                                             : std::vector<int64_t>{1, 2, 3, 4, 6, 12, 24, 30}[pick(0, 7)]);
    }
    view.offset = pick(0, 12);
    if (reach_of(view).highest >= element_count(base)) continue;
    ++cases;
    const auto plan = plan_view(base, view);
    if (!plan) continue;
    ++planned;
    const Array got = carried_out(counting(base), plan->steps);
    ASSERT_EQ(got.shape, sizes_of(moving_dims(view)));
    ASSERT_EQ(got.data, meant(view)) << to_string(base) << " viewed " << to_string(view.sizes) << " strides "
                                     << to_string(view.strides) << " offset " << view.offset;
  }
  EXPECT_GT(planned, cases / 4);
}

TEST(Plan, FailsOnlyWhereElementsOverlapOrInterleave) {
  EXPECT_FALSE(plan_view({8}, spec({3, 4}, {1, 1})));  // sliding windows
  EXPECT_FALSE(plan_view({8}, spec({2, 2}, {1, 1})));
  EXPECT_FALSE(plan_view({8}, spec({2, 3}, {3, 2})));  // 0 2 4 3 5 7
  EXPECT_TRUE(plan_view({8}, spec({2, 2}, {5, 2})));
  EXPECT_FALSE(plan_view({8}, spec({3}, {-2}, 6)));
}

TEST(Plan, DistinctElements) {
  EXPECT_TRUE(distinct_elements(spec({2, 3}, {3, 2})));
  EXPECT_FALSE(distinct_elements(spec({3, 4}, {1, 1})));
  EXPECT_TRUE(distinct_elements(spec({5, 3}, {0, 1})));  // repetitions are not moving dimensions
  EXPECT_TRUE(distinct_elements(spec({4}, {-2}, 6)));
  EXPECT_FALSE(distinct_elements(spec({2, 3}, {3, 2}), 5));
}

struct Route {
  Shape base;
  ViewSpec view;
  ViewRoute read;
  std::vector<std::string> ops;  // in order, without "stablehlo."
};

std::vector<std::string> ops_in(const std::string& text) {
  std::vector<std::string> ops;
  const std::string mark = "\"stablehlo.";
  for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at + 1))
    ops.push_back(text.substr(at + mark.size(), text.find('"', at + 1) - at - mark.size()));
  std::erase(ops, "constant");
  return ops;
}

TEST(Route, OfReads) {
  const std::vector<Route> routes = {
      {{2, 3}, spec({2, 3}, {3, 1}), ViewRoute::kIdentity, {}},
      {{}, spec({}, {}), ViewRoute::kIdentity, {}},
      {{2, 3}, spec({6}, {1}), ViewRoute::kReshape, {"reshape"}},
      {{2, 3}, spec({3, 2}, {2, 1}), ViewRoute::kReshape, {"reshape"}},
      {{}, spec({1, 1}, {7, 9}), ViewRoute::kReshape, {"reshape"}},
      // Transposed whole storages.
      {{2, 3}, spec({3, 2}, {1, 3}), ViewRoute::kSlices, {"transpose"}},
      {{6}, spec({3, 2}, {1, 3}), ViewRoute::kSlices, {"reshape", "transpose"}},
      {{3, 2}, spec({3, 2}, {1, 3}), ViewRoute::kSlices, {"reshape", "transpose"}},
      {{2, 8, 4}, spec({2, 4, 8}, {32, 1, 4}), ViewRoute::kSlices, {"transpose"}},
      {{1, 4, 5, 6}, spec({1, 6, 4, 5}, {120, 1, 30, 6}), ViewRoute::kSlices, {"reshape", "transpose", "reshape"}},
      // Indexing and slicing keep the base's dimensions.
      {{4, 5, 6}, spec({5, 6}, {6, 1}, 60), ViewRoute::kSlices, {"slice", "reshape"}},
      {{4, 5, 6}, spec({4, 2, 6}, {30, 12, 1}, 6), ViewRoute::kSlices, {"slice"}},
      {{10}, spec({5}, {2}, 1), ViewRoute::kSlices, {"slice"}},
      {{4, 5}, spec({3, 4, 5}, {0, 5, 1}), ViewRoute::kSlices, {"broadcast_in_dim"}},
      {{4}, spec({4, 3}, {1, 0}), ViewRoute::kSlices, {"broadcast_in_dim"}},
      // Heads split out of a fused projection: one dimension sliced, then split.
      {{2, 7, 24}, spec({2, 2, 7, 4}, {168, 4, 24, 1}, 8), ViewRoute::kRefined, {"slice", "reshape", "transpose"}},
      // A diagonal crosses two dimensions.
      {{4, 4}, spec({4}, {5}), ViewRoute::kRefined, {"reshape", "slice"}},
      {{3, 4, 4}, spec({3, 4}, {16, 5}), ViewRoute::kRefined, {"reshape", "slice"}},
      // Rows of a length that is not the base's.
      {{11}, spec({2, 3}, {5, 1}, 3), ViewRoute::kRefined, {"slice", "pad", "reshape", "slice"}},
      // Windows that overlap.
      {{8}, spec({3, 4}, {2, 1}), ViewRoute::kGather, {}},
      {{8}, spec({2, 3}, {3, 2}), ViewRoute::kGather, {}},
  };
  for (const Route& route : routes) {
    Builder b;
    const Value base = b.parameter({DType::kF32, route.base});
    ViewRoute taken;
    const Value x = read_view(b, base, route.view, &taken);
    ASSERT_FALSE(b.error()) << b.error()->message;
    EXPECT_EQ(x.type(), (Type{DType::kF32, route.view.sizes}));
    const std::string name =
        to_string(route.base) + " viewed " + to_string(route.view.sizes) + " strides " + to_string(route.view.strides);
    EXPECT_EQ(static_cast<int>(taken), static_cast<int>(route.read)) << name;
    if (taken != ViewRoute::kGather) {
      EXPECT_EQ(ops_in(b.finish({x}).value()), route.ops) << name;
    }
  }
}

std::vector<std::string> written(const Shape& shape, const ViewSpec& view, Type* result = nullptr) {
  Builder b;
  const Value base = b.parameter({DType::kF32, shape}), x = b.parameter({view.dtype, view.sizes});
  const Value after = write_view(b, base, view, x);
  EXPECT_FALSE(b.error()) << b.error()->message;
  if (result) *result = after.type();
  return ops_in(b.finish({after}).value());
}

TEST(Route, OfWrites) {
  using Ops = std::vector<std::string>;
  Type type;
  EXPECT_EQ(written({2, 3}, spec({2, 3}, {3, 1})), Ops{});
  EXPECT_EQ(written({2, 3}, spec({6}, {1}), &type), Ops{});  // takes the view's shape
  EXPECT_EQ(type.shape, (Shape{6}));
  EXPECT_EQ(written({6}, spec({2, 3}, {1, 2}), &type), Ops{"transpose"});
  EXPECT_EQ(type.shape, (Shape{3, 2}));
  EXPECT_EQ(written({4, 2}, spec({2, 2, 2, 1}, {1, 4, 2, 9}, 0), &type), Ops{"transpose"});
  EXPECT_EQ(type.shape, (Shape{2, 2, 2, 1}));
  EXPECT_EQ(written({3}, spec({3}, {1}, 0, DType::kI32), &type), Ops{});
  EXPECT_EQ(type, (Type{DType::kI32, {3}}));
  EXPECT_EQ(written({4, 5}, spec({5}, {1}, 10)), (Ops{"reshape", "dynamic_update_slice"}));
  EXPECT_EQ(written({4, 5}, spec({4, 2}, {5, 1}, 1)), Ops{"dynamic_update_slice"});
  EXPECT_EQ(written({10}, spec({5}, {2}, 1)), (Ops{"pad", "pad", "slice", "select", "dynamic_update_slice"}));
  EXPECT_EQ(written({4}, spec({3, 4}, {0, 1})), (Ops{"slice", "reshape"}));
}

TEST(Whole, MeansElementForElement) {
  const Type base{DType::kF32, {2, 3}};
  EXPECT_TRUE(is_whole(base, spec({2, 3}, {3, 1})));
  EXPECT_TRUE(is_whole(base, spec({6, 1}, {1, 77})));
  EXPECT_FALSE(is_whole(base, spec({3, 2}, {1, 3})));
  EXPECT_FALSE(is_whole(base, spec({5}, {1})));
  EXPECT_FALSE(is_whole(base, spec({2, 3}, {3, 1}, 0, DType::kI32)));
  EXPECT_FALSE(is_whole(base, spec({2, 3}, {0, 1})));
  ViewSpec negated = spec({2, 3}, {3, 1});
  negated.neg = true;
  EXPECT_FALSE(is_whole(base, negated));
  EXPECT_TRUE(is_whole({DType::kF32, {0, 3}}, spec({3, 0}, {1, 1}, 5)));
}

TEST(Errors, AreRemembered) {
  const auto read = [](const Shape& shape, const ViewSpec& view) {
    Builder b;
    read_view(b, b.parameter({DType::kF32, shape}), view);
    return b.error() ? b.error()->message : "";
  };
  EXPECT_EQ(read({4}, spec({5}, {1})),
            "read_view: view, got <f32 [5] strides [1] offset 0>, expected <a view inside tensor<4xf32>>");
  EXPECT_NE(read({4}, spec({2}, {-1}, 0)), "");
  EXPECT_NE(read({4}, spec({2, 2}, {1})), "");
  EXPECT_NE(read({4}, spec({-1}, {1})), "");
  EXPECT_NE(read({4}, spec({1}, {1}, 0, DType::kInvalid)), "");
  EXPECT_NE(read({3}, spec({2}, {1}, 0, DType::kF64)), "");
  EXPECT_NE(read({0}, spec({}, {})), "");
  EXPECT_EQ(read({0}, spec({0, 4}, {1, 1}, 99)), "");
  Builder absent;
  read_view(absent, Value(), spec({2}, {1}));
  EXPECT_TRUE(absent.error());
  Builder b;
  const Value base = b.parameter({DType::kF32, {4}});
  write_view(b, base, spec({2}, {1}), base);
  EXPECT_EQ(b.error()->message, "write_view: value, got <tensor<4xf32>>, expected <tensor<2xf32>>");
}

}  // namespace
}  // namespace torch_tpu::hlo
