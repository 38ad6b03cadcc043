"""The package's units under a real systemd: a machine is booted, set up by the words of scripts/systemd/README.md, used, hurt, updated and cleaned.

    scripts/bench services [--keep]

Needs root, debootstrap and the network, from where debootstrap and apt get Debian's packages. Prints what was tried; ends with 1 at the first thing that is not as
it should be.
"""

import json
import os
import re
import shutil
import sys
import time

from booted import Booted
from chroot import ROOT, options_of, scratch

LIMIT_S = 60
ADDRESS = "127.0.0.1:7070"
UNITS = ("sgd-launch-coordinator", "sgd-launch-agent")
JOB = {
    "name": "steady", "num_workers": 2, "recovery": {"max_failures": 0}, "checkpoint": {"every": {"seconds": 1}},
    "training": {"epochs": 1000000, "batch_size": 32, "model": {"type": "linear"}, "loss": "mse",
                 "dataset": {"type": "linear", "samples": 100000, "validation_samples": 100}, "optimizer": {"type": "sgd", "lr": 0.001}},
}


def expect(what, is_so, said=""):
    if not is_so:
        sys.exit(f"services: {what}: not so\n{said}")
    print(f"services: {what}", flush=True)


class Cluster:
    def __init__(self, box):
        self.box = box

    def eva(self, *words, code=0):
        return self.box.run(f"SGD_ADDRESS={ADDRESS} sgd-launch", *words, account="eva", expect=code)

    def until(self, what, is_so):
        """The first answer of `is_so` that is true."""
        deadline = time.monotonic() + LIMIT_S
        while True:
            found = is_so()
            if found:
                return found
            if time.monotonic() > deadline:
                log = self.box.run("journalctl --no-pager --lines 60 -u sgd-launch-coordinator -u sgd-launch-agent", expect=None)
                sys.exit(f"services: {what}: not within {LIMIT_S} s\n{self.eva('ps --all', code=None)}\n{log}")
            time.sleep(0.1)

    def status(self, run):
        said = self.eva("status --json", run, code=None)
        return json.loads(said) if said.startswith("{") else {}

    def step_past(self, run, step):
        """The run's status once it is running and has passed `step`."""
        def passed():
            status = self.status(run)
            return status if status.get("state") == "running" and status.get("step", 0) > step else None
        return self.until(f"{run} passes step {step}", passed)


def set_up(box):
    """By the words of the README, behind a start that was too early."""
    for unit in UNITS:
        box.run(f"systemctl start {unit}", expect=1)
    said = box.run("journalctl --no-pager -u sgd-launch-coordinator -u sgd-launch-agent")
    expect("without identities neither starts, and both say what is missing", "run `sgd-launch init`" in said and "join the cluster (sgd-launch join)" in said, said)
    said = box.run("sgd-launch init")
    expect("init says how the services start", "systemctl enable --now sgd-launch-coordinator" in said, said)
    box.run("systemctl enable --now sgd-launch-coordinator")
    box.run("sgd-launch token create --name $(hostname) > /etc/n1.token")
    box.run(f"sgd-launch join {ADDRESS} --token-file /etc/n1.token")
    box.run("systemctl enable --now sgd-launch-agent")
    said = box.run("curl -s http://127.0.0.1:7071/readyz")
    expect("both services start, and the coordinator is ready", said.strip() == "ok", said)
    box.run("sgd-launch token create --role client --name eva > /tmp/eva.token && chown eva /tmp/eva.token")
    box.run(f"sgd-launch join {ADDRESS} --token-file /tmp/eva.token", account="eva")


def use(box, cluster):
    said = cluster.eva("-n 2 -- id -un")
    expect("a command runs under the jobs' account", said.count("sgd-launch-jobs") in (1, 2), said)
    for path in ("/var/lib/sgd-launch/coordinator/ca/ca.key", "/var/lib/sgd-launch/agent/identity/identity.pem"):
        assert os.path.exists(box.path(path)), path
        said = cluster.eva("-n 1 --max-failures 0 -- cat", path, code=1)
        expect(f"no job reads {path}", "Permission denied" in said and "BEGIN" not in said, said)
    said = cluster.eva("/usr/share/doc/sgd-launch/examples/linear.json")
    expect("an ordinary account trains", "finished in" in said, said)
    said = cluster.eva("checkpoints get model && find model")
    expect("and gets its model", "/model.safetensors" in said, said)
    said = cluster.eva("-n 1 --max-failures 0 -- sh -c 'sleep 600 & setsid -f env -i sleep 601; kill -9 $PPID; sleep 602'", code=1)
    left = box.run("pgrep -a sleep", expect=None)
    expect("a keeper that its own job kills leaves nothing behind", not left, said + left)


