"""What a container is like: the kernel beneath is old, or a filter refuses system calls."""

import errno
import json
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from harness import AGENT, CONFIGS, LaunchTest
from seccomp import Refused


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
