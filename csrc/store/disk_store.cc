#include "store/disk_store.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string_view>
#include <thread>

#include "base/env.h"
#include "base/hash.h"
#include "base/log.h"

namespace torch_tpu::store {
namespace {

constexpr char kMagic[8] = {'T', 'O', 'R', 'C', 'H', 'T', 'P', 'U'};
constexpr uint32_t kFormat = 1;
constexpr size_t kHashDigits = 64;
constexpr uint32_t kLongestFacts = 64 * 1024;
constexpr std::string_view kProgramSuffix = ".program", kLockSuffix = ".lock", kTemporaryPrefix = ".writing-";
// A temporary file this old belongs to a process that died.
constexpr double kAbandonedSeconds = 3600;
// This part of the limit may be written before the folder is measured again.
constexpr int64_t kUnseenPart = 64;

struct Header {
  char magic[8];
  uint32_t format;
  uint32_t facts_bytes;
  uint64_t blob_bytes;
  char key[kHashDigits];
  char sha256[kHashDigits];  // of the facts and the blob
};
static_assert(sizeof(Header) == 152, "no padding: the header is written as it lies in memory");

std::string encode(const Facts& facts) {
  std::string text;
  for (const auto& [name, value] : facts) {
    std::string line = name + '=' + value;
    std::replace(line.begin(), line.end(), '\n', ' ');
    if (text.size() + line.size() + 1 > kLongestFacts) break;
    text += line + '\n';
  }
  return text;
}

Facts decode(std::string_view text) {
  Facts facts;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    if (const size_t equals = line.find('='); equals != std::string_view::npos)
      facts.emplace(line.substr(0, equals), line.substr(equals + 1));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return facts;
}

class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() { close(); }
  explicit operator bool() const { return descriptor_ >= 0; }
  int get() const { return descriptor_; }
  // False if the system reports a late write error.
  bool close() {
    if (descriptor_ < 0) return true;
    return ::close(std::exchange(descriptor_, -1)) == 0;
  }

