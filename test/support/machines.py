"""Machines with a launcher each and nothing else: their own home, working folder and temporary files, and where that can be made, a network
of their own (namespaces.py). Everything that a launcher has started carries its mark in its environment."""

import os
import signal
import subprocess
import uuid

import namespaces
from harness import LAUNCHER, LIMIT_S, MARK, marked, read_file, wait_for

SECRET = "a secret of more than sixteen bytes\n"
PORT = 20_000 + os.getpid() % 10_000  # One of this test: without a network of their own all machines of all tests are on one loopback.


class Machine:
    def __init__(self, folder, name, network):
        self.name = name
        self.network = network
        self.home = os.path.join(folder, name)
        self.secret = os.path.join(self.home, "secret")
        self.launches = 0
        os.makedirs(os.path.join(self.home, "tmp"))
        self.write_secret(SECRET)

    def write_secret(self, text):
        with open(os.path.join(self.home, "secret"), "w", encoding="utf-8") as file:
            file.write(text)

    def launch(self, *arguments, env=None, stdout=None):
        return MachineLaunch(self, arguments, env or {}, stdout)

    def temporary(self):
        return os.listdir(os.path.join(self.home, "tmp"))


class MachineLaunch:
    """One sgd-launch on one of the machines."""

    def __init__(self, machine, arguments, env, stdout=None):
        self.mark = uuid.uuid4().hex
        machine.launches += 1
        self.output = os.path.join(machine.home, f"said-{machine.launches}")
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("PET_", "SGD_", "OMP_", "SLURM_"))}
        environment.update({"HOME": machine.home, "XDG_CONFIG_HOME": os.path.join(machine.home, "config"), "TMPDIR": os.path.join(machine.home, "tmp"),
                            "XDG_RUNTIME_DIR": os.path.join(machine.home, "tmp"), "MACHINE": machine.name, MARK: self.mark, **env})
        front = machine.network.inside(machine.name) if machine.network else []
        with open(self.output, "wb") as output:
            self.process = subprocess.Popen([*front, LAUNCHER, *map(str, arguments)], stdin=subprocess.DEVNULL,
                                            stdout=output if stdout is None else stdout, stderr=output,
                                            cwd=machine.home, env=environment, start_new_session=True)

    def said(self):
        with open(self.output, encoding="utf-8", errors="replace") as output:
            return output.read()

    def wait_for_words(self, words, count=1):
        wait_for(lambda: self.said().count(words) >= count, LIMIT_S, f"{words!r} x {count} in: {self.said()}")

    def wait(self, limit_s=LIMIT_S):
        try:
            return self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still runs after {limit_s:g} s: {self.said()}") from None

    def daemon(self, name):
        """The pid of its coordinator or agent; 0: there is none."""
        for pid in marked(self.mark):
            if read_file(f"/proc/{pid}/cmdline").split(b"\0")[1:2] == [name.encode()]:
                return pid
        return 0

    def wait_until_gone(self):
        wait_for(lambda: not marked(self.mark), LIMIT_S, "the end of all that it had started")

    def end(self):
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.wait_until_gone()


def network_of(names):
    """With a cable to each of them, or None: all are on this machine's loopback."""
    if not namespaces.available():
        return None
    return namespaces.Network(names, prefix=f"sgdm{os.getpid() % 10_000}").up()
