"""`sgd-launch doctor` on this machine, and against a coordinator: what it says is so."""

import json
import os
import resource
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from cluster import Cluster
from harness import LAUNCHER, LIMIT_S, LaunchTest, free_port


class DoctorTest(LaunchTest):
    def ask(self, *arguments, files=None, **environment):
        clean = {key: value for key, value in os.environ.items() if key != "SGD_ADDRESS"}
        config = {"XDG_CONFIG_HOME": self.path("config"), "XDG_STATE_HOME": self.path("state"), "STATE_DIRECTORY": self.path("state")}

        def limit():
            if files:
                resource.setrlimit(resource.RLIMIT_NOFILE, files)
        ended = subprocess.run([LAUNCHER, "doctor", *arguments], capture_output=True, text=True, timeout=LIMIT_S, cwd=self.folder,
                               env={**clean, **config, **environment}, preexec_fn=limit)
        return ended

    def findings(self, *arguments, **keywords):
        ended = self.ask("--json", *arguments, **keywords)
        said = json.loads(ended.stdout)
        self.assertEqual(ended.returncode, 0 if said["well"] else 1, ended.stderr)
        self.assertEqual(said["well"], all(one["level"] != "missing" for one in said["findings"]))
        for one in said["findings"]:
            self.assertEqual("fix" in one, one["level"] != "ok", one)
        return {one["topic"]: one for one in said["findings"]}

    def test_this_machine(self):
        found = self.findings()
        for topic in ("open files", "/dev/shm", "control groups", "disk: runs", "disk: temporary files", "disk: sockets", "sgd-worker", "Python"):
            self.assertIn(topic, found)
        self.assertIn(".".join(map(str, sys.version_info[:2])), found["Python"]["text"])
        free = shutil.disk_usage(self.folder).free / 2**30
        self.assertAlmostEqual(float(found["disk: runs"]["text"].split()[0]), free, delta=2)
        self.assertEqual(sorted(os.listdir(self.folder)), [], "it changes nothing")
        text = self.ask().stdout
        self.assertRegex(text, r"(?m)^\d+ ok, \d+ with advice, \d+ missing$")
        self.assertEqual(text.count("fix: "), sum(one["level"] != "ok" for one in found.values()))

    def test_what_is_lacking(self):
        found = self.findings(files=(200, 200), PATH="/nowhere", SGD_WORKER=self.path("none"))
        self.assertEqual(found["open files"]["level"], "missing")
        self.assertIn("200, and 1024 are needed", found["open files"]["text"])
        self.assertIn("nofile 65536", found["open files"]["fix"])
        self.assertEqual((found["Python"]["level"], found["sgd-worker"]["level"]), ("advice", "advice"))

    def test_a_python_that_is_broken(self):
        os.mkdir(self.path("bin"))
        self.write("bin/python3", "#!/bin/sh\necho no module named encodings >&2\nexit 1\n")
        os.chmod(self.path("bin", "python3"), 0o755)
        python = self.findings(PATH=self.path("bin"))["Python"]
        self.assertEqual(python["level"], "missing")
        self.assertIn("no module named encodings", python["text"])

    def test_no_coordinator(self):
        found = self.findings("--address", f"127.0.0.1:{free_port()}")
        self.assertEqual(found["coordinator"]["level"], "missing")

    def test_a_damaged_identity(self):
        os.makedirs(self.path("config", "sgd-launch", "identity"))
        for name in ("identity.pem", "ca.pem"):
            self.write(f"config/sgd-launch/identity/{name}", "nothing\n")
            os.chmod(self.path("config", "sgd-launch", "identity", name), 0o600)
        found = self.findings()["certificate"]
        self.assertEqual(found["level"], "missing")
        self.assertIn("sgd-launch join", found["fix"])

    def test_a_cluster(self):
        with Cluster({"n1": 1}) as cluster:
            found = self.findings("--address", cluster.address)
            self.assertEqual([found[topic]["level"] for topic in ("coordinator", "clock", "nodes")], ["ok", "ok", "ok"])
            self.assertIn("1 of 1", found["nodes"]["text"])

    def test_what_makes_no_sense(self):
        ended = self.ask("--jsn")
        self.assertEqual(ended.returncode, 2)
        self.assertIn("did you mean --json", ended.stderr)


if __name__ == "__main__":
    unittest.main()
