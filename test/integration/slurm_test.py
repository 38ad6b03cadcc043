"""`srun sgd-launch train.py` without an option: Slurm says how many machines there are and where they meet."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import namespaces
import slurm
from harness import LAUNCHER, LIMIT_S, wait_for
from pages import blocks, missing_line

SCRIPT = """
import os, time
os.write(1, " ".join(["up", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], "on", os.environ["SLURMD_NODENAME"], os.environ["MASTER_ADDR"] + "\\n"]).encode())
time.sleep(float(os.environ.get("NAP", 0)))
"""


@unittest.skipUnless(namespaces.available() and slurm.available(), "needs root, network namespaces, slurmctld and slurmd")
class SlurmTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="sgd-slurm-test-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.network = namespaces.Network(["n1", "n2"], prefix=f"sgds{os.getpid() % 10_000}")
        self.addCleanup(self.network.down)
        self.network.up()
        self.slurm = slurm.Slurm(self.folder, self.network, ["n1", "n2"])
        self.addCleanup(self.slurm.down)
        self.slurm.up()
        self.work = os.path.join(self.folder, "work")
        os.makedirs(self.work)
        with open(os.path.join(self.work, "train.py"), "w", encoding="utf-8") as script:
            script.write(SCRIPT)

    def environment(self):
        home = os.path.join(self.folder, "home")  # Seen by all nodes, as on most clusters.
        os.makedirs(home, exist_ok=True)
        return {"HOME": home, "XDG_RUNTIME_DIR": home, "TMPDIR": home}

    def srun(self, *arguments, **env):
        return self.slurm.srun(*arguments, cwd=self.work, env={**self.environment(), **env})

    def said(self, step):
        try:
            return step.communicate(timeout=LIMIT_S)[0]
        except subprocess.TimeoutExpired:
            step.kill()
            self.fail(step.communicate()[0])

    def test_no_option_is_needed(self):
        step = self.srun("-N", "2", "--ntasks-per-node=1", LAUNCHER, "--nproc-per-node", "2", "train.py")
        said = self.said(step)
        self.assertEqual(step.returncode, 0, said)
        ups = sorted(re.findall(r"\d: up (\d) of (\d) on (n\d) (\S+)", said))
        head = self.network.addresses["n1"]
        self.assertEqual(ups, [("0", "4", "n1", head), ("1", "4", "n1", head), ("2", "4", "n2", head), ("3", "4", "n2", head)], said)

    def test_page(self):
        """configs/slurm/README.md word by word."""
        path = os.pathsep.join([os.path.dirname(LAUNCHER), os.environ["PATH"]])
        said, kinds = "", []
        for block in blocks("configs/slurm/README.md"):
            kinds.append(block.kind)
            if block.file_name():
                with open(os.path.join(self.work, block.file_name()), "w", encoding="utf-8") as file:
                    file.write(block.text)
            elif block.kind == "sh":
                script = "\n".join(block.commands())
                step = self.slurm.person("bash", "-c", "set -e\n" + script, cwd=self.work, env={**self.environment(), "PATH": path})
                said = self.said(step)
                self.assertEqual(step.returncode != 0, "mistake" in block.introduction, (script, said))
            else:
                self.assertIsNone(missing_line(block.text, said), said)
        self.assertEqual(kinds, ["python", "sh", "", "sh", "sbatch", "sh", ""])

    def test_a_launcher_for_each_worker_is_refused_with_the_remedy(self):
        step = self.srun("-N", "2", "--ntasks-per-node=2", LAUNCHER, "train.py")
        said = self.said(step)
        self.assertEqual(step.returncode, 2, said)
        self.assertIn("srun --ntasks-per-node=1", said)

    def test_the_end_of_the_step_ends_all(self):
        step = self.srun("-N", "2", "--ntasks-per-node=1", LAUNCHER, "train.py", NAP="600")
        line = ""
        while "up 1 of 2" not in line and "up 0 of 2" not in line:
            line = step.stdout.readline()
            self.assertTrue(line, "it has ended")
        step.send_signal(signal.SIGTERM)
        said = self.said(step)
        self.assertNotEqual(step.returncode, 0, said)
        # A step is over for srun when it has told the nodes to kill what is left of it.
        left = lambda: subprocess.run(["pgrep", "-af", self.work], capture_output=True, text=True, check=False).stdout
        wait_for(lambda: not left(), LIMIT_S, lambda: f"the end of {left()}; it said: {said}")


if __name__ == "__main__":
    unittest.main()
