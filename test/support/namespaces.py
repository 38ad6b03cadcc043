"""Several machines on one: network namespaces with a veth pair each to a bridge in a hub of their own. As root only.

By hand: `python3 test/support/namespaces.py up n1 n2`, `ip netns exec sgd-n1 ...`, `python3 test/support/namespaces.py down`.
"""

import os
import shutil
import subprocess
import sys

HUB = "hub"


def available():
    """Whether this machine lets us make them."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    name = f"sgdtry{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False)
    if made.returncode == 0:
        subprocess.run(["ip", "netns", "del", name], check=False)
    return made.returncode == 0


class Network:
    """The hub is 10.77.0.1, nodes follow in their order."""

    def __init__(self, nodes, prefix="sgd"):
        self.prefix = prefix
        self.addresses = {HUB: "10.77.0.1", **{name: f"10.77.0.{2 + index}" for index, name in enumerate(nodes)}}
        self.made = []

    def namespace(self, name):
        return f"{self.prefix}-{name}"

    def inside(self, name):
        """What a command begins with to run on that machine."""
        return ["ip", "netns", "exec", self.namespace(name)]

    def up(self):
        for name, address in self.addresses.items():
            self._ip("netns", "add", self.namespace(name))
            self.made.append(name)
            self._ip("-n", self.namespace(name), "link", "set", "lo", "up")
            if name == HUB:
                self._ip("-n", self.namespace(HUB), "link", "add", "br0", "type", "bridge")
                self._ip("-n", self.namespace(HUB), "address", "add", f"{address}/24", "dev", "br0")
                self._ip("-n", self.namespace(HUB), "link", "set", "br0", "up")
                continue
            self._ip("-n", self.namespace(name), "link", "add", "eth0", "type", "veth", "peer", "name", f"to-{name}", "netns",
                     self.namespace(HUB))
            self._ip("-n", self.namespace(HUB), "link", "set", f"to-{name}", "master", "br0", "up")
            self._ip("-n", self.namespace(name), "address", "add", f"{address}/24", "dev", "eth0")
            self.link(name, "up")
        return self

    def link(self, name, state):
        """The cable of a node: "up" or "down"."""
        self._ip("-n", self.namespace(HUB), "link", "set", f"to-{name}", state)
        if state == "up":
            self._ip("-n", self.namespace(name), "link", "set", "eth0", "up")

    def down(self):
        for name in reversed(self.made):
            subprocess.run(["ip", "netns", "del", self.namespace(name)], capture_output=True, check=False)
        self.made = []

    @staticmethod
    def _ip(*arguments):
        subprocess.run(["ip", *arguments], check=True, capture_output=True)


def main():
    verb, names = (sys.argv[1:2] or [""])[0], sys.argv[2:]
    if verb == "up":
        for name, address in Network(names).up().addresses.items():
            print(f"sgd-{name}  {address}")
    elif verb == "down":
        listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout.split()
        for name in listed:
            if name.startswith("sgd-"):
                subprocess.run(["ip", "netns", "del", name], check=False)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
