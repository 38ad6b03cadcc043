"""Rank 0's thread that writes commits from memory to checkpoints on disk, one at a time, while training goes on.

A checkpoint has rank 0's whole state, of the node's other ranks what is each rank's own, and a manifest, which is written
last; it is built under a temporary name. The launcher counts it when it is told, and removes old ones.
"""
import json
import os
import shutil
import threading
import time

from sgd_launch_link import warn
from sgd_launch_values import sync, write_file

FILE = "state.safetensors"
_OTHERS_WAIT_S = 60.0  # For the other ranks' part of the same commit.


def rank_file(rank):
    """What is `rank`'s own; rank 0's is in FILE."""
    return FILE if rank == 0 else f"rank-{rank:04d}.safetensors"


class Saver:
    def __init__(self, link, memory, per_rank):
        self.link, self.memory, self.per_rank = link, memory, per_rank
        self.changed, self.job, self.skipped = threading.Condition(), None, 0
        self.folder = os.path.join(link.assignment["run_dir"], "checkpoints")
        self.thread, self.newest, self.has_warned = None, (0, 0), False

    def save(self, key, stall_s):
        """Begins to write the commit that was just made, whose slots stay as they are until they have been read."""
        with self.changed:
            if self.job is not None:
                self.skipped += 1
                return
            self.job = key, stall_s
            self.memory.pin(key[1])
            if self.thread is None:
                self.thread = threading.Thread(target=self._run, name="sgd-launch-save", daemon=True)
                self.thread.start()
            self.changed.notify_all()

    def wait(self, deadline_s):
        """Until nothing is being written."""
        with self.changed:
            return self.changed.wait_for(lambda: self.job is None, deadline_s)

    def end(self):
        """At the end of the process: what is being written is whole. Not in a child that it has forked."""
        if self.link.pid == os.getpid():
            self.wait(_OTHERS_WAIT_S)

    def _run(self):
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.job is not None)  # Deadline: none, this is the thread's rest.
                key, stall_s = self.job
            try:
                self._save(key, stall_s)
            except Exception as error:  # Whatever it is: a thread that ends here would leave out all later checkpoints.
                self._warn_once(f"{type(error).__name__}: {error}")
            finally:
                with self.changed:
                    self.memory.pin(0)
                    self.job = None
                    self.changed.notify_all()

    def _save(self, key, stall_s):
        """Writes it, or tells the launcher why it could not be written."""
        step = 0
        try:
            key = self._held_by_all(key)
            records = [self.memory.read(local, key) for local in range(self.memory.local_world)]
            step = records[0].info["step"]
            self._write(key, records[0], records[1:], stall_s)
            self.newest = key
        except Exception as error:
            is_expected = isinstance(error, (OSError, ValueError))
            reason = str(error) if is_expected else f"{type(error).__name__}: {error}"
            if not is_expected:
                self._warn_once(reason)
            self.link.put({"type": "checkpoint_failed", "step": step, "reason": reason})

    def _warn_once(self, reason):
        if not self.has_warned:
            self.has_warned = True
            warn(f"rank 0: a checkpoint has failed, and later ones are still tried: {reason}")

    def _held_by_all(self, key):
        """The commit itself, once all ranks of the node hold it, or the newest common one where a rank has gone past it."""
        until = time.monotonic() + _OTHERS_WAIT_S
        while True:
            held = [self.memory.headers(local) for local in range(self.memory.local_world)]
            missing = [local for local, keys in enumerate(held) if key not in keys]
            if not missing:
                return key
            if any(keys and key not in keys and max(keys) > key for keys in held):
                common = self.memory.common()
                if common is None or common[0] != key[0] or common <= self.newest:
                    raise ValueError(f"the ranks are too far apart: no newer commit than that of call {self.newest[1]} is there of all")
                key = common
                self.memory.pin(key[1])
            elif time.monotonic() > until:
                raise ValueError(f"waited {_OTHERS_WAIT_S:.0f} s for local rank {missing[0]} to commit call {key[1]}")
            else:
                time.sleep(0.002)

    def _write(self, key, record, others, stall_s):
        began, info = time.monotonic(), record.info
        os.makedirs(self.folder, exist_ok=True)
        for name in os.listdir(self.folder):
            if name.startswith(".state-"):  # A rank before was killed here.
                shutil.rmtree(os.path.join(self.folder, name), ignore_errors=True)
        temporary = os.path.join(self.folder, f".state-{os.getpid()}")
        os.mkdir(temporary)
        files = [(FILE, *write_file(os.path.join(temporary, FILE), record, sync=False))]
        for other in others:
            name = rank_file(other.info["rank"])
            files.append((name, *write_file(os.path.join(temporary, name), other, self.per_rank, sync=False)))
        for local in range(self.memory.local_world):
            # A rank that had looked for a free slot before this commit was pinned may have written over it; it clears the stamp
            # before: what is stamped now has been whole all the time.
            self.memory.held(local, key)
        self.memory.pin(0)  # A disk that is slow from here on holds up no commit.
        for name, _, _ in files:
            sync(os.path.join(temporary, name))
        manifest = {"format": 1, "step": info["step"], "epoch": info["epoch"], "generation": key[0], "world_size": info["world"],
                    "files": [{"name": name, "bytes": size, "crc32": f"{crc:08x}"} for name, size, crc in files]}
        with open(os.path.join(temporary, "manifest.json"), "w") as file:
            json.dump(manifest, file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        sync(temporary)
        name, number = f"step-{info['step']:012d}-gen-{key[0]:04d}", 1
        while os.path.exists(os.path.join(self.folder, name + (f"-{number}" if number > 1 else ""))):
            number += 1
        name += f"-{number}" if number > 1 else ""
        os.rename(temporary, os.path.join(self.folder, name))
        sync(self.folder)
        skipped, self.skipped = self.skipped, 0
        self.link.put({"type": "checkpoint", "path": "checkpoints/" + name, "step": info["step"], "epoch": info["epoch"],
                       "bytes": sum(size for _, size, _ in files), "stall_s": stall_s,
                       "write_s": time.monotonic() - began, "skipped": skipped})
