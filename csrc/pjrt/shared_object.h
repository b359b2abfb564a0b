// Looking at a shared library before the dynamic linker does: it dies of files that are cut short.
#pragma once

#include <string>

namespace torch_tpu::pjrt {

// "" if the file is a whole ELF shared library for this machine, otherwise the reason why not.
std::string why_not_loadable(const std::string& path);

}  // namespace torch_tpu::pjrt
