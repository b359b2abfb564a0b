#include "pjrt/client.h"

#include <atomic>
#include <complex>
#include <thread>

#include "pjrt/test_engine.h"

namespace torch_tpu::pjrt {
namespace {

TEST(Client, DescribesItself) {
  const Client& client = test_client();
  EXPECT_EQ(client.device_count(), 2);
  EXPECT_NE(client.platform_name(), "");
  EXPECT_NE(client.device_kind(0), "");
  EXPECT_NE(client.global_id(0), client.global_id(1));
}

// One element of every dtype, of a size that is no multiple of anything, there and back.
TEST(Transfer, EveryDtypeKeepsItsBits) {
  for (int i = 1; i <= static_cast<int>(DType::kF8E8M0FNU); ++i) {
    const auto dtype = static_cast<DType>(i);
    SCOPED_TRACE(std::string(torch_name(dtype)));
    std::vector<unsigned char> sent(static_cast<size_t>(7 * 3 * byte_size(dtype)));
    for (size_t byte = 0; byte < sent.size(); ++byte)
      sent[byte] = static_cast<unsigned char>(is_bool(dtype) ? byte % 2 : byte * 37 + 1);
    Result<Buffer> buffer = test_client().from_host(sent.data(), dtype, {7, 3}, 1);
    ASSERT_TRUE(buffer.ok()) << buffer.error().message;
    EXPECT_EQ(read_back<unsigned char>(buffer.value(), sent.size()), sent);
    EXPECT_EQ(buffer.value().device_bytes().value(), static_cast<int64_t>(sent.size()));
  }
}

TEST(Transfer, ScalarsAndEmptyShapes) {
  const double value = 2.5;
  Result<Buffer> scalar = test_client().from_host(&value, DType::kF64, {}, 0);
  ASSERT_TRUE(scalar.ok());
  EXPECT_EQ(read_back<double>(scalar.value(), 1), std::vector<double>{2.5});
  for (const Shape& shape : {Shape{0}, Shape{3, 0, 2}}) {
    Result<Buffer> empty = test_client().from_host(nullptr, DType::kF32, shape, 0);
    ASSERT_TRUE(empty.ok()) << empty.error().message;
    EXPECT_TRUE(empty.value().ready_event().wait().ok());
    EXPECT_EQ(read_back<float>(empty.value(), 0).size(), 0u);
  }
}

TEST(Transfer, SourceMayChangeAtOnce) {
  std::vector<float> source(1 << 20, 1.0f);
  Buffer buffer = upload(source, DType::kF32);
  std::fill(source.begin(), source.end(), 9.0f);
  EXPECT_EQ(read_back<float>(buffer, source.size()), std::vector<float>(source.size(), 1.0f));
}

TEST(Transfer, WrongArgumentsAreErrors) {
  const Client& client = test_client();
  const float value = 1;
  EXPECT_FALSE(client.from_host(&value, DType::kInvalid, {1}, 0).ok());
  EXPECT_FALSE(client.from_host(&value, DType::kF32, {-1}, 0).ok());
  EXPECT_FALSE(client.from_host(nullptr, DType::kF32, {1}, 0).ok());
  EXPECT_EQ(client.from_host(&value, DType::kF32, {1}, 7).error().message, "copy to device: there is no device <7>");
  Buffer buffer = upload<float>({1, 2}, DType::kF32);
  float small;
  EXPECT_EQ(buffer.to_host(&small, 4).error().message, "copy to host: wrong size, got <4> bytes, expected <8>");
  EXPECT_FALSE(Buffer().to_host(&small, 4).ok());
  EXPECT_FALSE(buffer.copy_to_device(-1).ok());
}

TEST(Transfer, BetweenDevices) {
  Buffer here = upload<int64_t>({1, 2, 3}, DType::kI64, 0);
  Result<Buffer> there = here.copy_to_device(1);
  ASSERT_TRUE(there.ok()) << there.error().message;
  EXPECT_EQ(read_back<int64_t>(there.value(), 3), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(read_back<int64_t>(here, 3), (std::vector<int64_t>{1, 2, 3}));
}

TEST(Transfer, HostPointerShowsTheContents) {
  Buffer buffer = upload<float>({1, 2, 3}, DType::kF32);
  ASSERT_TRUE(buffer.ready_event().wait().ok());
  Result<const void*> pointer = buffer.host_pointer();
  if (!test_client().host_readable()) {
    EXPECT_EQ(pointer.error().code, ErrorCode::kUnavailable);
    return;
  }
  ASSERT_TRUE(pointer.ok());
  EXPECT_EQ(static_cast<const float*>(pointer.value())[2], 3.0f);
}

class Adopt : public testing::Test {
 protected:
  static constexpr size_t kCount = 4096;
  void SetUp() override {
    memory_ = static_cast<float*>(std::aligned_alloc(64, (kCount + 16) * sizeof(float)));
    for (size_t i = 0; i < kCount + 16; ++i) memory_[i] = static_cast<float>(i);
  }
  void TearDown() override { std::free(memory_); }
  Result<Buffer> adopt(const float* data, const Shape& shape, DType dtype = DType::kF32) {
    return test_client().adopt_host(data, dtype, shape, 0, [this] { ++released_; });
  }
  void expect_released_once() {
    for (int i = 0; i < 2000 && released_ == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(released_, 1);
  }
  float* memory_;
  std::atomic<int> released_{0};
};

TEST_F(Adopt, ReleasesWhenTheBufferIsGone) {
  {
    Result<Buffer> buffer = adopt(memory_, {kCount});
    ASSERT_TRUE(buffer.ok()) << buffer.error().message;
    EXPECT_EQ(read_back<float>(buffer.value(), kCount)[4095], 4095.0f);
    if (test_client().host_readable()) {
      EXPECT_EQ(buffer.value().host_pointer().value(), memory_) << "not zero copy";
      EXPECT_EQ(released_, 0);
    }
  }
  expect_released_once();
}

TEST_F(Adopt, MisalignedMemoryIsCopied) {
  Result<Buffer> buffer = adopt(memory_ + 1, {kCount});
  ASSERT_TRUE(buffer.ok());
  expect_released_once();
  memory_[1] = -1;
  EXPECT_EQ(read_back<float>(buffer.value(), kCount)[0], 1.0f);
}

TEST_F(Adopt, EmptyAndFailingImportsReleaseToo) {
  ASSERT_TRUE(adopt(nullptr, {0}).ok());
  expect_released_once();
  released_ = 0;
  EXPECT_FALSE(adopt(memory_, {kCount}, DType::kInvalid).ok());
  EXPECT_EQ(released_, 1);
}

TEST_F(Adopt, DonationLeavesTheMemoryUntouched) {
  const std::string type = "tensor<4096xf32>";
  Executable add = compile(test_add(type, true));
  Buffer other = upload(std::vector<float>(kCount, 1.0f), DType::kF32);
  {
    Result<Buffer> buffer = adopt(memory_, {kCount});
    ASSERT_TRUE(buffer.ok());
    Result<Buffer> sum = run(add, {&buffer.value(), &other});
    ASSERT_TRUE(sum.ok()) << sum.error().message;
    EXPECT_EQ(read_back<float>(sum.value(), kCount)[10], 11.0f);
  }
  expect_released_once();
  EXPECT_EQ(memory_[10], 10.0f);
}

TEST(Event, EmptyAndFailedOnes) {
  EXPECT_TRUE(Event().ready());
  EXPECT_TRUE(Event().wait().ok());
  EXPECT_FALSE(Event());
  Event failed = Event::failed({ErrorCode::kOutOfMemory, "no room"});
  EXPECT_TRUE(failed);
  EXPECT_TRUE(failed.ready());
  EXPECT_EQ(failed.wait().error().message, "no room");
  Event moved = std::move(failed);
  EXPECT_EQ(moved.wait().error().code, ErrorCode::kOutOfMemory);
  int calls = 0;
  moved.on_ready([&](Status status) { calls += status.ok() ? 100 : 1; });
  Event().on_ready([&](Status status) { calls += status.ok() ? 1 : 100; });
  EXPECT_EQ(calls, 2);
}

TEST(Event, CallsBackOnceAlsoWhenItIsDestroyedBefore) {
  std::atomic<int> calls{0};
  {
    Buffer buffer = upload(std::vector<float>(1 << 18, 1.0f), DType::kF32);
    Event event = buffer.ready_event();
    event.on_ready([&](Status status) { calls += status.ok() ? 1 : 100; });
    event.on_ready([&](Status) -> void { throw std::runtime_error("dropped"); });
  }
  for (int i = 0; i < 2000 && calls == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(calls, 1);
}

TEST(Client, MemoryStatisticsOrUnavailable) {
  Result<Client::DeviceMemory> memory = test_client().device_memory(0);
  if (!memory.ok()) {
    EXPECT_EQ(memory.error().code, ErrorCode::kUnavailable) << memory.error().message;
  }
  EXPECT_FALSE(test_client().device_memory(9).ok());
}

TEST(Client, OpensASecondTimeAndCloses) {
  Result<std::unique_ptr<Client>> second = Client::create(&test_client().plugin(), {.device_count = 1});
  ASSERT_TRUE(second.ok()) << second.error().message;
  EXPECT_EQ(second.value()->device_count(), 1);
}

}  // namespace
}  // namespace torch_tpu::pjrt
