"""A bare Debian in a folder, which debootstrap makes, and in which the package is installed."""

import argparse
import contextlib
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SUITE = "bookworm"
# What apt, dpkg and accounts themselves leave: lists, logs, backups of their files.
OF_THE_SYSTEM = re.compile(r"^/(proc|sys|dev|tmp|run|home/eva|opt/libtorch|var/(lib/(apt|dpkg|systemd|private)|cache|log|tmp/systemd-private)|etc/(passwd|group|shadow|gshadow|subuid|subgid)-?$|etc/\.pwd\.lock)")
LIMIT_S = 900


def mirror():
    """Where this machine gets Debian from."""
    for path in [*glob.glob("/etc/apt/sources.list"), *glob.glob("/etc/apt/sources.list.d/*")]:
        with open(path, encoding="utf-8") as file:
            found = re.search(r"(?m)^(?:URIs:|deb(?: \[[^]]*\])?)\s+(\S+/debian)/?\s*(?:\s|$)", file.read())
        if found:
            return found.group(1)
    sys.exit("no source of Debian's packages in /etc/apt")


def mounts_below(folder):
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        return [line.split()[4] for line in file if line.split()[4].startswith(folder + "/")]


@contextlib.contextmanager
def scratch(name, keep):
    """A folder for a Chroot, which goes with all that is mounted in it."""
    folder = tempfile.mkdtemp(prefix=f"sgd-{name}-", dir="/var/tmp")
    os.chmod(folder, 0o755)
    try:
        yield folder
    finally:
        if not keep:
            for place in reversed(mounts_below(folder)):
                subprocess.run(["umount", "--lazy", place], check=False)
            if not mounts_below(folder):  # What is mounted there is this machine's.
                shutil.rmtree(folder, ignore_errors=True)


def options_of(name):
    """The options of a trial of the package, which goes on in a mount namespace of its own."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--package", default="")
    parser.add_argument("--torch", required=True)
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    if os.geteuid() != 0 or not shutil.which("debootstrap"):
        sys.exit(f"{name}: needs root and debootstrap (apt-get install debootstrap)")
    if "SGD_IN_NAMESPACE" not in os.environ:  # Mounts end with it, whatever ends this.
        os.execvpe("unshare", ["unshare", "--mount", "--propagation", "private", sys.executable, *sys.argv], {**os.environ, "SGD_IN_NAMESPACE": "1"})
    options.package = options.package or glob.glob(os.path.join(ROOT, "build", "release", "package", "*.deb"))[0]
    options.torch = os.path.realpath(options.torch)
    return options


class Chroot:
    def __init__(self, folder):
        self.folder = folder

    def make(self):
        """The bare system, with what lets apt work in it."""
        subprocess.run(["debootstrap", "--variant=minbase", SUITE, self.folder, mirror()], check=True, stdout=subprocess.DEVNULL, timeout=LIMIT_S)
        for name in ("proc", "sys"):
            subprocess.run(["mount", "--rbind", "/" + name, self.path(name)], check=True)
        subprocess.run(["mount", "--bind", "/dev", self.path("dev")], check=True)
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", self.path("dev/shm")], check=True)
        for path in ["/etc/resolv.conf", "/etc/hosts", *glob.glob("/etc/apt/apt.conf.d/*prox*")]:
            if os.path.exists(path):
                shutil.copy(path, self.path(path))

    def path(self, name):
        return os.path.join(self.folder, name.lstrip("/"))

    def add_needed(self, package, *more):
        """Installs what a .deb needs, and makes the account eva; the names of those packages."""
        depends = subprocess.run(["dpkg-deb", "-f", package, "Depends"], capture_output=True, text=True, check=True).stdout
        names = [re.split(r"[ (|]", one.strip())[0] for one in depends.split(",")]
        self.run("apt-get update")
        self.run("apt-get install -y --no-install-recommends", *names, *more)
        self.run("useradd -m eva")
        return names

    def way_in(self):
        """The words before a command that is to run inside."""
        return ["chroot", self.folder]

    def run(self, *words, expect=0, account="root"):
        """stdout and stderr of a command inside; `expect` is its exit code, None: any."""
        line = " ".join(words)
        as_account = [] if account == "root" else ["/bin/su", "-", account, "-s"]
        command = [*self.way_in(), *as_account, "/bin/sh", "-c", line]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False, stdin=subprocess.DEVNULL,
                              env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8", "HOME": os.path.expanduser("~root")})
        if expect is not None and done.returncode != expect:
            sys.exit(f"{line}: ended with {done.returncode}, expected {expect}\n{done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def files(self):
        """Everything that lies there, but what belongs to the system's own tools, and the accounts."""
        found = set()
        for folder, folders, names in os.walk(self.folder):
            inside = "/" + os.path.relpath(folder, self.folder) if folder != self.folder else ""
            folders[:] = [name for name in folders if not OF_THE_SYSTEM.match(f"{inside}/{name}")]
            found |= {f"{inside}/{name}" for name in names + folders if not OF_THE_SYSTEM.match(f"{inside}/{name}")}
        with open(self.path("/etc/passwd"), encoding="utf-8") as file:
            return found | {line.split(":")[0] + " (account)" for line in file}
