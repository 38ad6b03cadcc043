"""A run of sgd-launch that goes on while it is measured: its events as they come, its ranks to kill."""

import json
import os
import signal
import subprocess
import time

from measure import LAUNCHER, read_lines


def mlp_job(epochs, **more):
    from measure import FASHION

    job = {"name": "bench-recovery", "num_workers": 2, "recovery": {"max_failures": "unlimited", "backoff": {"attempts": 1000}},
           "training": {"seed": 1, "epochs": epochs, "batch_size": 128, "model": {"type": "mlp"}, "loss": "cross_entropy",
                        "dataset": {"type": "idx", "path": FASHION},
                        "optimizer": {"type": "sgd", "lr": 0.01, "momentum": 0.9}}}
    for key, value in more.items():
        job[key] = value
    return job


class LiveRun:
    """Starts a job in `folder`; use as a context manager, which kills what is left."""

    def __init__(self, folder, job, *options):
        self.directory = os.path.join(folder, "run")
        path = os.path.join(folder, "job.json")
        with open(path, "w") as file:
            json.dump(job, file)
        self.output = open(os.path.join(folder, "output"), "w")
        self.process = subprocess.Popen([LAUNCHER, "--run-dir", self.directory, "--quiet", *options, path],
                                        stdout=self.output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        self.offset = 0
        self.partial = ""
        self.events = []
        self.ranks = {}
        self.generation = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGQUIT)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.output.close()

    def read(self):
        """New events since the last call."""
        try:
            with open(os.path.join(self.directory, "events.jsonl")) as file:
                file.seek(self.offset)
                text = self.partial + file.read()
                self.offset = file.tell()
        except FileNotFoundError:
            return []
        *lines, self.partial = text.split("\n")
        fresh = [json.loads(line) for line in lines]
        for event in fresh:
            if event["event"] == "worker_started":
                if event["generation"] != self.generation:
                    self.generation, self.ranks = event["generation"], {}
                self.ranks[event["rank"]] = event["pid"]
            elif event["event"] == "worker_exited" and event["generation"] == self.generation:
                self.ranks.pop(event["rank"], None)
        self.events += fresh
        return fresh

    def strike(self, number, chance):
        """Sends a random rank this signal; seconds from then to the first step of all ranks."""
        self.read()
        begin = time.time()
        os.kill(self.ranks[chance.choice(sorted(self.ranks))], number)
        return self.wait("first_step", after=begin)["time"] - begin

    def wait(self, name, limit_s=60, after=0.0):
        """The first event of that name with a time later than `after`."""
        deadline = time.monotonic() + limit_s
        seen = 0
        while time.monotonic() < deadline:
            self.read()
            for event in self.events[seen:]:
                if event["event"] == name and event["time"] > after:
                    return event
            seen = len(self.events)
            if self.process.poll() is not None:
                raise RuntimeError(f"the run ended with {self.process.returncode} while {name} was awaited:\n{self.tail()}")
            time.sleep(0.002)
        raise TimeoutError(f"no {name} within {limit_s} s")

    def tail(self):
        with open(self.output.name) as file:
            return file.read()[-3000:]

    def metrics(self):
        return read_lines(os.path.join(self.directory, "metrics.jsonl"))

    def summary(self):
        with open(os.path.join(self.directory, "summary.json")) as file:
            return json.load(file)
