"""The Debian package on a bare Debian 12: installed in a chroot that debootstrap makes, used by an ordinary account, and removed.

    scripts/bench package [--keep]

Needs root, debootstrap and the network, from where debootstrap and apt get Debian's packages. LibTorch is the one of this machine, seen from inside. Prints what
was tried; ends with 1 at the first thing that is not as it should be.
"""

import os
import shutil
import subprocess
import sys

from chroot import Chroot, options_of, scratch


def say(text):
    print(f"package: {text}", flush=True)


def expect(what, is_so, said=""):
    if not is_so:
        sys.exit(f"package: {what}: not so\n{said}")
    say(what)


def install(box, package):
    names = box.add_needed(package, "python3", "man-db", "systemd")
    before = box.files()
    shutil.copy(package, box.path("/tmp/sgd-launch.deb"))
    box.run("dpkg -i /tmp/sgd-launch.deb")
    say(f"installed: {os.path.basename(package)}, {os.path.getsize(package) / 2**20:.1f} MiB; needs {', '.join(names)}")
    return before


def use(box, torch):
    said = box.run("sgd-launch -n 2 -- echo ready", account="eva")
    expect("an ordinary account runs a command", "0-1 ×2: ready" in said or said.count("ready") == 2, said)
    job = "/usr/share/doc/sgd-launch/examples/linear.json"
    said = box.run(f"sgd-launch {job}", account="eva", expect=2)
    expect("without LibTorch a training is refused, and how to name one is said", "ln -s DIR /usr/lib/sgd-launch/torch" in said, said)
    os.makedirs(box.path("/opt/libtorch"))
    # What LibTorch itself needs may lie beside it, as pip installs it.
    subprocess.run(["mount", "--bind", os.path.dirname(torch), box.path("/opt/libtorch")], check=True)
    os.symlink(os.path.join("/opt/libtorch", os.path.basename(torch)), box.path("/usr/lib/sgd-launch/torch"))
    said = box.run(f"sgd-launch -n 2 {job}", account="eva")
    expect("with it, an ordinary account trains", "finished in" in said and "model.safetensors" in said, said)
    said = box.run("sgd-launch resume --set training.epochs=5", account="eva")
    expect("and goes on from its checkpoint", "epoch 5/5" in said, said)
    said = box.run("sgd-launch -n 2 --local-nodes 2", job, account="eva")
    expect("across two nodes, by Gloo's module", "finished in" in said, said)
    said = box.run("sgd-launch -n 2 --preload auto -- python3 -c 'import sgd_launch; print(sgd_launch.__name__)'", account="eva")
    expect("a Python script finds the module", "sgd_launch" in said, said)
    said = box.run("sgd-launch doctor; true", account="eva")
    expect("doctor finds the worker", "ok       sgd-worker" in said, said)
    pages = [f"/usr/share/doc/sgd-launch/{page}" for page in ("README.md", "launcher/guide.md", "worker/first_training.md", "configs/reference.md")]
    expect("pages that the README links to are there", all(os.path.exists(box.path(page)) for page in pages))
    said = box.run("man sgd-launch-resume | cat; man 5 sgd-launch-job | cat")
    expect("man pages are there", "continues a run" in said and "training.optimizer" in said, said[:2000])
    said = box.run("bash -c '. /usr/share/bash-completion/completions/sgd-launch; COMP_WORDS=(sgd-launch resume --max); COMP_CWORD=2; _sgd_launch; "
                   "echo ${COMPREPLY[@]}'")
    expect("bash completes", "--max-failures" in said, said)
    said = box.run("systemd-analyze verify /usr/lib/systemd/system/sgd-launch-coordinator.service /usr/lib/systemd/system/sgd-launch-agent.service 2>&1; true")
    expect("systemd takes the units", "sgd-launch" not in said, said)
    said = box.run("getent passwd sgd-launch sgd-launch-jobs")
    expect("the daemons' accounts are there", said.count("\n") == 2, said)
    start = "mkdir -p -m 700 /var/lib/sgd-launch/coordinator && chown sgd-launch: /var/lib/sgd-launch/coordinator && STATE_DIRECTORY=/var/lib/sgd-launch/coordinator"
    said = box.run(f"{start} timeout 5 setpriv --reuid sgd-launch --regid sgd-launch --clear-groups sgd-launch coordinator; true")
    expect("the coordinator runs under its account", "listening on" in said, said)


def remove(box, before):
    box.run("dpkg --remove sgd-launch")
    expect("after removal its state and settings are there", os.path.exists(box.path("/etc/default/sgd-launch")) and os.path.exists(box.path("/var/lib/sgd-launch")))
    box.run("dpkg --purge sgd-launch")
    left = sorted(box.files() - before)
    expect("after purge nothing is left", not left, "\n".join(left))
    gone = sorted(before - box.files())
    expect("and nothing else has gone", not gone, "\n".join(gone))


def main():
    options = options_of("package")
    with scratch("chroot", options.keep) as folder:
        box = Chroot(folder)
        box.make()
        before = install(box, options.package)
        use(box, options.torch)
        remove(box, before)
    say("all is well")


if __name__ == "__main__":
    main()
