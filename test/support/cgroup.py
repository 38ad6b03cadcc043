"""A control group of one test, with a limit, where this machine lets us make one."""

import os
import time
import uuid

ROOT = "/sys/fs/cgroup"


class Group:
    """`controller` is "memory" (limit in bytes), "pids" (processes) or "cpu" (microseconds of each 100,000). `folder` is None where it cannot be made."""

    FILES = {"memory": ("memory.limit_in_bytes", "memory.max"), "pids": ("pids.max", "pids.max"), "cpu": ("cpu.cfs_quota_us", "cpu.max")}

    def __init__(self, controller, limit):
        self.folder = None
        for root, file in zip((os.path.join(ROOT, controller), ROOT), self.FILES[controller]):
            folder = os.path.join(root, "sgd-test-" + uuid.uuid4().hex[:8])
            try:
                os.mkdir(folder)
            except OSError:
                continue
            try:
                with open(os.path.join(folder, file), "w") as out:
                    out.write(str(limit))
            except OSError:
                os.rmdir(folder)
                continue
            self.folder, self.file = folder, file
            return

    def limit(self, limit):
        """Another one from here on."""
        with open(os.path.join(self.folder, self.file), "w") as out:
            out.write(str(limit))

    def enter(self):
        """For preexec_fn: the process and all that it starts."""
        with open(os.path.join(self.folder, "cgroup.procs"), "w") as file:
            file.write("0")

    def pids(self):
        with open(os.path.join(self.folder, "cgroup.procs")) as file:
            return [int(line) for line in file]

    def remove(self):
        deadline = time.monotonic() + 10
        while self.folder:
            try:
                os.rmdir(self.folder)
                self.folder = None
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)


def may_make_groups():
    """Whether this process may make a group of version 2 below its own, whose processes the kernel kills together."""
    with open("/proc/self/cgroup", encoding="ascii") as file:
        own = [line.strip()[3:].rstrip("/") for line in file if line.startswith("0::")]
    for root in (ROOT, os.path.join(ROOT, "unified")):
        folder = root + (own[0] if own else "") + "/sgd-test-" + uuid.uuid4().hex[:8]
        try:
            os.mkdir(folder)
        except OSError:
            continue
        is_one = os.path.exists(os.path.join(folder, "cgroup.kill"))
        os.rmdir(folder)
        if is_one:
            return True
    return False
