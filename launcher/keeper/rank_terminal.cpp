#include "launcher/keeper/rank_terminal.hpp"

#include <fcntl.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

namespace sgd::keeper {

Result<RankTerminal> open_terminal() {
  int master = -1;
  int slave = -1;
  if (::openpty(&master, &slave, nullptr, nullptr, nullptr) != 0) return system_error("cannot open a terminal");
  RankTerminal terminal{process::UniqueFd(master), process::UniqueFd(slave)};
  termios settings{};
  const bool is_set = ::tcgetattr(slave, &settings) == 0;
  settings.c_oflag &= ~static_cast<tcflag_t>(OPOST);
  settings.c_lflag &= ~static_cast<tcflag_t>(ECHO);
  if (!is_set || ::tcsetattr(slave, TCSANOW, &settings) != 0 || !process::set_nonblocking(master) ||
      ::fcntl(master, F_SETFD, FD_CLOEXEC) != 0 || ::fcntl(slave, F_SETFD, FD_CLOEXEC) != 0)
    return system_error("cannot set up a terminal");
  take_size(master);
  return terminal;
}

void take_size(int master) {
  winsize size{};
  for (const int fd : {STDERR_FILENO, STDOUT_FILENO, STDIN_FILENO}) {
    if (::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) continue;
    (void)::ioctl(master, TIOCSWINSZ, &size);  // Ignoring: the rank has gone with its terminal.
    return;
  }
}

}  // namespace sgd::keeper
