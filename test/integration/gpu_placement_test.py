"""Which GPUs workers of a command have and see. No GPU is needed: a library of ours stands for NVIDIA's NVML."""

import json
import os
import shutil
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import harness
from cluster import Cluster

FAKE_NVML = os.path.join(os.path.dirname(harness.BIN_DIR), "lib", "libfake_nvml.so")

SHOW = """
import json, os, sys
print("saw", json.dumps([os.environ.get(name) for name in ("RANK", "LOCAL_RANK", "CUDA_VISIBLE_DEVICES")]), flush=True)
"""
ORDER = """
import os
print("order", os.environ.get("CUDA_DEVICE_ORDER"), flush=True)
"""
# Holds what it has until the test lets go.
HOLD = SHOW + """
import time
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
"""
# Its GPU is out of order when its name says so; then it ends as PyTorch would end it.
BREAK = SHOW + """
import time
own = os.environ["CUDA_VISIBLE_DEVICES"].split(",")[int(os.environ["LOCAL_RANK"])]
if own.startswith("GPU-bad"):
    raise RuntimeError("CUDA error: uncorrectable ECC error encountered")
while not os.path.exists(sys.argv[1]) and len(os.environ["CUDA_VISIBLE_DEVICES"]) != 5:
    time.sleep(0.01)
"""


def seen(text):
    """(rank, local rank, devices) that the workers have printed, by rank; of whole lines."""
    lines = [line.split("saw ", 1)[1] for line in text[: text.rfind("\n") + 1].splitlines() if "saw " in line]
    return sorted((int(rank), int(local), devices) for rank, local, devices in map(json.loads, lines))


class OneMachine(harness.LaunchTest):
    def shown(self, *options, visible=None, **environment):
        env = {**environment} if visible is None else {**environment, "CUDA_VISIBLE_DEVICES": visible}
        launch = self.run_to_end("-n", 2, "--no-fold", *options, "--", *self.script("show.py", SHOW), env=env,
                                 run_dir=f"run{len(os.listdir(self.folder))}")
        return seen(launch.stdout().decode())

    def test_torchruns_convention(self):
        self.assertEqual(self.shown("--set", "per_worker.gpus=1", visible="4,GPU-b,6"), [(0, 0, "4,GPU-b"), (1, 1, "4,GPU-b")])

    def test_its_own_alone(self):
        for options in (["--set", "process.gpu_visibility=own"], ["--virtual-local-rank"]):
            with self.subTest(options):
                self.assertEqual(self.shown("--set", "per_worker.gpus=1", *options, visible="4,5"), [(0, 0, "4"), (1, 0, "5")])

    def test_several_each(self):
        self.assertEqual(self.shown("--set", "per_worker.gpus=2", visible="0,1,2,3"), [(0, 0, "0,1"), (1, 0, "2,3")])

    def test_without_the_key_the_launchers_are_seen(self):
        self.assertEqual(self.shown(visible="4,5"), [(0, 0, "4,5"), (1, 1, "4,5")])
        self.assertEqual(self.shown("--virtual-local-rank", visible="4,5"), [(0, 0, "4"), (1, 0, "5")])
        self.assertEqual(self.shown("--set", "per_worker.gpus=0", visible="4,5"), [(0, 0, ""), (1, 1, "")])

    def test_too_few_are_said_before_anything_starts(self):
        for visible, words in (("3", 'CUDA_VISIBLE_DEVICES="3" names 1'), ("-1", 'CUDA_VISIBLE_DEVICES="-1" names 0')):
            with self.subTest(visible):
                launch = self.run_to_end("-n", 2, "--set", "per_worker.gpus=1", "--", "true", env={"CUDA_VISIBLE_DEVICES": visible}, expect=2)
                self.assertIn(f"per_worker.gpus: error: 2 workers with 1 GPU each need 2: {words}", launch.stderr())
                self.assertFalse(os.path.exists(self.path("run")))


class ThatFail(harness.LaunchTest):
    def run_broken(self, *options, **keywords):
        backoff = ["--set", "recovery.backoff.first=100ms"]
        return self.run_to_end("--no-fold", "--set", "per_worker.gpus=1", "--max-failures", "9", *backoff, *options, "--",
                               *self.script("break.py", BREAK), self.path("never"), **keywords)

    def test_the_cause_of_two_restarts_is_left_out(self):
        launch = self.run_broken("-n", 2, env={"CUDA_VISIBLE_DEVICES": "GPU-bad,GPU-b"})
        told = [(event["device"], event["count"], event["generation"]) for event in launch.events("gpu_excluded")]
        self.assertEqual(told, [("GPU-bad", 2, 2)])
        self.assertEqual([event.get("device") for event in launch.events("failure")], ["GPU-bad", "GPU-bad"])
        self.assertIn((0, 0, "GPU-b"), seen(launch.stdout().decode()))
        self.assertEqual(launch.events("resized")[-1]["to"], 1)
        self.assertRegex(launch.stderr(), r"GPU GPU-bad of \S+ was the cause of 2 restarts: it is left out of this run")

    def test_without_another_one_the_run_ends_and_names_it(self):
        launch = self.run_broken("-n", 1, "--set", "recovery.exclude_after=1", "--set", "recovery.backoff.attempts=1",
                                 env={"CUDA_VISIBLE_DEVICES": "GPU-bad"}, expect=7)
        self.assertRegex(launch.summary()["error"], r"no capacity after 1 attempts: .*; GPU GPU-bad of \S+ is left out after 1 restart$")


