"""A machine that a real systemd has booted: in a folder of this one, with processes, mounts, network and control groups of its own."""

import os
import signal
import subprocess
import time

from chroot import Chroot

LIMIT_S = 60
# What a container manager prepares; systemd mounts the rest. The kernel's settings and devices stay this machine's.
BOOT = r"""
set -e
mount --make-rprivate /
mount --bind "$1" "$1"
cd "$1"
mount --bind "$2" "${3#/}"
mount -t proc proc proc
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro sysfs sys
mount -t tmpfs tmpfs sys/fs/cgroup
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=755 tmpfs dev
mknod -m 666 dev/null c 1 3
mknod -m 666 dev/zero c 1 5
mknod -m 666 dev/full c 1 7
mknod -m 666 dev/random c 1 8
mknod -m 666 dev/urandom c 1 9
mknod -m 666 dev/tty c 5 0
mkdir dev/shm dev/pts .old
mount -t tmpfs -o mode=1777 tmpfs dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
hostname n1
ip link set lo up
pivot_root . .old
umount -l /.old
rmdir /.old
exec env -i container=sgd-launch PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd systemd.unified_cgroup_hierarchy=1
"""


def child_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        found = file.read().split()
    return int(found[0]) if found else 0


class Booted(Chroot):
    """Its base, packages and files come by the chroot, while the machine is off or on."""

    def __init__(self, folder, theirs, ours):
        """`ours`: a folder of this machine, which is `theirs` there."""
        super().__init__(folder)
        self.theirs, self.ours = theirs, ours
        self.manager = None
        self.init = 0

    def boot(self):
        """Returns when systemd has started what belongs to its start."""
        with open(self.path("/etc/hostname"), "w", encoding="ascii") as file:
            file.write("n1\n")
        space = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--uts", "--ipc", "--net", "--cgroup"]
        self.manager = subprocess.Popen([*space, "/bin/bash", "-c", BOOT, "boot", self.folder, self.ours, self.theirs], stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + LIMIT_S
        while True:
            self.init = self.init or child_of(self.manager.pid)
            said = self.inside("systemctl is-system-running").stdout.strip() if self.init and self.is_systemd() else ""
            if said in ("running", "degraded"):
                return
            if time.monotonic() > deadline or self.manager.poll() is not None:
                raise RuntimeError(f"systemd has not started: {said}")
            time.sleep(0.1)

    def is_systemd(self):
        with open(f"/proc/{self.init}/comm", encoding="utf-8") as file:
            return file.read().strip() == "systemd"

    def power_off(self):
        """As if somebody had pulled the plug: every process ends at one moment, and none hears of it."""
        if self.manager:
            os.kill(self.init, signal.SIGKILL)
            self.manager.wait()
            self.manager, self.init = None, 0

    def way_in(self):
        return ["nsenter", "--target", str(self.init), "--all"] if self.init else super().way_in()

    def inside(self, line):
        return subprocess.run([*self.way_in(), "/bin/sh", "-c", line], capture_output=True, text=True, timeout=LIMIT_S, check=False)
