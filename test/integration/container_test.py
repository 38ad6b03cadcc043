"""What a container is like: the launcher is its first process, and the kernel beneath is old or a filter refuses system calls."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from harness import AGENT, CONFIGS, LAUNCHER, LIMIT_S, LaunchTest, parent_of, read_file, read_lines, wait_for
from seccomp import Refused

CONTAINER = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child=KILL"]

# Its parent ends before it does, so that it is the first process's.
ORPHAN = '(while [ ! -e "$0" ]; do sleep 0.01; done) &'


def children_with_dead(pid):
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and parent_of(name) == pid]


class FirstProcessTest(LaunchTest):
    """The launcher as process 1, as by `docker run IMAGE sgd-launch ...`."""

    def setUp(self):
        super().setUp()
        if shutil.which("unshare") is None or subprocess.run([*CONTAINER, "true"], capture_output=True, check=False).returncode != 0:
            self.skipTest("no PID namespace can be made here")

    def hold(self, *words):
        """The process that holds the container, which ends as the container's first process does."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("PET_", "SGD_", "OMP_"))}
        with open(self.path("said"), "wb") as said:
            holder = subprocess.Popen([*CONTAINER, LAUNCHER, "--run-dir", self.path("run"), *map(str, words)], stdin=subprocess.DEVNULL,
                                      stdout=said, stderr=said, cwd=self.folder, env=environment)
        self.addCleanup(holder.wait)
        self.addCleanup(holder.kill)
        return holder

    def contain(self, *words):
        """The pid out here of a first process that lasts, and the process that holds it."""
        holder = self.hold(*words)
        first, = wait_for(lambda: children_with_dead(holder.pid), LIMIT_S, "the first process")
        return first, holder

    def wait_for_ranks(self, count):
        wait_for(lambda: sum(event["event"] == "worker_started" for event in read_lines(self.path("run", "events.jsonl"))) == count, LIMIT_S, "the ranks")

    def test_a_stopped_container_stops_its_run(self):
        first, holder = self.contain("-n", 2, "--", "sh", "-c", 'trap "exit 0" TERM; while :; do sleep 0.02; done')
        self.wait_for_ranks(2)
        os.kill(first, signal.SIGTERM)
        self.assertEqual(holder.wait(LIMIT_S), 128 + signal.SIGTERM, read_file(self.path("said")))
        self.assertEqual(read_lines(self.path("run", "events.jsonl"))[-1]["event"], "run_finished")
        self.assertEqual(read_file(self.path("said")).count(b"SIGTERM): stopping"), 1)

    def test_its_exit_code_is_the_containers(self):
        holder = self.hold("-n", 1, "--", "sh", "-c", "exit 3")
        self.assertEqual(holder.wait(LIMIT_S), 1, read_file(self.path("said")))
        holder = self.hold("--no-such-option")
        self.assertEqual(holder.wait(LIMIT_S), 2, read_file(self.path("said")))

    def test_orphans_of_others_are_collected(self):
        """What `docker exec` has left behind stayed as a zombie for as long as the container lived."""
        if os.geteuid() != 0:
            self.skipTest("only root may enter a PID namespace")
        first, holder = self.contain("-n", 1, "--", "sleep", "1000")
        self.wait_for_ranks(1)
        before = set(children_with_dead(first))
        subprocess.run(["nsenter", "--target", str(first), "--pid", "sh", "-c", ORPHAN, self.path("go")], check=True)
        wait_for(lambda: set(children_with_dead(first)) - before, LIMIT_S, "the orphan")
        self.write("go", "")
        wait_for(lambda: not set(children_with_dead(first)) - before, LIMIT_S, "the orphan's end")
        os.kill(first, signal.SIGTERM)
        self.assertEqual(holder.wait(LIMIT_S), 128 + signal.SIGTERM)


class RefusedCallsTest(LaunchTest):
    def test_a_kernel_without_close_range(self):
        """Before Linux 5.11: no program gets a descriptor that is not meant for it all the same."""
        words = ["-n", 1, "--", "sh", "-c", "ls /proc/$$/fd"]
        usual = self.run_to_end(*words)
        for error in (errno.ENOSYS, errno.EINVAL, errno.EPERM):
            launch = self.run_to_end(*words, run_dir=f"run-{error}", group=Refused("close_range", error=error))
            self.assertEqual(launch.stdout(), usual.stdout())

    def test_training_on_a_kernel_without_close_range(self):
        small = ("--set", "training.epochs=1", "--set", 'training.model={"type": "mlp"}')
        self.run_to_end(os.path.join(CONFIGS, "fashion_mnist.json"), *small, group=Refused("close_range"))

    def test_what_is_refused_is_named_before_anything_is_made(self):
        for call, error in (("pidfd_open", errno.ENOSYS), ("pidfd_open", errno.EPERM), ("pidfd_send_signal", errno.ENOSYS)):
            with self.subTest(call):
                refused = Refused(call, error=error)
                words = f"the system call {call} is refused here: {os.strerror(error)}: use Linux 5.4 or newer, and in a container a newer runtime"
                launch = self.run_to_end("-n", 2, "--", "true", expect=2, group=refused)
                self.assertIn(words, launch.stderr())
                self.assertFalse(os.path.exists(self.path("run")))
                words_of_agent = ("--join", "unix:" + self.path("none.sock"), "--state-dir", self.path("state"))
                agent = self.run_to_end(*AGENT, *words_of_agent, run_dir=None, expect=2, group=refused)
                self.assertIn(words, agent.stderr())
                doctor = self.run_to_end("doctor", "--json", run_dir=None, expect=1, group=refused)
                found, = (one for one in json.loads(doctor.stdout())["findings"] if one["topic"] == "system calls")
                self.assertEqual(found["level"], "missing")
                self.assertIn(call, found["text"])


if __name__ == "__main__":
    unittest.main()
