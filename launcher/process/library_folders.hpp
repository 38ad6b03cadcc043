#pragma once
// Whether what a program is linked with can be opened by this account: the folders that the program itself names.
// Says nothing about libraries of the system, nor of a program that is no ELF file of 64 bits.

#include <string>
#include <vector>

#include "common/base/result.hpp"

namespace sgd::process {

/// The folders of DT_RUNPATH or DT_RPATH, in their order, those from where the program lies ($ORIGIN), too; none for a
/// script, or a file that cannot be read.
[[nodiscard]] std::vector<std::string> library_folders(const std::string& program);
/// Several are places to look in: one is enough. The error names the first that this account cannot open, and the
/// folder above it that is closed, or that it is missing.
[[nodiscard]] Status check_library_folders(const std::string& program);

}  // namespace sgd::process
