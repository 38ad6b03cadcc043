"""A callback of the Trainer of Transformers whose runs go on from memory under sgd-launch: README.md beside this file.

    trainer = transformers.Trainer(..., callbacks=[sgd_launch_transformers.Keep()])

Transformers is imported when Keep is asked for. Without the launcher the callback does nothing.
"""
import dataclasses

import sgd_launch

_OF_THE_RUN = ("log_history", "best_metric", "best_global_step", "best_model_checkpoint", "total_flos", "num_input_tokens_seen")


class _Hooks:
    def __init__(self, skip=True):
        """`skip`: the epoch goes on behind the samples that it had. They are loaded once more for that; False: it begins anew with others."""
        super().__init__()
        self.skip, self.kept, self.random = skip, None, None
        self.epoch, self.batches = 0, None  # Of the loader: which one comes next, and how many batches of it are done.
        self.began, self.has_logged = 0, False

    def on_train_begin(self, args, state, control, model=None, optimizer=None, lr_scheduler=None, train_dataloader=None, **_):
        if sgd_launch._link() is None:
            return
        if self.kept is not None:
            raise RuntimeError("sgd_launch: a callback Keep is one train()'s: start another process for another training")
        run = {name: value for name, value in dataclasses.asdict(state).items() if name in _OF_THE_RUN}
        # Of fp16, by accelerate: a scale that begins anew is too large, and the steps until it has fallen are left out.
        scaler = getattr(optimizer, "scaler", None)
        self.kept = sgd_launch.State(model=model, optimizer=optimizer, schedule=lr_scheduler, run=run, world=args.world_size, epoch=0, step=0,
                                     **({} if scaler is None else {"scaler": scaler}))
        if self.kept.restore() == "fresh":
            return
        self.random = sgd_launch._random_states()
        self.began = state.global_step = self.kept.step
        for name, value in self.kept.run.items():
            setattr(state, name, value)
        # The trainer's epochs count from 0 again; so the loader is told which one it is, and where in it to begin.
        place = _place(args, state, train_dataloader)
        if place is not None:
            state.epoch = place[2]
            if self.kept.world == args.world_size:
                self.epoch, self.batches, _ = place
        self.kept.world = args.world_size

    def on_epoch_begin(self, args, state, control, train_dataloader=None, **_):
        if self.batches is None or not self.skip or not hasattr(train_dataloader, "skip_batches"):
            return
        epoch, set_epoch = self.epoch, type(train_dataloader).set_epoch
        train_dataloader.set_epoch = lambda _: set_epoch(train_dataloader, epoch)
        train_dataloader.skip_batches = self.batches
        self.epoch, self.batches = self.epoch + 1, 0

    def on_step_begin(self, args, state, control, train_dataloader=None, **_):
        """Before a step all that belongs to the one before is done, logs, evaluations and checkpoints included."""
        if self.kept is None:
            return
        if self.random is not None:
            sgd_launch._set_random_states(self.random)
            self.random = None
        self.kept.step, self.kept.epoch = state.global_step, int(state.epoch or 0)
        self.kept.run = {name: getattr(state, name) for name in self.kept.run}
        self.kept.commit()
        control.should_training_stop |= sgd_launch.should_stop()

    def on_step_end(self, args, state, control, train_dataloader=None, **_):
        place = _place(args, state, train_dataloader) if self.began else None
        if place is not None:
            state.epoch = place[2]

    def on_log(self, args, state, control, logs=None, **_):
        """The trainer divides what it has summed since the restart by the number of all steps."""
        name = "train_loss" if logs and "train_loss" in logs else "loss"
        if not self.began or not logs or name not in logs or (name == "loss" and self.has_logged):
            return
        self.has_logged = True
        logs[name] *= state.global_step / max(1, state.global_step - self.began)
        state.log_history[-1][name] = logs[name]


def _place(args, state, loader):
    """How many epochs are done, how many batches of the next, and both as one number; None where the loader has no length."""
    try:
        batches = len(loader)
    except TypeError:
        return None
    epochs, updates = divmod(state.global_step, -(-batches // args.gradient_accumulation_steps))
    done = updates * args.gradient_accumulation_steps
    return epochs, done, epochs + done / batches


def __getattr__(name):
    """Keep, of the Transformers that the script has imported."""
    if name != "Keep":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    base = __import__("transformers").TrainerCallback
    globals()["Keep"] = type("Keep", (_Hooks, base), {"__module__": __name__, "__doc__": "Trainer(..., callbacks=[Keep()])"})
    return globals()["Keep"]
