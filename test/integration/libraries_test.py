"""Libraries that scripts of others stand on, on 2 ranks by torchrun and by sgd-launch: both say the same. Each where there is a Python that has it
(SGD_PEERS_PYTHON, or scripts/setup --peers for torch alone).
"""

import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from harness import CACHE, LaunchTest

PYTHON = os.environ.get("SGD_PEERS_PYTHON") or os.path.join(CACHE, "peers", "bin", "python3")
LIMIT_S = 400  # Importing these on a busy machine.

# In front of each script. Ranks of torchrun share a pipe, in which only what one write gives is whole: print() with PYTHONUNBUFFERED makes several.
SAY = """
import os
def say(*words):
    os.write(1, " ".join(map(str, ("said", *words, "\\n"))).encode())
"""

TORCHMETRICS = """
import torch, torch.distributed as dist, torchmetrics
dist.init_process_group("gloo")
metric = torchmetrics.MeanMetric()
metric.update(torch.tensor(float(dist.get_rank() * 10)))
accuracy = torchmetrics.classification.MulticlassAccuracy(num_classes=3, average="micro")
accuracy.update(torch.tensor([0, 1, 2]), torch.tensor([0, 1, dist.get_rank()]))
say(float(metric.compute()), round(float(accuracy.compute()), 4))
dist.barrier()
"""

CHECKPOINT = """
import sys
import torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
mesh = init_device_mesh("cpu", (2,))
whole = torch.arange(12.0).reshape(6, 2)
dcp.save({"w": distribute_tensor(whole, mesh, [Shard(0)]), "step": 7}, checkpoint_id=sys.argv[1])
state = {"w": distribute_tensor(torch.zeros(6, 2), mesh, [Shard(1)]), "step": 0}
dcp.load(state, checkpoint_id=sys.argv[1])
say(bool(torch.equal(state["w"].full_tensor(), whole)), state["step"], tuple(state["w"].to_local().shape))
dist.barrier()
"""

ACCELERATE = """
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
set_seed(1)
accelerator = Accelerator(cpu=True)
model = torch.nn.Linear(4, 1)
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.arange(64.0).reshape(16, 4) / 64), batch_size=4)
model, optimizer, data = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), data)
for (x,) in data:
    loss = model(x).square().mean()
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
say(accelerator.num_processes, len(data), f"{accelerator.gather(loss.detach().reshape(1)).sum().item():.6f}")
accelerator.wait_for_everyone()
"""

LIGHTNING = """
import sys, torch, lightning
class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, _):
        return self.layer(batch).square().mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
lightning.seed_everything(1)
trainer = lightning.Trainer(accelerator="cpu", devices=2, strategy="ddp", max_epochs=2, default_root_dir=sys.argv[1], logger=False,
                            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
module = Module()
trainer.fit(module, torch.utils.data.DataLoader(torch.arange(64.0).reshape(16, 4) / 64, batch_size=4))
say(trainer.global_step, trainer.world_size, f"{module.layer.weight.sum().item():.6f}")
"""

TRANSFORMERS = """
import sys, torch, transformers
config = transformers.BertConfig(vocab_size=16, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, max_position_embeddings=8)
transformers.set_seed(1)
model = transformers.BertForSequenceClassification(config)
data = [{"input_ids": torch.arange(4) + n % 8, "labels": n % 2} for n in range(16)]
arguments = transformers.TrainingArguments(sys.argv[1], use_cpu=True, max_steps=3, per_device_train_batch_size=2, report_to=[], save_strategy="no", seed=1,
                                           disable_tqdm=True)
trainer = transformers.Trainer(model, arguments, train_dataset=data)
trainer.train()
say(trainer.state.global_step, arguments.world_size, f"{model.classifier.weight.sum().item():.6f}")
"""


def has(*packages):
    text = "import importlib.util as u, sys; sys.exit(not all(u.find_spec(name) for name in %r))" % (packages,)
    return os.access(PYTHON, os.X_OK) and subprocess.run([PYTHON, "-c", text], check=False).returncode == 0


def said(text):
    """What ranks have said, whoever was first, and whatever is in front."""
    return sorted(line[line.index("said"):].rstrip() for line in text.splitlines() if "said" in line)


@unittest.skipUnless(has("torch"), f"{PYTHON} has no torch (scripts/setup --peers)")
class LibrariesTest(LaunchTest):
    def compare(self, package, text):
        if not has(package):
            self.skipTest(f"{PYTHON} has no {package}")
        script = self.write("script.py", SAY + text)
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("PET_", "SGD_", "OMP_"))}
        theirs = subprocess.run([PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", script, self.path("theirs")],
                                cwd=self.folder, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        self.assertEqual(theirs.returncode, 0, theirs.stderr[-2000:])
        ours = self.run_to_end("--nproc-per-node", 2, "--no-fold", script, self.path("ours"), limit_s=LIMIT_S,
                               env={"PYTHON_EXEC": PYTHON, "XDG_CACHE_HOME": self.path("cache")})
        self.assertEqual(len(said(theirs.stdout)), 2, theirs.stdout)
        self.assertEqual(said(ours.stdout().decode()), said(theirs.stdout))

    def test_torchmetrics(self):
        self.compare("torchmetrics", TORCHMETRICS)

    def test_distributed_checkpoint(self):
        self.compare("torch", CHECKPOINT)

    def test_accelerate(self):
        self.compare("accelerate", ACCELERATE)

    def test_lightning(self):
        self.compare("lightning", LIGHTNING)

    def test_transformers(self):
        self.compare("transformers", TRANSFORMERS)


if __name__ == "__main__":
    unittest.main()
