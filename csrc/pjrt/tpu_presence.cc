// Is there a TPU? Answered from the file system alone: opening a chip would take it from the process that uses it.
#include <dirent.h>

#include <cctype>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>

#include "pjrt/plugin.h"

namespace torch_tpu::pjrt {
namespace {

constexpr std::string_view kGoogle = "0x1ae0";
constexpr std::string_view kNetworkClass = "0x02";

bool any_entry(const std::string& folder, const std::function<bool(const std::string&)>& matches) {
  DIR* directory = opendir(folder.c_str());
  if (directory == nullptr) return false;
  bool found = false;
  while (const dirent* entry = found ? nullptr : readdir(directory))
    found = entry->d_name[0] != '.' && matches(entry->d_name);
  closedir(directory);
  return found;
}

std::string first_word(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

bool is_numbered(const std::string& name, size_t prefix) {
  if (name.size() <= prefix) return false;
  for (size_t i = prefix; i < name.size(); ++i)
    if (!std::isdigit(static_cast<unsigned char>(name[i]))) return false;
  return true;
}

}  // namespace

bool tpu_present(const std::string& root) {
  const std::string devices = root + "/sys/bus/pci/devices";
  const bool on_bus = any_entry(devices, [&](const std::string& name) {
    const std::string device = devices + "/" + name;
    // Google's virtual network card has the same vendor.
    return first_word(device + "/vendor") == kGoogle && !first_word(device + "/class").starts_with(kNetworkClass);
  });
  if (!on_bus) return false;
  const auto is_accel = [](const std::string& name) { return name.starts_with("accel") && is_numbered(name, 5); };
  const auto is_group = [](const std::string& name) { return is_numbered(name, 0); };
  return any_entry(root + "/dev", is_accel) || any_entry(root + "/dev/accel", is_accel) ||
         any_entry(root + "/dev/vfio", is_group);
}

}  // namespace torch_tpu::pjrt
