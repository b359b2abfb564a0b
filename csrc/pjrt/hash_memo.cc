#include "pjrt/hash_memo.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "base/env.h"
#include "base/hash.h"

namespace torch_tpu::pjrt {
namespace {

constexpr size_t kHexDigits = 64;

// The folder of the disk store (store/disk_store.h decides the same for itself); "" if there is none.
std::string memo_folder() {
  if (std::string configured = env::string("TORCH_TPU_CACHE_DIR"); !configured.empty()) return configured;
  const char* xdg = std::getenv("XDG_CACHE_HOME");
  if (xdg != nullptr && *xdg == '/') return std::string(xdg) + "/torch_tpu";
  const char* home = std::getenv("HOME");
  return home != nullptr && *home == '/' ? std::string(home) + "/.cache/torch_tpu" : "";
}

// Everything that changes when the file's contents do. The time of change cannot be set back by a user.
std::string identity(const std::string& path, const struct stat& facts) {
  const auto time = [](const timespec& t) { return std::to_string(t.tv_sec) + "." + std::to_string(t.tv_nsec); };
  return path + "\n" + std::to_string(facts.st_size) + " " + std::to_string(facts.st_dev) + " " +
         std::to_string(facts.st_ino) + " " + time(facts.st_mtim) + " " + time(facts.st_ctim) + "\n";
}

bool only_owner_writes(const struct stat& facts) {
  return facts.st_uid == geteuid() && (facts.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

std::string read_memo(const std::string& memo, const std::string& expected) {
  const int file = ::open(memo.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (file < 0) return "";
  struct stat facts;
  std::string text(expected.size() + kHexDigits, '\0');
  const bool trusted = ::fstat(file, &facts) == 0 && S_ISREG(facts.st_mode) && only_owner_writes(facts) &&
                       facts.st_size == static_cast<off_t>(text.size());
  const bool whole = trusted && ::read(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  ::close(file);
  if (!whole || text.compare(0, expected.size(), expected) != 0) return "";
  const std::string hash = text.substr(expected.size());
  return hash.find_first_not_of("0123456789abcdef") == std::string::npos ? hash : "";
}

void write_memo(const std::string& memo, const std::string& text) {
  const std::string temporary = memo + "." + std::to_string(getpid());
  const int file = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) return;  // a full or read-only disk only costs the next process its half second
  const bool written = ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  ::close(file);
  if (!written || ::rename(temporary.c_str(), memo.c_str()) != 0) ::unlink(temporary.c_str());
}

// Makes the folder if need be; true if nobody else can put files there.
bool usable_folder(const std::string& folder) {
  struct stat facts;
  if (::stat(folder.c_str(), &facts) != 0) {
    std::error_code ignored;
    std::filesystem::create_directories(std::filesystem::path(folder).parent_path(), ignored);
    if (::mkdir(folder.c_str(), 0700) != 0 || ::stat(folder.c_str(), &facts) != 0) return false;
  }
  return S_ISDIR(facts.st_mode) && only_owner_writes(facts);
}

}  // namespace

std::string memoized_file_hash(const std::string& path) {
  const std::string folder = memo_folder();
  struct stat facts;
  if (folder.empty() || ::stat(path.c_str(), &facts) != 0 || !usable_folder(folder)) return sha256_file_hex(path);
  const std::string memo = folder + "/plugin-" + sha256_hex(path).substr(0, 16) + ".sha256";
  const std::string expected = identity(path, facts);
  if (std::string known = read_memo(memo, expected); !known.empty()) return known;
  const std::string hash = sha256_file_hex(path);
  if (!hash.empty()) write_memo(memo, expected + hash);
  return hash;
}

}  // namespace torch_tpu::pjrt
