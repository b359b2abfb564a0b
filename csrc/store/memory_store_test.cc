#include "store/memory_store.h"

#include <gtest/gtest.h>

namespace torch_tpu::store {
namespace {

MemoryKey key_of(const std::string& text) { return memory_key(text, "options"); }

ProgramRef program(const std::string& name) {
  auto made = std::make_shared<Program>();
  made->key = name;
  return made;
}

TEST(MemoryStore, FindsWhatWasInsertedUntilOlderOnesAreLetGo) {
  MemoryStore store(2);
  for (const char* name : {"a", "b"}) EXPECT_EQ(store.insert(key_of(name), program(name)), 0);
  ASSERT_TRUE(store.find(key_of("a")));  // now "b" is the oldest
  EXPECT_EQ(store.insert(key_of("c"), program("c")), 1);
  EXPECT_EQ(store.find(key_of("b")), nullptr);
  EXPECT_EQ(store.find(key_of("a"))->key, "a");
  EXPECT_EQ(store.find(key_of("c"))->key, "c");
  EXPECT_EQ(store.size(), 2u);
}

TEST(MemoryStore, FindsAnEvictedProgramThatSomebodyStillHolds) {
  MemoryStore store(1);
  ProgramRef held = program("a");
  store.insert(key_of("a"), held);
  store.insert(key_of("b"), program("b"));
  EXPECT_EQ(store.find(key_of("a")), held);
  EXPECT_EQ(store.find(key_of("b")), nullptr);
  held.reset();
  store.insert(key_of("c"), program("c"));
  EXPECT_EQ(store.find(key_of("a")), nullptr);
}

TEST(MemoryStore, DropsOnlyWhatNobodyHolds) {
  MemoryStore store(8);
  ProgramRef held = program("a");
  store.insert(key_of("a"), held);
  store.insert(key_of("b"), program("b"));
  EXPECT_EQ(store.drop_unused(), 1);
  EXPECT_EQ(store.find(key_of("a")), held);
  EXPECT_EQ(store.find(key_of("b")), nullptr);
}

TEST(MemoryStore, KeysTellTextFromOptions) {
  EXPECT_NE(memory_key("ab", "c"), memory_key("b", "ca"));
  EXPECT_NE(memory_key("a", "c"), memory_key("a", "d"));
  EXPECT_EQ(memory_key("a", "c"), memory_key("a", "c"));
}

TEST(MemoryStore, ForgetsDeadProgramsThatItDidNotKeep) {
  MemoryStore store(1);
  for (int i = 0; i < 1000; ++i) {
    ProgramRef held = program("x");
    store.insert(key_of(std::to_string(i)), held);
  }
  EXPECT_EQ(store.size(), 1u);
}

}  // namespace
}  // namespace torch_tpu::store
