"""A callback of PyTorch Lightning whose runs go on from memory under sgd-launch: README.md beside this file.

    trainer = lightning.Trainer(callbacks=[sgd_launch_lightning.Keep()])

Lightning is imported when Keep is asked for. Without the launcher the callback does nothing.
"""
import sys

import sgd_launch

_WHOLE = ("SingleDeviceStrategy", "DDPStrategy")  # Of them each rank has the whole state.


class _Progress:
    """What Lightning would write into a checkpoint at the begin of a batch. What is read back is for Lightning's own way of going on."""

    def __init__(self, trainer):
        self.trainer, self.order, self.read = trainer, None, None

    def state_dict(self):
        kept = self.trainer._checkpoint_connector.dump_checkpoint(weights_only=False)
        kept = {name: value for name, value in kept.items() if "hyper_parameters" not in name and not name.startswith("hparams")}
        # To Lightning, this batch would be the epoch's end. And a loader's own state has the batch behind it already.
        kept["loops"]["fit_loop"]["epoch_loop.batch_progress"]["is_last_batch"] = False
        kept["loops"]["fit_loop"]["state_dict"].pop("combined_loader", None)
        metrics = dict(self.trainer._logger_connector._callback_metrics)  # Of a validation in this epoch, which schedulers may ask for.
        return {"checkpoint": kept, "metrics": metrics, "order": self.order, "world": self.trainer.world_size}

    def load_state_dict(self, read):
        self.read = read


def _begun(batches):
    """The same, with the first one drawn at once. (Lightning's own begin anew where anybody asks for iter() of them.)"""
    batch = next(batches, None)
    yield None
    while batch is not None:
        yield batch
        batch = next(batches, None)


class _Hooks:
    def __init__(self, skip=True):
        """`skip`: the epoch goes on behind the samples that it had. They are loaded once more for that; False: it begins anew with others."""
        super().__init__()
        self.skip, self.kept, self.progress, self.random = skip, None, None, None

    def setup(self, trainer, pl_module, stage):
        link = sgd_launch._link()
        if stage != "fit" or link is None:
            return
        if self.kept is not None:
            raise RuntimeError("sgd_launch: a callback Keep is one fit()'s: start another process for another training")
        if type(trainer.strategy).__name__ not in _WHOLE:
            raise ValueError(f"sgd_launch: of {type(trainer.strategy).__name__} no rank has the whole state, so Keep cannot keep it: take "
                             "strategy=\"ddp\", or leave Keep out")
        self.progress = _Progress(trainer)
        self.kept = sgd_launch.State(lightning=self.progress, epoch=0, step=0)
        self.kept.restore()
        if self.progress.read is not None:
            self.random = sgd_launch._random_states()
            trainer._checkpoint_connector.resume_start = self._resume_start

    def _resume_start(self, *_, **__):
        """In place of reading fit()'s ckpt_path, which is older."""
        trainer, checkpoint = self.progress.trainer, self.progress.read["checkpoint"]
        checkpoint["state_dict"]._metadata = trainer.lightning_module.state_dict()._metadata
        current, former = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]["current"], self.progress.read["world"]
        if former != trainer.world_size:  # So many batches of the former ranks are as many samples.
            batches = current["completed"] * former // trainer.world_size
            current.update(dict.fromkeys(current, batches - batches % trainer.accumulate_grad_batches))
        trainer._checkpoint_connector._loaded_checkpoint = checkpoint

    def on_fit_start(self, trainer, pl_module):
        if self.kept is not None:
            self.progress.order = sgd_launch._random_states()

    def on_train_start(self, trainer, pl_module):
        """The epoch's order of samples once more, and behind those that it had."""
        loop, before = trainer.fit_loop, self.random
        if before is None or not self.skip:
            return
        if self.progress.read["order"] is not None:
            sgd_launch._set_random_states(self.progress.read["order"])
        self.progress.order = sgd_launch._random_states()
        for loader in loop._combined_loader.flattened:
            for sampler in (getattr(loader, "sampler", None), getattr(getattr(loader, "batch_sampler", None), "sampler", None)):
                if hasattr(sampler, "set_epoch"):
                    sampler.set_epoch(loop.epoch_progress.current.processed)
        fetcher, done = iter(loop._data_fetcher), loop.epoch_loop.batch_progress.current.completed
        for _ in range(done):
            next(fetcher)
        fetcher.fetched -= done  # Lightning adds them.
        # The next batch is drawn here: on its way to it Lightning draws random numbers for a validation that is not due.
        fetcher.iterator = _begun(fetcher.iterator)
        fetcher.iterator.send(None)

    def on_train_epoch_start(self, trainer, pl_module):
        if self.kept is not None and trainer.current_epoch > 0:
            self.progress.order = sgd_launch._random_states()

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if self.kept is None:
            return
        if self.random is not None:
            self._take_counters(trainer)
        if trainer.fit_loop.epoch_loop.batch_progress.current.completed % trainer.accumulate_grad_batches:
            return  # Gradients are no part of the state.
        self.kept.epoch, self.kept.step = trainer.current_epoch, trainer.global_step
        self.kept.commit()
        if sgd_launch.should_stop():
            trainer.should_stop, trainer.limit_val_batches = True, 0
            trainer.fit_loop.min_epochs = trainer.fit_loop.epoch_loop.min_steps = None

    def _take_counters(self, trainer):
        """Lightning has counted a batch, a step and a validation more on its way here."""
        loop, read = trainer.fit_loop.epoch_loop, self.progress.read["checkpoint"]["loops"]["fit_loop"]
        is_last = loop.batch_progress.is_last_batch
        loop.batch_progress.total.load_state_dict(read["epoch_loop.batch_progress"]["total"])
        loop.batch_progress.is_last_batch = is_last
        loop.val_loop.batch_progress.load_state_dict(read["epoch_loop.val_loop.batch_progress"])
        loop._batches_that_stepped = read["epoch_loop.state_dict"]["_batches_that_stepped"]
        trainer.fit_loop.restarting = False  # Else schedulers that follow a metric leave this epoch out.
        trainer._logger_connector._callback_metrics.update(self.progress.read["metrics"])
        sgd_launch._set_random_states(self.random)
        self.random = self.progress.read = None


def __getattr__(name):
    """Keep, of the Lightning that the script has imported."""
    if name != "Keep":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    modules = [one for one in ("lightning.pytorch", "pytorch_lightning") if one in sys.modules] or ["lightning.pytorch"]
    base = __import__(modules[0], fromlist=["Callback"]).Callback
    globals()["Keep"] = type("Keep", (_Hooks, base), {"__module__": __name__, "__doc__": "Trainer(callbacks=[Keep()])"})
    return globals()["Keep"]
