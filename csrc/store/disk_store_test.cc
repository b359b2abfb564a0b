#include "store/disk_store.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/hash.h"

namespace torch_tpu::store {
namespace {

namespace fs = std::filesystem;

class DiskStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "disk_store_XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override { fs::remove_all(root_); }

  std::string folder() const { return root_ + "/store"; }
  std::string file_of(const std::string& key) const { return folder() + "/" + key + ".program"; }
  static std::string key_of(const std::string& name) { return sha256_hex(name); }
  static StoredProgram program(const std::string& blob) {
    return {{{"op", "aten::add.Tensor"}, {"flops", "12"}}, blob};
  }

  static std::string read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }
  static void write(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

  std::string root_;
};

TEST_F(DiskStoreTest, ReturnsWhatWasSaved) {
  DiskStore store(folder(), -1);
  ASSERT_TRUE(store.on()) << store.why_off();
  EXPECT_FALSE(store.load(key_of("a")));
  const std::string blob("with\0zeros\n", 11);
  ASSERT_TRUE(store.save(key_of("a"), program(blob)));
  const auto loaded = store.load(key_of("a"));
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded->blob, blob);
  EXPECT_EQ(loaded->facts.at("op"), "aten::add.Tensor");
  EXPECT_EQ(loaded->facts.at("flops"), "12");
  struct stat info{};
  ASSERT_EQ(stat(folder().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  ASSERT_EQ(stat(file_of(key_of("a")).c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

// A damaged blob crashes the plugin, so no byte may differ from what was written, wherever it is.
TEST_F(DiskStoreTest, EveryFlippedByteIsAMissAndRemovesTheFile) {
  DiskStore store(folder(), -1);
  const std::string key = key_of("a");
  ASSERT_TRUE(store.save(key, program("some executable")));
  const std::string good = read(file_of(key));
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 1);
    write(file_of(key), bad);
    EXPECT_FALSE(store.load(key)) << "byte " << i;
    EXPECT_FALSE(fs::exists(file_of(key))) << "byte " << i;
  }
}

TEST_F(DiskStoreTest, TruncatedExtendedAndForeignFilesAreMisses) {
  DiskStore store(folder(), -1);
  const std::string key = key_of("a");
  ASSERT_TRUE(store.save(key, program("some executable")));
  const std::string good = read(file_of(key));
  for (const std::string& bad :
       {std::string(), good.substr(0, 10), good.substr(0, 152), good.substr(0, good.size() - 1), good + "x",
        std::string(4096, '\xff'), std::string("not a program at all")}) {
    write(file_of(key), bad);
    EXPECT_FALSE(store.load(key)) << bad.size() << " bytes";
  }
  write(file_of(key_of("b")), good);
  EXPECT_FALSE(store.load(key_of("b"))) << "the right file under another program's name";
  write(file_of(key), good);
  EXPECT_TRUE(store.load(key));
}

TEST_F(DiskStoreTest, SymbolicLinksAreNotFollowed) {
  DiskStore store(folder(), -1);
  const std::string key = key_of("a");
  ASSERT_TRUE(store.save(key, program("x")));
  fs::rename(file_of(key), root_ + "/elsewhere");
  fs::create_symlink(root_ + "/elsewhere", file_of(key));
  EXPECT_FALSE(store.load(key));
}

TEST_F(DiskStoreTest, IsOffInAFolderThatOthersMayWrite) {
  fs::create_directory(folder());
  ASSERT_EQ(chmod(folder().c_str(), 0777), 0);
  DiskStore store(folder(), -1);
  EXPECT_FALSE(store.on());
  EXPECT_NE(store.why_off().find("writable by others"), std::string::npos) << store.why_off();
  EXPECT_FALSE(store.save(key_of("a"), program("x")));
  EXPECT_FALSE(store.load(key_of("a")));
  EXPECT_FALSE(store.lock(key_of("a"), 1));
  EXPECT_TRUE(store.entries().empty());
  EXPECT_EQ(store.clear(), 0);
}

TEST_F(DiskStoreTest, IsOffWhereTheFolderCannotBe) {
  write(root_ + "/file", "");
  EXPECT_FALSE(DiskStore(root_ + "/file", -1).on());
  EXPECT_FALSE(DiskStore(root_ + "/file/below", -1).on());
  EXPECT_FALSE(DiskStore("", -1).on());
  EXPECT_TRUE(DiskStore("", -1).why_off().empty()) << "turned off by the user: nothing to report";
}

TEST_F(DiskStoreTest, IsOffInAFolderOfAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  fs::create_directory(folder());
  ASSERT_EQ(chmod(folder().c_str(), 0700), 0);
  ASSERT_EQ(chown(folder().c_str(), 12345, 12345), 0);
  DiskStore store(folder(), -1);
  EXPECT_FALSE(store.on());
  EXPECT_NE(store.why_off().find("not owned by this user"), std::string::npos) << store.why_off();
}

// The process's file-size limit stands in for a disk that takes no more bytes.
TEST_F(DiskStoreTest, AFullDiskIsAMiss) {
  DiskStore store(folder(), -1);
  const pid_t child = fork();
  if (child == 0) {
    const rlimit none{16, 16};
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &none);
    _exit(store.save(key_of("a"), program(std::string(1000, 'x'))) ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_TRUE(fs::is_empty(folder())) << "no left-over";
  EXPECT_FALSE(store.load(key_of("a")));
}

TEST_F(DiskStoreTest, TheLimitRemovesWhatWasUnusedForLongest) {
  constexpr int64_t kEach = 10'000, kLimit = 5 * (kEach + 600);
  DiskStore store(folder(), kLimit);
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(store.save(key_of(std::to_string(i)), program(std::string(kEach, 'x'))));
    std::this_thread::sleep_for(std::chrono::milliseconds(15));
  }
  ASSERT_TRUE(store.load(key_of("0")));  // used now: the oldest is "1"
  std::this_thread::sleep_for(std::chrono::milliseconds(15));
  ASSERT_TRUE(store.save(key_of("5"), program(std::string(kEach, 'x'))));
  EXPECT_TRUE(store.load(key_of("0")));
  EXPECT_FALSE(store.load(key_of("1")));
  EXPECT_TRUE(store.load(key_of("5")));
  int64_t total = 0;
  for (const DiskEntry& entry : store.entries()) total += entry.bytes;
  EXPECT_LE(total, kLimit);
  EXPECT_FALSE(store.save(key_of("big"), program(std::string(6 * kEach, 'x')))) << "larger than the whole limit";
}

TEST_F(DiskStoreTest, ListsAndClears) {
  DiskStore store(folder(), -1);
  ASSERT_TRUE(store.save(key_of("a"), program("x")));
  ASSERT_TRUE(store.save(key_of("b"), program("y")));
  write(folder() + "/.writing-1-1", "left over");
  write(folder() + "/notes.txt", "not ours");
  const auto entries = store.entries();
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].op, "aten::add.Tensor");
  EXPECT_GT(entries[0].bytes, 0);
  EXPECT_GT(entries[0].modified, 1.6e9);
  EXPECT_EQ(store.clear(), 2);
  EXPECT_TRUE(store.entries().empty());
  EXPECT_FALSE(fs::exists(folder() + "/.writing-1-1"));
  EXPECT_TRUE(fs::exists(folder() + "/notes.txt"));
}

TEST_F(DiskStoreTest, OneProcessHoldsAKeyAtATime) {
  DiskStore store(folder(), -1);
  const std::string key = key_of("a");
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    {
      KeyLock lock = DiskStore(folder(), -1).lock(key, 5);
      const char byte = lock ? 'y' : 'n';
      if (::write(ready[1], &byte, 1) != 1) _exit(1);
      std::this_thread::sleep_for(std::chrono::milliseconds(400));
    }
    _exit(0);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  ASSERT_EQ(byte, 'y');
  EXPECT_FALSE(store.lock(key, 0.05)) << "held by the other process";
  EXPECT_TRUE(store.lock(key_of("b"), 0.05)) << "another key is free";
  const auto begin = std::chrono::steady_clock::now();
  KeyLock lock = store.lock(key, 10);
  EXPECT_TRUE(lock);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_FALSE(store.lock(key, 0.05)) << "threads of one process exclude each other too";
}

TEST_F(DiskStoreTest, ALockDiesWithItsProcess) {
  DiskStore store(folder(), -1);
  const std::string key = key_of("a");
  const pid_t child = fork();
  if (child == 0) {
    KeyLock lock = store.lock(key, 5);
    _exit(lock ? 0 : 1);  // without its destructor, as when killed
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(fs::exists(folder() + "/" + key + ".lock"));
  EXPECT_TRUE(store.lock(key, 0.5));
}

TEST_F(DiskStoreTest, ThreadsSaveAndLoadTheSameKey) {
  DiskStore store(folder(), -1);
  const std::string key = key_of("a");
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        store.save(key, program(std::string(5000, 'x')));
        const auto loaded = store.load(key);
        wrong += !loaded || loaded->blob != std::string(5000, 'x');
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(DiskStoreTest, TheFolderComesFromTheEnvironment) {
  const char* names[] = {"TORCH_TPU_CACHE", "TORCH_TPU_CACHE_DIR", "XDG_CACHE_HOME", "HOME",
                         "TORCH_TPU_INTERNAL_TIER2_COMPILATION_CACHE"};
  std::map<std::string, std::string> saved;
  for (const char* name : names)
    if (const char* value = getenv(name)) saved[name] = value;
  for (const char* name : names) unsetenv(name);
  EXPECT_EQ(configured_directory(), "");
  setenv("HOME", "/home/someone", 1);
  EXPECT_EQ(configured_directory(), "/home/someone/.cache/torch_tpu");
  setenv("XDG_CACHE_HOME", "relative", 1);
  EXPECT_EQ(configured_directory(), "/home/someone/.cache/torch_tpu");
  setenv("XDG_CACHE_HOME", "/xdg", 1);
  EXPECT_EQ(configured_directory(), "/xdg/torch_tpu");
  setenv("TORCH_TPU_CACHE_DIR", "/elsewhere", 1);
  EXPECT_EQ(configured_directory(), "/elsewhere");
  setenv("TORCH_TPU_INTERNAL_TIER2_COMPILATION_CACHE", "disabled", 1);
  EXPECT_EQ(configured_directory(), "");
  unsetenv("TORCH_TPU_INTERNAL_TIER2_COMPILATION_CACHE");
  setenv("TORCH_TPU_CACHE", "0", 1);
  EXPECT_EQ(configured_directory(), "");
  for (const char* name : names) unsetenv(name);
  for (const auto& [name, value] : saved) setenv(name.c_str(), value.c_str(), 1);
}

}  // namespace
}  // namespace torch_tpu::store