def hurt(box, cluster, package):
    with open(box.path("/home/eva/steady.json"), "w", encoding="utf-8") as file:
        json.dump(JOB, file)
    run = cluster.eva("submit --detach steady.json").strip()
    status = cluster.step_past(run, 100)
    workers = box.run("pgrep sgd-worker")
    for unit in UNITS:
        box.run(f"systemctl kill --kill-whom=main --signal=KILL {unit}")
        cluster.until(f"{unit} is started again", lambda unit=unit: box.run(f"systemctl is-active {unit}", expect=None).strip() == "active")
        status = cluster.step_past(run, status["step"] + 100)
        expect(f"{unit} is killed: its workers go on", box.run("pgrep sgd-worker") == workers, str(status))
    shutil.copy(package, box.path("/tmp/sgd-launch.deb"))
    box.run("dpkg -i /tmp/sgd-launch.deb")
    box.run("systemctl is-active", *UNITS)
    cluster.until("the agent is back", lambda: "connected" in cluster.eva("nodes", code=None))
    status = cluster.step_past(run, status["step"] + 100)
    expect("the package is installed once more: the workers go on", box.run("pgrep sgd-worker") == workers, str(status))
    expect("and nothing counts as a failure", status["failures"] == 0, str(status))
    return run, status


def stop_and_lose(box, cluster, run, status):
    box.run("systemctl stop sgd-launch-agent")
    left = box.run("pgrep -a sgd-worker; pgrep -a sleep; ps -eo args | grep -E '^/usr/bin/sgd-launch keeper'", expect=None)
    expect("the agent is stopped: nothing of its runs is left", not left, left)
    box.run("systemctl start sgd-launch-agent")
    status = cluster.step_past(run, status["step"])
    expect("it is started: the run goes on behind its last step", status["failures"] == 0, str(status))
    box.power_off()
    box.boot()
    status = cluster.step_past(run, status["step"])
    expect("the machine has lost its power and comes back: the run goes on", True)
    cluster.eva("stop", run)
    cluster.until("the end of the run", lambda: cluster.status(run).get("state") == "cancelled")
    said = cluster.eva("checkpoints", run)
    expect("stopped, it has a checkpoint", "checkpoints/step-" in said and "whole" in said, said)


def owners(box, cluster):
    """Each run has its owner's account."""
    folder = "/etc/systemd/system/sgd-launch-agent.service.d"
    os.makedirs(box.path(folder))
    shutil.copy(os.path.join(ROOT, "scripts", "systemd", "sgd-launch-agent.service.d", "owners.conf.example"), box.path(folder + "/owners.conf"))
    box.run("systemctl daemon-reload && systemctl restart sgd-launch-agent")
    said = cluster.eva("-n 1 -- sh -c 'id -un; cat /etc/shadow'", code=1)
    expect("with owners.conf a run has its owner's account", re.search(r"(?m)\beva$", said) and "Permission denied" in said, said)
    shutil.rmtree(box.path(folder))


def clean(box, before):
    box.run("dpkg --purge sgd-launch")
    left = box.run("ps -eo args | grep -E '^/usr/bin/sgd-'; systemctl list-unit-files --no-legend 'sgd-launch*'; find /sys/fs/cgroup/system.slice -name 'sgd-*-*-*'",
                   expect=None)
    expect("after purge no process, unit or control group of a run is left", not left, left)
    shutil.rmtree(box.path("root/.config"), ignore_errors=True)
    os.unlink(box.path("/etc/n1.token"))
    left = sorted(box.files() - before)
    expect("and no file", not left, " ".join(left))


def journey(box, package, torch):
    box.make()
    box.add_needed(package, "python3", "systemd", "systemd-sysv", "dbus", "curl", "procps", "iproute2")
    os.makedirs(box.path(box.theirs))
    before = box.files()
    box.boot()
    shutil.copy(package, box.path("/tmp/sgd-launch.deb"))
    box.run("dpkg -i /tmp/sgd-launch.deb")
    os.symlink(os.path.join(box.theirs, torch), box.path("/usr/lib/sgd-launch/torch"))
    set_up(box)
    cluster = Cluster(box)
    use(box, cluster)
    stop_and_lose(box, cluster, *hurt(box, cluster, package))
    owners(box, cluster)
    clean(box, before)


def main():
    options = options_of("services")
    with scratch("booted", options.keep) as folder:
        # What LibTorch itself needs may lie beside it, as pip installs it.
        box = Booted(folder, "/opt/libtorch", os.path.dirname(options.torch))
        try:
            journey(box, options.package, os.path.basename(options.torch))
        finally:
            box.power_off()
    print("services: all is well", flush=True)


if __name__ == "__main__":
    main()