@unittest.skipUnless(os.path.exists(FAKE_NVML), "the library is not built")
class Nvml(OneMachine):
    def library(self):
        os.makedirs(self.path("nvml"), exist_ok=True)
        shutil.copy(FAKE_NVML, self.path("nvml", "libnvidia-ml.so.1"))
        return self.path("nvml")

    def shown(self, *options, **environment):
        environment.pop("visible", None)
        return super().shown(*options, LD_LIBRARY_PATH=self.library(), **environment)

    def test_cuda_counts_as_nvml_where_that_has_numbered_the_gpus(self):
        dealt = ["--set", "per_worker.gpus=1"]
        for options, environment, order in ((dealt, {}, "PCI_BUS_ID"), (dealt, {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, "FASTEST_FIRST"),
                                            (dealt, {"CUDA_VISIBLE_DEVICES": "0,1"}, None), (dealt, {"FAKE_NVML_REFUSED": "0"}, None), ([], {}, None)):
            with self.subTest(options=options, environment=environment):
                launch = self.run_to_end("-n", 1, "--no-fold", *options, "--", *self.script("order.py", ORDER), run_dir=f"run{len(os.listdir(self.folder))}",
                                         env={"LD_LIBRARY_PATH": self.library(), **environment})
                self.assertIn(f"order {order}\n", launch.stdout().decode())

    test_torchruns_convention = test_its_own_alone = test_without_the_key_the_launchers_are_seen = None
    test_too_few_are_said_before_anything_starts = None

    def test_several_each(self):
        self.assertEqual(self.shown("--set", "per_worker.gpus=2", FAKE_NVML_GPUS="4"), [(0, 0, "0,1"), (1, 0, "2,3")])

    def test_parts_of_a_divided_device_are_seen_alone(self):
        self.assertEqual(self.shown("--set", "per_worker.gpus=1", FAKE_NVML_GPUS="1", FAKE_NVML_MIG="0"),
                         [(0, 0, "MIG-00000000-0000"), (1, 0, "MIG-00000003-0000")])

    def test_of_parts_a_process_sees_one(self):
        self.assertEqual(len(self.shown("--nproc-per-node", "gpu", FAKE_NVML_GPUS="1", FAKE_NVML_MIG="0")), 1)


class OnACluster(unittest.TestCase):
    def test_devices_are_counted_and_belong_to_one_run(self):
        devices = {"n1": {"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b"}, "n2": {"CUDA_VISIBLE_DEVICES": "MIG-c,1"}}
        with Cluster({"n1": 8, "n2": 8}, agent_environment=devices) as cluster:
            self.assertEqual({name: node["gpus"] for name, node in cluster.nodes().items()}, {"n1": 2, "n2": 2})
            go, script = os.path.join(cluster.folder, "go"), os.path.join(cluster.folder, "hold.py")
            with open(script, "w") as file:
                file.write(HOLD)
            options = ["--set", "per_worker.gpus=1", "--", "/usr/bin/python3", "-S", script, go]
            first = cluster.run("-n", "3", "--no-fold", *options)
            harness.wait_for(lambda: len(seen(first.said()[1])) == 3, harness.LIMIT_S, "three workers")
            self.assertEqual(seen(first.said()[1]), [(0, 0, "GPU-a,GPU-b"), (1, 1, "GPU-a,GPU-b"), (2, 0, "MIG-c")])
            second = cluster.run("-n", "1", "--no-fold", *options)
            harness.wait_for(lambda: len(seen(second.said()[1])) == 1, harness.LIMIT_S, "one more")
            self.assertEqual(seen(second.said()[1]), [(0, 0, "1")])
            plan = cluster.ask("plan", "-n", "1", "--set", "per_worker.gpus=1", "--", "true")
            self.assertIn("0 of 2 gpus free, 1 wanted", json.dumps(plan))
            with open(go, "w"):
                pass
            self.assertEqual((first.wait(), second.wait()), (0, 0))

    def test_a_run_does_without_one_that_another_run_uses(self):
        with Cluster({"n1": 4}, agent_environment={"n1": {"CUDA_VISIBLE_DEVICES": "GPU-bad,GPU-well"}}) as cluster:
            go = os.path.join(cluster.folder, "go")
            for name, text in (("hold.py", HOLD), ("break.py", BREAK)):
                with open(os.path.join(cluster.folder, name), "w") as file:
                    file.write(text)

            def run(script, *options):
                python = ["--", "/usr/bin/python3", "-S", os.path.join(cluster.folder, script), go]
                return cluster.run("-n", "1", "--no-fold", "--set", "per_worker.gpus=1", *options, *python)
            first = run("break.py", "--max-failures", "3", "--set", "recovery.exclude_after=1")
            harness.wait_for(lambda: (0, 0, "GPU-well") in seen(first.said()[1]), harness.LIMIT_S, "a start on the other one")
            status = cluster.ask("status", first.run_id())
            self.assertEqual(status["gpus_left_out"], [{"node": "n1", "device": "GPU-bad", "restarts": 1}])
            second = run("hold.py")
            harness.wait_for(lambda: seen(second.said()[1]), harness.LIMIT_S, "the other run")
            self.assertEqual(seen(second.said()[1]), [(0, 0, "GPU-bad")])
            with open(go, "w"):
                pass
            self.assertEqual((first.wait(), second.wait()), (0, 0))


if __name__ == "__main__":
    unittest.main()
