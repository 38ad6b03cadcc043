"""Beside torchrun itself, where PyTorch is installed (scripts/setup --peers): the same scripts, the same environment, the same results."""

import json
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from harness import CACHE, LaunchTest

PYTHON = os.environ.get("SGD_PEERS_PYTHON") or os.path.join(CACHE, "peers", "bin", "python3")
LIMIT_S = 300  # Importing torch on a busy machine.

SHOW = """
import json, os, sys
json.dump({"env": dict(os.environ), "argv": sys.argv}, open(sys.argv[1] + os.environ["RANK"], "w"))
"""

# What we set and torchrun does not, or otherwise. torchrun's own files are elsewhere, its ports are others.
OURS = {"MASTER_ADDR", "PYTHONPATH", "PYTHONUNBUFFERED", "TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RUN_ID", "MASTER_PORT",
        "PYTHONFAULTHANDLER", "NODE_RANK"}
OF_TORCHRUN = {"TORCHELASTIC_ERROR_FILE", "KINETO_LOG_LEVEL"}

TRAINS = """
import os, sys
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
torch.manual_seed(1)
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
generator = torch.Generator().manual_seed(dist.get_rank())
for _ in range(20):
    x = torch.randn(16, 8, generator=generator)
    torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True)).backward()
    optimizer.step()
    optimizer.zero_grad()
if dist.get_rank() == 0:
    torch.save(model.module.state_dict(), sys.argv[1])
dist.destroy_process_group()
# A thread of torch 2.15's Gloo may still release its last work, for which it needs the interpreter: one that is being
# finalized ends such a thread, and with it the process ("terminate called without an active exception").
os._exit(0)
"""


def has_torch():
    found = os.access(PYTHON, os.X_OK) and subprocess.run([PYTHON, "-c", "import importlib.util as u, sys; sys.exit(not u.find_spec('torch'))"], check=False)
    return bool(found) and found.returncode == 0


@unittest.skipUnless(has_torch(), f"{PYTHON} has no torch (scripts/setup --peers)")
class TorchrunTest(LaunchTest):
    def torchrun(self, *arguments):
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("PET_", "SGD_", "OMP_"))}
        subprocess.run([PYTHON, "-m", "torch.distributed.run", *map(str, arguments)], check=True, cwd=self.folder, env=environment,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=LIMIT_S)

    def ours(self, *arguments, **keywords):
        return self.run_to_end(*arguments, limit_s=LIMIT_S, env={"XDG_CACHE_HOME": self.path("cache"), "PYTHON_EXEC": PYTHON}, **keywords)

    def shown(self, name):
        with open(self.path(name)) as file:
            return json.load(file)

    def test_the_environment_is_torchruns_but_for_a_named_list(self):
        script = self.write("show.py", SHOW)
        for number, options in enumerate([["--nproc-per-node", 2], ["--nproc-per-node", 1, "--role", "trainer", "--max-restarts", 3, "--rdzv-id", "7"],
                                          ["--standalone", "--nproc_per_node=2"], ["--nproc-per-node", 2, "--signals-to-handle", "SIGTERM,SIGUSR1"]]):
            with self.subTest(options):
                self.torchrun(*options, script, self.path(f"theirs{number}-"), "${local_rank}")
                launch = self.ours(*options, script, self.path(f"ours{number}-"), "${local_rank}", run_dir=f"run{number}")
                for rank in range(launch.summary()["world_size"]):
                    theirs, ours = self.shown(f"theirs{number}-{rank}"), self.shown(f"ours{number}-{rank}")
                    self.assertEqual(theirs["argv"][2:], ours["argv"][2:])
                    differs = {key for key in theirs["env"].keys() | ours["env"].keys() if theirs["env"].get(key) != ours["env"].get(key)}
                    differs -= {key for key in differs if key.startswith(("SGD_", "XDG_")) or key in ("_", "SHLVL", "PYTHON_EXEC")}
                    self.assertEqual(differs - OURS - OF_TORCHRUN, set())
                    if "--rdzv-id" in options:
                        self.assertEqual(ours["env"]["TORCHELASTIC_RUN_ID"], "7")

    def test_weights_are_bit_equal(self):
        script = self.write("trains.py", TRAINS)
        self.torchrun("--standalone", "--nproc-per-node", 2, script, self.path("theirs.pt"))
        self.ours("--nproc-per-node", 2, script, self.path("forked.pt"), run_dir="forked")
        self.ours("--nproc-per-node", 2, "--preload", "none", script, self.path("exec.pt"), run_dir="exec")
        compare = "import sys, torch\na, b, c = (torch.load(p) for p in sys.argv[1:])\n" \
                  "sys.exit(not all(torch.equal(a[k], b[k]) and torch.equal(a[k], c[k]) for k in a))"
        subprocess.run([PYTHON, "-c", compare, *(self.path(name) for name in ("theirs.pt", "forked.pt", "exec.pt"))], check=True, timeout=LIMIT_S)


if __name__ == "__main__":
    unittest.main()
