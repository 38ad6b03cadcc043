"""The daemons as scripts/systemd starts them, under the accounts that it makes, in a mount namespace whose list of accounts has
them: for tests that run as root where no systemd runs.

    units = InstalledUnits(folder)
    process = units.start("coordinator", state, log, SGD_LISTEN="127.0.0.1:0")
"""

import contextlib
import os
import pwd
import re
import shutil
import subprocess

from harness import LAUNCHER, LIMIT_S, read_file

UNITS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts", "systemd")
ORDINARY = "nobody"  # An account that is on every Debian, and none of theirs.


def can_install():
    return os.geteuid() == 0 and shutil.which("systemd-sysusers") is not None


def give(folder, uid, gid):
    """As systemd gives a state folder to its unit's account."""
    for place, _, names in os.walk(folder):
        for each in (place, *(os.path.join(place, one) for one in names)):
            os.chown(each, uid, gid, follow_symlinks=False)


@contextlib.contextmanager
def ordinary_account():
    """This process acts as an ordinary account meanwhile; nothing changes where it is none of root's."""
    if os.geteuid() != 0:
        yield
        return
    account, groups = pwd.getpwnam(ORDINARY), os.getgroups()
    os.setgroups([])
    os.setegid(account.pw_gid)
    os.seteuid(account.pw_uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)


class InstalledUnits:
    def __init__(self, folder):
        """`folder`: others must get through it; the launcher lies in it where they may execute it."""
        self.folder = folder
        os.chmod(folder, 0o755)
        os.makedirs(os.path.join(folder, "bin"), exist_ok=True)
        self.launcher = shutil.copy(LAUNCHER, os.path.join(folder, "bin"))
        self.etc = os.path.join(folder, "root", "etc")
        os.makedirs(self.etc)
        for name in ("passwd", "group"):
            shutil.copy(f"/etc/{name}", self.etc)
        subprocess.run(["systemd-sysusers", f"--root={os.path.join(folder, 'root')}", os.path.join(UNITS, "sgd-launch.sysusers.conf")],
                       check=True, capture_output=True, timeout=LIMIT_S)
        lines = read_file(os.path.join(self.etc, "passwd")).decode().splitlines()
        self.accounts = {line.split(":")[0]: tuple(map(int, line.split(":")[2:4])) for line in lines}

    def runtime(self, name):
        return os.path.join(self.folder, "runtime-" + name)

    def start(self, name, state, log_path, **variables):
        """The ExecStart of a unit, under its account, with its capabilities and umask."""
        unit = {}
        for line in read_file(os.path.join(UNITS, f"sgd-launch-{name}.service")).decode().splitlines():
            key, _, value = line.partition("=")
            unit.setdefault(key, []).append(value)
        for setting in unit["Environment"]:
            variables = dict(part.split("=", 1) for part in setting.split()) | variables
        uid, gid = self.accounts[unit["User"][0]]
        os.makedirs(state, exist_ok=True)
        os.chmod(state, int(unit["StateDirectoryMode"][0], 8))
        give(state, uid, gid)
        os.makedirs(self.runtime(name), exist_ok=True)
        os.chmod(self.runtime(name), int(unit["RuntimeDirectoryMode"][0], 8))
        os.chown(self.runtime(name), uid, gid)
        words = self.words_of(unit["ExecStart"][0], variables | {"STATE_DIRECTORY": state})
        bounds = ",".join(["-all", *(f"+{each.removeprefix('CAP_').lower()}" for each in unit["CapabilityBoundingSet"][0].split())])
        become = ["setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups", f"--bounding-set={bounds}", "--no-new-privs"]
        mounts = 'mount --bind "$0/passwd" /etc/passwd && mount --bind "$0/group" /etc/group && exec "$@"'
        environment = {key: os.environ[key] for key in ("PATH", "LANG") if key in os.environ}
        with open(log_path, "wb") as log:
            return subprocess.Popen(["unshare", "--mount", "sh", "-c", mounts, self.etc, *become, self.launcher, *words], cwd="/",
                                    env=environment | {"XDG_RUNTIME_DIR": self.runtime(name), "HOME": "/"}, stdin=subprocess.DEVNULL,
                                    stdout=log, stderr=log, umask=int(unit["UMask"][0], 8))

    @staticmethod
    def words_of(exec_start, variables):
        """As systemd reads it: $NAME is split at blanks, ${NAME} is not."""
        words = []
        for word in exec_start.split()[1:]:
            whole = re.fullmatch(r"\$(\w+)", word)
            one = [re.sub(r"\$\{(\w+)\}", lambda found: variables[found.group(1)], word).replace("%H", "n1")]
            words += variables[whole.group(1)].split() if whole else one
        return words
