"""What the callbacks of trainers keep, by stand-ins: the trainers themselves are in test/integration/python_trainers_test.py."""
import dataclasses
import os
import sys
import types
import unittest
from unittest import mock

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../worker/python"))
import sgd_launch
import sgd_launch_transformers


class Kept:
    def __init__(self, value, scaler=None):
        self.value, self.scaler = value, scaler

    def state_dict(self):
        return {"value": self.value}

    def load_state_dict(self, read):
        self.value = read["value"]


@dataclasses.dataclass
class Progress:
    """As TrainerState, as far as the callback asks for it."""

    global_step: int = 0
    epoch: float = 0.0
    log_history: list = dataclasses.field(default_factory=list)
    best_metric: float = None
    best_global_step: int = None
    best_model_checkpoint: str = None
    total_flos: float = 0.0
    num_input_tokens_seen: int = 0


class Transformers(unittest.TestCase):
    def setUp(self):
        self.fd, self.generation = os.memfd_create("memory"), 0
        self.addCleanup(os.close, self.fd)

    def life(self, scaler, grown=None):
        """One rank's: begins to train, and with `grown` makes a step that leaves the scale so."""
        self.generation, told = self.generation + 1, {}
        about = {"local_rank": 0, "local_world_size": 1, "node_rank": 0, "generation": self.generation, "run_dir": "nowhere",
                 "config": {"checkpoint": {"every": {"steps": 1000}}}}
        link = types.SimpleNamespace(pid=os.getpid(), assignment=about, memory_fd=self.fd, rank=0, world=1, beat={}, give=told.__setitem__,
                                     take=lambda key, whom: [told[key]], put=lambda message: None, hand_over=lambda: None)
        given = {"model": Kept(2), "optimizer": Kept(1, scaler), "lr_scheduler": Kept(3), "train_dataloader": [0] * 8}
        args, control = types.SimpleNamespace(world_size=1, gradient_accumulation_steps=1), types.SimpleNamespace(should_training_stop=False)
        with mock.patch.object(sgd_launch, "_link", lambda: link), mock.patch.object(sgd_launch, "should_stop", lambda: False), \
                mock.patch.object(sgd_launch.State, "_first", None):
            hooks, state = sgd_launch_transformers._Hooks(), Progress()
            hooks.on_train_begin(args, state, control, **given)
            if grown is not None:
                scaler.value, state.global_step = grown, state.global_step + 1
                hooks.on_step_begin(args, state, control, **given)
        return state.global_step

    def test_the_scale_of_16_bit_floats_goes_on(self):
        self.life(Kept(65536.0), 1024.0)
        again = Kept(65536.0)
        self.assertEqual(self.life(again), 1)
        self.assertEqual(again.value, 1024.0)
        self.assertEqual(self.life(None), 1)  # Who trains without one needs none.


if __name__ == "__main__":
    unittest.main()
