#include "pjrt/shared_object.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

namespace torch_tpu::pjrt {
namespace {

#if defined(__x86_64__)
constexpr int kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr int kMachine = EM_AARCH64;
#else
constexpr int kMachine = EM_NONE;
#endif

std::string inspect(int file, uint64_t size) {
  Elf64_Ehdr header;
  if (::pread(file, &header, sizeof(header), 0) != sizeof(header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
    return "it is not a shared library (no ELF header)";
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || (kMachine != EM_NONE && header.e_machine != kMachine))
    return "it is built for another processor";
  if (header.e_type != ET_DYN) return "it is not a shared library";
  if (header.e_phentsize != sizeof(Elf64_Phdr)) return "its ELF header is damaged";
  std::vector<Elf64_Phdr> segments(header.e_phnum);
  const auto bytes = static_cast<ssize_t>(segments.size() * sizeof(Elf64_Phdr));
  if (::pread(file, segments.data(), static_cast<size_t>(bytes), static_cast<off_t>(header.e_phoff)) != bytes)
    return "its ELF header is damaged";
  for (const Elf64_Phdr& segment : segments)
    if (segment.p_type == PT_LOAD && (segment.p_offset > size || segment.p_filesz > size - segment.p_offset))
      return "the file is cut short";
  return "";
}

}  // namespace

std::string why_not_loadable(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return errno == ENOENT ? "there is no such file" : std::strerror(errno);
  struct stat facts;
  std::string why;
  if (::fstat(file, &facts) != 0 || !S_ISREG(facts.st_mode))
    why = "it is not a file";
  else
    why = inspect(file, static_cast<uint64_t>(facts.st_size));
  ::close(file);
  return why;
}

}  // namespace torch_tpu::pjrt
