#include "launcher/http/process_metrics.hpp"

#include <dirent.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <sstream>
#include <string>

#include "common/json/json_file.hpp"

namespace sgd::http {
namespace {

std::string text_of(const char* path) {
  const Result<std::string> text = json::text_of_file(path);
  return text ? text.value() : std::string();
}

/// When the machine was started, in seconds since 1970. /proc/stat would say it, but units with
/// ProcSubset=pid hide that.
double boot_time() {
  timespec now{};
  timespec up{};
  (void)::clock_gettime(CLOCK_REALTIME, &now);
  (void)::clock_gettime(CLOCK_BOOTTIME, &up);
  return static_cast<double>(now.tv_sec - up.tv_sec) + static_cast<double>(now.tv_nsec - up.tv_nsec) / 1e9;
}

/// Linux 6.2 and later say their number as the folder's size (proc_pid_fd(5)); a listing of ten thousand holds the loop
/// for tens of milliseconds.
double count_fds() {
  struct stat facts {};
  if (::stat("/proc/self/fd", &facts) == 0 && facts.st_size > 0) return static_cast<double>(facts.st_size);
  DIR* folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return 0;
  double count = -3;  // ".", "..", and the listing's own.
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return std::max(count, 0.0);
}

}  // namespace

ProcessMetrics read_process_metrics() {
  ProcessMetrics process;
  // proc(5): fields 14 utime, 15 stime, 22 starttime (ticks), 23 vsize (bytes), 24 rss (pages). The name
  // before them is in parentheses and may hold anything.
  const std::string stat = text_of("/proc/self/stat");
  const std::size_t behind_name = stat.rfind(')');
  if (behind_name != std::string::npos) {
    std::istringstream fields(stat.substr(behind_name + 1));
    const auto ticks_per_second = static_cast<double>(::sysconf(_SC_CLK_TCK));
    std::string skipped;
    double user = 0;
    double system = 0;
    double start = 0;
    double pages = 0;
    for (int field = 3; field < 14; ++field) fields >> skipped;
    fields >> user >> system;
    for (int field = 16; field < 22; ++field) fields >> skipped;
    fields >> start >> process.virtual_bytes >> pages;
    process.cpu_seconds = (user + system) / ticks_per_second;
    process.start_time_seconds = boot_time() + start / ticks_per_second;
    process.resident_bytes = pages * static_cast<double>(::sysconf(_SC_PAGESIZE));
  }
  process.open_fds = count_fds();
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) process.max_fds = static_cast<double>(limit.rlim_cur);
  return process;
}

void write(const ProcessMetrics& process, MetricsText& text) {
  text.counter("process_cpu_seconds_total", "Processor time used, user and system.", process.cpu_seconds);
  text.gauge("process_resident_memory_bytes", "Memory held.", process.resident_bytes);
  text.gauge("process_virtual_memory_bytes", "Address space.", process.virtual_bytes);
  text.gauge("process_start_time_seconds", "When the process was started, in seconds since 1970.",
             process.start_time_seconds);
  text.gauge("process_open_fds", "Open descriptors.", process.open_fds);
  text.gauge("process_max_fds", "Limit of open descriptors.", process.max_fds);
}

}  // namespace sgd::http
