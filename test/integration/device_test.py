"""Training jobs on GPUs, as far as a machine without one can tell: what is checked before anything starts, and a whole run with kills on a
stand-in for the device (memory of the host), with libraries of ours in the place of NCCL and NVML.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import harness
from data import image_job, small_fashion, write_job
from harness import LaunchTest, read_file, wait_for

LIBRARIES = os.path.join(os.path.dirname(harness.BIN_DIR), "lib")
FAKE_NCCL = os.path.join(LIBRARIES, "libfake_nccl.so")
FAKE_NVML = os.path.join(LIBRARIES, "libfake_nvml.so")


class DeviceTest(LaunchTest):
    def setUp(self):
        super().setUp()
        self.data = small_fashion(self.path("data"), 3_200, 640)

    def job(self, name="job.json", **training):
        job = image_job(self.data, **{"epochs": 4, **training})
        job["recovery"] = {"max_failures": "unlimited"}
        return write_job(self.path(name), job)


class Checks(DeviceTest):
    def test_too_few_gpus_are_said_before_anything_starts(self):
        launch = self.run_to_end(self.job(device="cuda"), env={"CUDA_VISIBLE_DEVICES": "3"}, expect=2)
        self.assertIn('per_worker.gpus: error: 2 workers with 1 GPU each need 2: CUDA_VISIBLE_DEVICES="3" names 1', launch.stderr())
        self.assertFalse(os.path.exists(self.path("run")))

    def test_a_libtorch_without_cuda_is_said_before_anything_starts(self):
        launch = self.start(self.job(device="cuda"), env={"CUDA_VISIBLE_DEVICES": "0,1"})
        if launch.wait() == 0:
            self.skipTest("LibTorch's CUDA part is here")
        self.assertEqual(launch.wait(), 2, launch.said())
        self.assertRegex(launch.stderr(), r"training\.device: error: the job asks for a GPU, and LibTorch's CUDA part cannot be opened: "
                                          r".*scripts/setup --cuda.*SGD_TORCH_DIR")
        self.assertFalse(os.path.exists(self.path("run")))


@unittest.skipUnless(os.path.exists(FAKE_NCCL) and os.path.exists(FAKE_NVML), "the libraries are not built")
class OnAStandIn(DeviceTest):
    def environment(self):
        os.makedirs(self.path("nvml"), exist_ok=True)
        shutil.copy(FAKE_NVML, self.path("nvml", "libnvidia-ml.so.1"))
        return {"SGD_DEVICE_STAND_IN": "1", "SGD_NCCL_LIBRARY": FAKE_NCCL, "LD_LIBRARY_PATH": self.path("nvml"), "FAKE_NVML_GPUS": "2"}

    def test_a_run_with_kills_ends_with_the_bits_of_the_cpu(self):
        host = self.run_to_end(self.job(), run_dir="host")
        launch = self.start(self.job("device.json", device="cuda"), env=self.environment())
        for number in range(3):
            launch.wait_for_event("first_step", count=number + 1)
            launch.wait_for_event("epoch_finished", count=number + 1)
            started = [event for event in launch.events("worker_started")]
            os.kill(started[-1 - number % 2]["pid"], signal.SIGKILL)
            wait_for(lambda: len(launch.events("failure")) > number or launch.process.poll() is not None, 30, "the failure")
        self.assertEqual(launch.wait(), 0, launch.said())
        launch.wait_until_gone()
        for name in ("model.safetensors", "optimizer.safetensors"):
            self.assertEqual(read_file(os.path.join(launch.checkpoints()[-1], name)), read_file(os.path.join(host.checkpoints()[-1], name)), name)
        self.assertTrue(all(event["bit_exact"] for event in launch.events("recovered")))
        self.assertEqual(launch.metrics("train")[-1]["gpu"], {"busy_percent": 87, "memory_mib": 20480, "celsius": 61})

    def test_status_tells_how_the_gpus_are(self):
        launch = self.start(self.job(device="cuda", epochs=100_000), env=self.environment())

        def told(*words):
            return subprocess.run([harness.LAUNCHER, "status", *words, launch.run_dir], capture_output=True, text=True, timeout=20, check=False).stdout

        def of_ranks():
            ranks = json.loads(told("--json") or "{}").get("ranks", [])
            return [rank.get("gpu") for rank in ranks] if ranks and all("gpu" in rank for rank in ranks) else None

        gpu = {"busy_percent": 87, "memory_mib": 20480, "celsius": 61}
        self.assertEqual(wait_for(of_ranks, 30, "what the GPUs do"), [gpu, gpu])
        self.assertEqual(told().count("  87 %, 20480 MiB, 61 C\n"), 2)
        launch.process.send_signal(signal.SIGTERM)
        launch.wait()

    def test_without_nccl_the_run_ends_with_words(self):
        launch = self.run_to_end(self.job(device="cuda"), env={**self.environment(), "SGD_NCCL_LIBRARY": "/nowhere/libnccl.so.2"}, expect=1)
        self.assertIn("GPUs need NCCL, and it cannot be opened: /nowhere/libnccl.so.2", launch.said())


if __name__ == "__main__":
    unittest.main()
