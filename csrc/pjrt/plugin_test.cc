#include "pjrt/plugin.h"

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/hash.h"
#include "pjrt/hash_memo.h"
#include "pjrt/test_engine.h"

namespace torch_tpu::pjrt {
namespace {

namespace fs = std::filesystem;

class Folder : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/torch_tpu_plugin_XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  void TearDown() override {
    fs::remove_all(path_);
    for (const char* name : {"TORCH_TPU_PJRT_PLUGIN", "TORCH_TPU_EMBEDDED", "TORCH_TPU_CACHE_DIR"}) unsetenv(name);
  }
  void write(const std::string& name, const std::string& text) {
    fs::create_directories(fs::path(path_ + "/" + name).parent_path());
    std::ofstream(path_ + "/" + name, std::ios::binary) << text;
  }
  std::string error_of(const std::string& path) {
    Result<const Plugin*> plugin = Plugin::load({path, "test"});
    EXPECT_FALSE(plugin.ok()) << path;
    if (plugin.ok()) return "";
    EXPECT_EQ(plugin.error().code, ErrorCode::kUnavailable);
    return plugin.error().message;
  }
  std::string path_;
};

using BadPlugin = Folder;

TEST_F(BadPlugin, MissingFile) {
  EXPECT_EQ(error_of(path_ + "/none.so"),
            "tpu: cannot use the PJRT plugin <" + path_ + "/none.so>: there is no such file");
}

TEST_F(BadPlugin, Folder) { EXPECT_NE(error_of(path_).find("it is not a file"), std::string::npos); }

TEST_F(BadPlugin, TextFile) {
  write("text.so", "hello, I am not a library at all, whatever my name says to you");
  EXPECT_NE(error_of(path_ + "/text.so").find("no ELF header"), std::string::npos);
  write("empty.so", "");
  EXPECT_NE(error_of(path_ + "/empty.so").find("no ELF header"), std::string::npos);
}

TEST_F(BadPlugin, LibraryCutShort) {
  std::ifstream whole(TORCH_TPU_EMBEDDED_PLUGIN, std::ios::binary);
  std::string head(1 << 16, '\0');
  whole.read(head.data(), static_cast<std::streamsize>(head.size()));
  write("short.so", head);
  EXPECT_NE(error_of(path_ + "/short.so").find("the file is cut short"), std::string::npos);
}

// An executable program is no shared library, and a shared library that is no plugin has no GetPjrtApi.
TEST_F(BadPlugin, OtherLibrary) {
  const std::string error = error_of(TORCH_TPU_NOT_A_PLUGIN);
  EXPECT_NE(error.find("it has no function GetPjrtApi, so it is not a PJRT plugin"), std::string::npos) << error;
}

TEST_F(BadPlugin, EveryDefectiveTable) {
  const struct {
    const char* mode;
    const char* expected;
  } kCases[] = {{"null", "GetPjrtApi returned null"},
                {"small", "its function table is too small"},
                {"major", "it speaks PJRT API 7.3, expected major version 0"},
                {"hole", "its function table lacks PJRT_Client_Compile"},
                {"throw", "GetPjrtApi threw an exception"},
                {"refuse", "no thanks"}};
  for (const auto& [mode, expected] : kCases) {
    // Each mode needs a library of its own: plugins are loaded once and stay.
    const std::string copy = path_ + "/" + mode + ".so";
    fs::copy_file(TORCH_TPU_BROKEN_PLUGIN, copy);
    setenv("TORCH_TPU_TEST_BROKEN", mode, 1);
    const std::string error = error_of(copy);
    EXPECT_NE(error.find(expected), std::string::npos) << mode << ": " << error;
  }
}

TEST_F(BadPlugin, IsTriedAgain) {
  const std::string path = path_ + "/later.so";
  error_of(path);
  write("later.so", "now it exists");
  EXPECT_NE(error_of(path).find("no ELF header"), std::string::npos);
}

using Choice = Folder;

TEST_F(Choice, TheVariableWins) {
  setenv("TORCH_TPU_PJRT_PLUGIN", "/some/where.so", 1);
  const PluginChoice choice = choose_plugin("/libtpu.so", "/embedded.so").take();
  EXPECT_EQ(choice.path, "/some/where.so");
  EXPECT_EQ(choice.source, "TORCH_TPU_PJRT_PLUGIN");
}

TEST_F(Choice, EmbeddedWithoutTpu) {
  if (tpu_present()) GTEST_SKIP() << "this machine has a TPU";
  EXPECT_EQ(choose_plugin("/libtpu.so", "/embedded.so").value().source, "xla-cpu-pjrt");
  EXPECT_EQ(choose_plugin("/libtpu.so", "").error().message,
            "tpu: this machine has no TPU and the embedded engine is not installed: pip install xla-cpu-pjrt==0.0.1");
  setenv("TORCH_TPU_EMBEDDED", "0", 1);
  EXPECT_EQ(choose_plugin("/libtpu.so", "/embedded.so").error().message,
            "tpu: this machine has no TPU and TORCH_TPU_EMBEDDED=0 turns the embedded engine off");
  setenv("TORCH_TPU_EMBEDDED", "perhaps", 1);
  EXPECT_EQ(choose_plugin("", "/embedded.so").error().code, ErrorCode::kValue);
}

using Presence = Folder;

TEST_F(Presence, NeedsTheVendorAndANode) {
  const auto bus = [&](const std::string& vendor, const std::string& kind) {
    write("sys/bus/pci/devices/0000:00:05.0/vendor", vendor + "\n");
    write("sys/bus/pci/devices/0000:00:05.0/class", kind + "\n");
  };
  EXPECT_FALSE(tpu_present(path_));
  bus("0x1ae0", "0x120000");
  EXPECT_FALSE(tpu_present(path_));
  write("dev/vfio/vfio", "");
  EXPECT_FALSE(tpu_present(path_));
  write("dev/vfio/0", "");
  EXPECT_TRUE(tpu_present(path_));
  fs::remove(path_ + "/dev/vfio/0");
  write("dev/accel0", "");
  EXPECT_TRUE(tpu_present(path_));
  bus("0x1ae0", "0x020000");  // a virtual network card
  EXPECT_FALSE(tpu_present(path_));
  bus("0x10de", "0x030200");
  EXPECT_FALSE(tpu_present(path_));
}

TEST(Plugin, LoadsOnce) {
  const Plugin* first = Plugin::load(test_plugin()).value();
  EXPECT_EQ(first, Plugin::load(test_plugin()).value());
  EXPECT_GE(first->api_minor(), 81);
  EXPECT_FALSE(first->has(1 << 20));
}

using Memo = Folder;

TEST_F(Memo, IsKeptAndNoticesChanges) {
  setenv("TORCH_TPU_CACHE_DIR", (path_ + "/cache").c_str(), 1);
  write("library", "one");
  const std::string file = path_ + "/library";
  EXPECT_EQ(memoized_file_hash(file), sha256_hex("one"));
  ASSERT_EQ(std::distance(fs::directory_iterator(path_ + "/cache"), fs::directory_iterator()), 1);
  const std::string memo = fs::directory_iterator(path_ + "/cache")->path();

  // The memo is believed...
  std::string text(fs::file_size(memo), '\0');
  std::ifstream(memo).read(text.data(), static_cast<std::streamsize>(text.size()));
  const std::string forged = text.substr(0, text.size() - 64) + std::string(64, 'a');
  std::ofstream(memo) << forged;
  EXPECT_EQ(memoized_file_hash(file), std::string(64, 'a'));
  // ... unless others could have written it, ...
  chmod(memo.c_str(), 0666);
  EXPECT_EQ(memoized_file_hash(file), sha256_hex("one"));
  std::ofstream(memo) << forged;
  chmod(memo.c_str(), 0600);
  // ... the file has changed, or the memo is damaged.
  write("library", "two");
  EXPECT_EQ(memoized_file_hash(file), sha256_hex("two"));
  std::ofstream(memo) << "junk";
  EXPECT_EQ(memoized_file_hash(file), sha256_hex("two"));
  EXPECT_EQ(memoized_file_hash(path_ + "/absent"), "");
}

}  // namespace
}  // namespace torch_tpu::pjrt
