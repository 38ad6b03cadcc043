"""Trainers of Lightning and Transformers with our callbacks: a killed rank costs milliseconds, and the run ends as if undisturbed.

Needs a Python with torch and one or both of them, $SGD_TRAINERS_PYTHON, else the peers' one; is skipped without."""

import os
import re
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import harness
from harness import CACHE, ROOT

PYTHON = os.environ.get("SGD_TRAINERS_PYTHON") or os.environ.get("SGD_PEERS_PYTHON") or os.path.join(CACHE, "peers", "bin", "python3")
MODULES = os.path.join(ROOT, "worker", "python")
LIMIT_S = 300

LIGHTNING = """
import hashlib, os, sys, torch, lightning
import sgd_launch_lightning
torch.set_num_threads(1)
lightning.seed_everything(1, verbose=False)

class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.BatchNorm1d(32), torch.nn.Dropout(0.2), torch.nn.Linear(32, 2))
        self.steps = 0

    def training_step(self, batch, number):
        self.steps += 1
        return self.net(batch[0]).square().mean()

    def validation_step(self, batch, number):
        self.log("val_loss", self.net(batch[0]).square().mean(), sync_dist=True)

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=1e-2)
        return [optimizer], [torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 4])]

def loader(size):
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(size, 8)), 4, shuffle=size > 16)

module, ranks = Module(), int(os.environ.get("WORLD_SIZE", 1))
trainer = lightning.Trainer(accelerator="cpu", devices=ranks, strategy="ddp" if ranks > 1 else "auto", max_epochs=int(sys.argv[1]), logger=False,
                            enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
                            callbacks=[sgd_launch_lightning.Keep()])
trainer.fit(module, loader(320), loader(16))
state = b"".join(value.numpy().tobytes() for value in [*module.state_dict().values(), torch.get_rng_state()])
rate, lasts = trainer.optimizers[0].param_groups[0]["lr"], trainer.current_epoch
print("steps", module.steps, flush=True)
print("end", trainer.global_step, hashlib.sha256(state + str((rate, lasts)).encode()).hexdigest(), flush=True)
"""

TRANSFORMERS = """
import hashlib, os, sys, torch, transformers
import sgd_launch_transformers
torch.set_num_threads(1)
transformers.set_seed(1)
model = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0))
rows = torch.randint(0, 64, (320, 16), generator=torch.Generator().manual_seed(5))
arguments = transformers.TrainingArguments(output_dir="out", use_cpu=True, report_to=[], per_device_train_batch_size=2, save_strategy="no", disable_tqdm=True,
                                           gradient_accumulation_steps=2, num_train_epochs=int(sys.argv[1]), logging_steps=10)
class Counts(transformers.TrainerCallback):
    steps = 0
    def on_step_end(self, *arguments, **more):
        self.steps += 1
counts = Counts()
trainer = transformers.Trainer(model=model, args=arguments, train_dataset=[{"input_ids": row, "labels": row} for row in rows],
                               callbacks=[sgd_launch_transformers.Keep(), counts])
trainer.train()
text = b"".join(value.numpy().tobytes() for value in [*model.state_dict().values(), torch.get_rng_state()])
places = [(line["step"], line["epoch"], line["learning_rate"]) for line in trainer.state.log_history if "learning_rate" in line]
print("steps", counts.steps, flush=True)
print("end", trainer.state.global_step, hashlib.sha256(text + str((places, trainer.state.epoch)).encode()).hexdigest(), flush=True)
"""


def has(framework):
    try:
        return subprocess.run([PYTHON, "-c", f"import {framework}"], capture_output=True, timeout=LIMIT_S).returncode == 0
    except OSError:
        return False


class Trainers:
    """What holds for both."""

    def launch(self, epochs, run_dir="run", workers=2, options=()):
        path = self.write("train.py", self.SCRIPT)
        return self.start("-n", str(workers), "--no-fold", "--max-failures", "3", *options, "--", PYTHON, path, str(epochs), run_dir=run_dir,
                          env={"PYTHONPATH": MODULES})

    def said(self, launch, word):
        return sorted(re.findall(rf"^(?:\d+: )?{word} (.*)$", launch.stdout().decode(), re.M))

    def test_killed_ends_as_if_undisturbed(self):
        quiet = self.launch(8, run_dir="quiet")
        self.assertEqual(quiet.wait(LIMIT_S), 0, quiet.said())
        launch = self.launch(8)
        launch.wait_for_event("checkpoint_saved", limit_s=LIMIT_S)  # Of the first epoch: all have a copy in memory by then.
        os.kill(launch.events("worker_started")[1]["pid"], signal.SIGKILL)
        self.assertEqual(launch.wait(LIMIT_S), 0, launch.said())
        self.assertEqual(len(self.said(launch, "end")), 2, launch.said())
        self.assertEqual(self.said(launch, "end"), self.said(quiet, "end"))
        self.assertEqual({event["source"] for event in launch.events("recovered")}, {"memory"})
        steps = {int(said) for said in self.said(quiet, "steps")}
        self.assertTrue(all(int(said) <= min(steps) for said in self.said(launch, "steps")), launch.said())

    def test_a_stop_is_gone_on_from(self):
        quiet = self.launch(8, run_dir="quiet", workers=1)
        self.assertEqual(quiet.wait(LIMIT_S), 0, quiet.said())
        launch = self.launch(8, workers=1)
        launch.wait_for_event("checkpoint_saved", limit_s=LIMIT_S)  # Of the first epoch: it has asked whether to stop by then.
        os.kill(launch.process.pid, signal.SIGTERM)
        launch.wait(LIMIT_S)
        last, end = launch.events("checkpoint_saved")[-1]["step"], int(self.said(quiet, "end")[0].split()[0])
        self.assertTrue(end // 8 < last < end, f"{last} of {end}: {launch.said()}")
        again = self.start("resume", launch.run_dir, run_dir=None, env={"PYTHONPATH": MODULES})
        self.assertEqual(again.wait(LIMIT_S), 0, again.said())
        self.assertEqual(self.said(again, "end"), self.said(quiet, "end"))

    def test_without_the_launcher_it_does_nothing(self):
        path = self.write("train.py", self.SCRIPT)
        done = subprocess.run([PYTHON, path, "1"], capture_output=True, text=True, timeout=LIMIT_S, cwd=os.path.dirname(path),
                              env={**os.environ, "PYTHONPATH": MODULES})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"(?m)^end 80 ")


@unittest.skipUnless(has("lightning"), f"{PYTHON} has no lightning")
class LightningTest(Trainers, harness.LaunchTest):
    SCRIPT = LIGHTNING


@unittest.skipUnless(has("transformers, accelerate"), f"{PYTHON} has no transformers")
class TransformersTest(Trainers, harness.LaunchTest):
    SCRIPT = TRANSFORMERS


class ImportTest(unittest.TestCase):
    def test_modules_need_no_framework(self):
        for module in ("sgd_launch_lightning", "sgd_launch_transformers"):
            code = f"import {module}, sys; assert not {{'torch', 'lightning', 'transformers'}} & set(sys.modules)\ntry: {module}.Other\nexcept AttributeError: print('fine')"
            done = subprocess.run(["/usr/bin/python3", "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": MODULES})
            self.assertEqual(done.stdout, "fine\n", done.stderr)


if __name__ == "__main__":
    unittest.main()