 private:
  int descriptor_;
};

bool read_all(int file, void* destination, size_t bytes) {
  auto* to = static_cast<char*>(destination);
  while (bytes > 0) {
    const ssize_t n = ::read(file, to, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    to += n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

bool write_all(int file, const void* source, size_t bytes) {
  const auto* from = static_cast<const char*>(source);
  while (bytes > 0) {
    const ssize_t n = ::write(file, from, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    from += n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

enum class Verdict { kGood, kAbsent, kBad };

// Reads and checks the header alone.
Verdict read_header(int file, Header& header, uint64_t& file_bytes) {
  struct stat info{};
  if (fstat(file, &info) != 0 || !S_ISREG(info.st_mode)) return Verdict::kBad;
  file_bytes = static_cast<uint64_t>(info.st_size);
  if (file_bytes < sizeof header || !read_all(file, &header, sizeof header)) return Verdict::kBad;
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0 || header.format != kFormat) return Verdict::kBad;
  if (header.facts_bytes > kLongestFacts) return Verdict::kBad;
  if (header.blob_bytes != file_bytes - sizeof header - header.facts_bytes) return Verdict::kBad;
  return Verdict::kGood;
}

Verdict read_program(const std::string& path, const std::string& key, StoredProgram& program) {
  File file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file) return errno == ELOOP ? Verdict::kBad : Verdict::kAbsent;
  Header header{};
  uint64_t file_bytes = 0;
  if (Verdict verdict = read_header(file.get(), header, file_bytes); verdict != Verdict::kGood) return verdict;
  if (std::string_view(header.key, kHashDigits) != key) return Verdict::kBad;
  std::string rest(file_bytes - sizeof header, '\0');
  if (!read_all(file.get(), rest.data(), rest.size())) return Verdict::kBad;
  if (sha256_hex(rest) != std::string_view(header.sha256, kHashDigits)) return Verdict::kBad;
  program.facts = decode(std::string_view(rest).substr(0, header.facts_bytes));
  rest.erase(0, header.facts_bytes);
  program.blob = std::move(rest);
  // The time of the last use, which decides what a full store gives up first. Failure costs only that order.
  (void)futimens(file.get(), nullptr);
  return Verdict::kGood;
}

// Creates the folder and those above it; only the last is ours to restrict.
bool make_folder(const std::string& path) {
  for (size_t slash = path.find('/', 1); slash != std::string::npos; slash = path.find('/', slash + 1))
    (void)mkdir(path.substr(0, slash).c_str(), 0755);
  return mkdir(path.c_str(), 0700) == 0 || errno == EEXIST;
}

// Why the folder cannot be trusted; "" if it can.
std::string distrust(const std::string& path) {
  struct stat info{};
  if (stat(path.c_str(), &info) != 0) return std::strerror(errno);
  if (!S_ISDIR(info.st_mode)) return "not a folder";
  if (info.st_uid != geteuid()) return "not owned by this user";
  if (info.st_mode & (S_IWGRP | S_IWOTH)) return "writable by others";
  if (access(path.c_str(), R_OK | X_OK) != 0) return std::strerror(errno);
  return "";
}

struct Listed {
  std::string name;
  int64_t bytes = 0;
  double modified = 0;
};

std::vector<Listed> list(const std::string& directory) {
  std::vector<Listed> found;
  DIR* dir = directory.empty() ? nullptr : opendir(directory.c_str());
  if (!dir) return found;
  while (const dirent* entry = readdir(dir)) {
    struct stat info{};
    if (fstatat(dirfd(dir), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(info.st_mode)) continue;
    found.push_back({entry->d_name, static_cast<int64_t>(info.st_size),
                     static_cast<double>(info.st_mtim.tv_sec) + static_cast<double>(info.st_mtim.tv_nsec) * 1e-9});
  }
  closedir(dir);
  return found;
}

double seconds_since_epoch() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

bool is_program(const Listed& file) { return file.name.ends_with(kProgramSuffix); }

}  // namespace

KeyLock::KeyLock(KeyLock&& other) noexcept : file_(std::exchange(other.file_, -1)), path_(std::move(other.path_)) {}

KeyLock::~KeyLock() {
  if (file_ < 0) return;
  // Removed while held: whoever waits on this file finds that the name no longer leads to it and starts over.
  (void)unlink(path_.c_str());
  (void)close(file_);
}

DiskStore::DiskStore(std::string directory, int64_t limit) : directory_(std::move(directory)), limit_(limit) {
  if (directory_.empty()) return;
  while (directory_.size() > 1 && directory_.back() == '/') directory_.pop_back();
  (void)make_folder(directory_);  // distrust() names what went wrong
  why_off_ = distrust(directory_);
  if (why_off_.empty()) return;
  why_off_ = directory_ + ": " + why_off_;
  directory_.clear();
}

std::optional<StoredProgram> DiskStore::load(const std::string& key) {
  if (!on()) return std::nullopt;
  StoredProgram program;
  switch (read_program(path(key), key, program)) {
    case Verdict::kGood:
      return program;
    case Verdict::kAbsent:
      return std::nullopt;
    case Verdict::kBad:
      remove(key);
      return std::nullopt;
  }
  return std::nullopt;
}

bool DiskStore::save(const std::string& key, const StoredProgram& program) {
  if (!on() || key.size() != kHashDigits) return false;
  const std::string facts = encode(program.facts);
  const std::string rest = facts + program.blob;
  if (limit_ >= 0 && static_cast<int64_t>(sizeof(Header) + rest.size()) > limit_) return false;
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.format = kFormat;
  header.facts_bytes = static_cast<uint32_t>(facts.size());
  header.blob_bytes = program.blob.size();
  std::memcpy(header.key, key.data(), kHashDigits);
  std::memcpy(header.sha256, sha256_hex(rest).data(), kHashDigits);

  static std::atomic<int64_t> serial{0};
  const std::string temporary = directory_ + "/" + std::string(kTemporaryPrefix) + std::to_string(getpid()) + "-" +
                                std::to_string(serial.fetch_add(1));
  File file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file) return false;
  // No fsync: after a power cut the checksum makes a torn file a miss.
  const bool written = write_all(file.get(), &header, sizeof header) && write_all(file.get(), rest.data(), rest.size());
  if (!file.close() || !written || rename(temporary.c_str(), path(key).c_str()) != 0) {
    (void)unlink(temporary.c_str());
    return false;
  }
  // Measuring a folder of a hundred thousand files takes a second. So it is done once this process has written a
  // noticeable part of the limit, and otherwise for one key in 256, which bounds what many short processes add.
  bool measure = key.starts_with("00");
  {
    std::lock_guard lock(mutex_);
    unseen_ += static_cast<int64_t>(sizeof header + rest.size());
    measure = measure || unseen_ > limit_ / kUnseenPart;
  }
  if (measure) enforce_limit();
  return true;
}

void DiskStore::remove(const std::string& key) {
  if (on()) (void)unlink(path(key).c_str());
}

KeyLock DiskStore::lock(const std::string& key, double seconds) {
  if (!on()) return {};
  const std::string name = directory_ + "/" + key + std::string(kLockSuffix);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  auto pause = std::chrono::milliseconds(1);
  while (true) {
    const int file = ::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file < 0) return {};
    if (flock(file, LOCK_EX | LOCK_NB) == 0) {
      struct stat held{}, named{};
      if (fstat(file, &held) == 0 && stat(name.c_str(), &named) == 0 && held.st_ino == named.st_ino &&
          held.st_dev == named.st_dev)
        return {file, name};
      (void)close(file);  // its holder finished and removed the name meanwhile
      continue;
    }
    const bool busy = errno == EWOULDBLOCK || errno == EINTR;
    (void)close(file);
    if (!busy || std::chrono::steady_clock::now() >= deadline) return {};
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(50));
  }
}

std::vector<DiskEntry> DiskStore::entries() const {
  std::vector<DiskEntry> all;
  for (const Listed& listed : list(directory_)) {
    if (!is_program(listed)) continue;
    DiskEntry entry;
    entry.key = listed.name.substr(0, listed.name.size() - kProgramSuffix.size());
    entry.bytes = listed.bytes;
    entry.modified = listed.modified;
    File file(::open(path(entry.key).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    Header header{};
    uint64_t file_bytes = 0;
    if (file && read_header(file.get(), header, file_bytes) == Verdict::kGood) {
      std::string facts(header.facts_bytes, '\0');
      if (read_all(file.get(), facts.data(), facts.size())) entry.op = decode(facts)["op"];
    }
    all.push_back(std::move(entry));
  }
  std::sort(all.begin(), all.end(), [](const DiskEntry& a, const DiskEntry& b) { return a.modified < b.modified; });
  return all;
}

int64_t DiskStore::clear() {
  int64_t removed = 0;
  for (const Listed& file : list(directory_)) {
    const bool left_over = file.name.ends_with(kLockSuffix) || file.name.starts_with(kTemporaryPrefix);
    if (!is_program(file) && !left_over) continue;
    if (unlink((directory_ + "/" + file.name).c_str()) == 0 && is_program(file)) ++removed;
  }
  return removed;
}

void DiskStore::enforce_limit() {
  if (!on() || limit_ < 0) return;
  std::vector<Listed> files = list(directory_);
  const double now = seconds_since_epoch();
  int64_t total = 0;
  for (const Listed& file : files) {
    if (file.name.starts_with(kTemporaryPrefix) && now - file.modified > kAbandonedSeconds)
      (void)unlink((directory_ + "/" + file.name).c_str());
    if (is_program(file)) total += file.bytes;
  }
  if (total > limit_ - limit_ / kUnseenPart) {
    std::erase_if(files, [](const Listed& file) { return !is_program(file); });
    std::sort(files.begin(), files.end(), [](const Listed& a, const Listed& b) { return a.modified < b.modified; });
    for (const Listed& file : files) {
      if (total <= limit_ / 10 * 9) break;
      if (unlink((directory_ + "/" + file.name).c_str()) == 0) total -= file.bytes;
    }
  }
  std::lock_guard lock(mutex_);
  unseen_ = 0;
}

std::string configured_directory() {
  const Result<bool> wanted = env::flag("TORCH_TPU_CACHE");
  if (wanted.ok() && !wanted.value()) return "";
  if (env::string("TORCH_TPU_INTERNAL_TIER2_COMPILATION_CACHE") == "disabled") return "";
  if (std::string directory = env::string("TORCH_TPU_CACHE_DIR"); !directory.empty()) return directory;
  // The XDG specification says to ignore relative paths.
  if (const char* xdg = std::getenv("XDG_CACHE_HOME"); xdg && xdg[0] == '/') return std::string(xdg) + "/torch_tpu";
  if (const char* home = std::getenv("HOME"); home && home[0] == '/') return std::string(home) + "/.cache/torch_tpu";
  return "";
}

DiskStore& disk_store() {
  static DiskStore* const instance = [] {
    const Result<int64_t> limit = env::bytes("TORCH_TPU_CACHE_SIZE");
    auto* made = new DiskStore(configured_directory(), limit.ok() ? limit.value() : -1);
    if (!made->why_off().empty()) log::warn("programs are not stored on disk: " + made->why_off());
    return made;
  }();
  return *instance;
}

std::string directory() { return disk_store().directory(); }
std::vector<DiskEntry> disk_entries() { return disk_store().entries(); }
int64_t clear_disk() { return disk_store().clear(); }

}  // namespace torch_tpu::store
