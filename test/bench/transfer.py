"""A checkpoint between a node and the coordinator, both ways, against a raw stream of as many bytes on the same wire: TLS between
two network namespaces (a veth pair each, and a bridge); without root, over loopback."""

import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from harness import BIN_DIR
from measure import arguments, hardware
from namespaces import HUB, Network, available

NODE = "n1"


def main():
    options = arguments(__doc__.splitlines()[0], mib={"default": 256, "type": int, "help": "of the checkpoint"})
    command = [os.path.join(BIN_DIR, "transfer_bench"), str(options.mib), str(options.n), "--tls"]
    network = Network([NODE], prefix="sgdx") if available() else None
    print(f"{options.mib} MiB, {hardware()}. " + ("Two network namespaces, veth." if network else "Loopback."), flush=True)
    try:
        if network:
            network.up()
            command = [*network.inside(HUB), *command, "--host", network.addresses[HUB], "--node-netns", network.namespace(NODE)]
        return subprocess.run(command, check=False).returncode
    finally:
        if network:
            network.down()


if __name__ == "__main__":
    sys.exit(main())
