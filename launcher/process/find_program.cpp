// Which file a program's name means, and why a file could not be executed. The system's
// errno alone misleads: ENOENT also stands for a script's missing interpreter or a missing
// dynamic loader, and ENOEXEC for another machine's program as well as for plain text.

#include <elf.h>
#include <paths.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "launcher/process/spawn.hpp"

namespace sgd::process {
namespace {

bool is_regular_file(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

/// The first bytes of a file, as far as it has them.
std::string head_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string head(256, '\0');
  file.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(static_cast<std::size_t>(file.gcount()));
  return head;
}

/// Of a script: the interpreter in its "#!" line; else empty.
std::string interpreter_of(const std::string& head) {
  if (head.compare(0, 2, "#!") != 0) return "";
  const std::size_t begin = head.find_first_not_of(" \t", 2);
  if (begin == std::string::npos) return "";
  return head.substr(begin, head.find_first_of(" \t\r\n", begin) - begin);
}

std::uint16_t native_machine() {
  const std::string head = head_of("/proc/self/exe");
  Elf64_Ehdr header{};
  std::memcpy(&header, head.data(), std::min(head.size(), sizeof header));
  return header.e_machine;
}

std::string explain_bad_format(const std::string& path) {
  const std::string head = head_of(path);
  if (head.empty()) return path + " is empty, not a program";
  if (head.compare(0, SELFMAG, ELFMAG) != 0) {
    return path + " is no program and has no #! line; start it by its interpreter";
  }
  Elf64_Ehdr header{};
  std::memcpy(&header, head.data(), std::min(head.size(), sizeof header));
  if (header.e_machine != native_machine()) {
    return path + " is built for another architecture (ELF machine " + std::to_string(header.e_machine) +
           ", this one is " + std::to_string(native_machine()) + ")";
  }
  return path + " is a damaged program";
}

}  // namespace

Error explain_exec_failure(const std::string& path, int code) {
  const std::string reason = std::strerror(code);
  switch (code) {
    case ENOENT: {
      if (!is_regular_file(path)) return {"program " + path + " is missing", code};
      const std::string interpreter = interpreter_of(head_of(path));
      if (interpreter.empty()) return {"the dynamic loader that program " + path + " names is missing", code};
      return {"interpreter " + interpreter + " of script " + path + " is missing", code};
    }
    case EACCES:
    case EPERM: {
      struct stat info {};
      if (::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode))
        return {path + " is a folder, not a program", code};
      return {"program " + path + " is not executable: " + reason + " (chmod +x, or a file system mounted noexec)",
              code};
    }
    case ENOEXEC:
      return {explain_bad_format(path), code};
    case E2BIG:
      return {"arguments and environment of " + path + " are too long", code};
    default:
      return {"cannot execute " + path + ": " + reason, code};
  }
}

Result<std::string> find_program(const std::string& program, const std::string& search_path) {
  if (program.empty()) return Error{"the program's name is empty", ENOENT};
  if (program.find('/') != std::string::npos) return program;
  if (search_path.empty()) return find_program(program, _PATH_DEFPATH);  // As a shell that is told nothing.
  std::string refused;  // Found, but not executable: a better message than "not found".
  for (std::size_t begin = 0; begin <= search_path.size();) {
    std::size_t end = search_path.find(':', begin);
    if (end == std::string::npos) end = search_path.size();
    const std::string folder = end == begin ? "." : search_path.substr(begin, end - begin);
    const std::string candidate = folder + "/" + program;
    if (is_regular_file(candidate)) {
      if (::access(candidate.c_str(), X_OK) == 0) return candidate;
      if (refused.empty()) refused = candidate;
    }
    begin = end + 1;
  }
  if (!refused.empty()) return explain_exec_failure(refused, EACCES);
  return Error{"program " + program + " is missing: not found in PATH", ENOENT};
}

}  // namespace sgd::process
