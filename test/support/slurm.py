"""A Slurm cluster of real daemons (Debian's slurmctld and slurmd), each node in a network namespace of its own. As root, where they are installed.

Who asks is believed (auth/none): it serves nobody but the test that has made it."""

import os
import shutil
import socket
import subprocess

from harness import LIMIT_S, wait_for

CONFIGURATION = """ClusterName=test
SlurmctldHost={host}({address})
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
MpiDefault=none
SlurmUser=root
SlurmdUser=root
ReturnToService=2
SlurmctldPort=26817
SlurmdPort=26818
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
KillWait=5
"""


def available():
    return os.geteuid() == 0 and all(shutil.which(program) for program in ("slurmctld", "slurmd", "srun"))


class Slurm:
    """The controller runs on the first of the nodes of `network`."""

    def __init__(self, folder, network, nodes):
        self.folder = folder
        self.network = network
        self.nodes = nodes
        self.processes = []
        self.hosts = []
        self.environment = {**{name: value for name, value in os.environ.items() if not name.startswith("SLURM_")},
                            "SLURM_CONF": os.path.join(folder, "slurm.conf")}

    def up(self):
        addresses = self.network.addresses
        os.makedirs(os.path.join(self.folder, "state"))
        with open(self.environment["SLURM_CONF"], "w", encoding="utf-8") as conf:
            conf.write(CONFIGURATION.format(host=socket.gethostname(), address=addresses[self.nodes[0]], folder=self.folder))
            for node in self.nodes:
                conf.write(f"NodeName={node} NodeAddr={addresses[node]} CPUs={os.cpu_count()} State=UNKNOWN\n")
            conf.write(f"PartitionName=all Nodes={','.join(self.nodes)} Default=YES State=UP\n")
        with open(os.path.join(self.folder, "cgroup.conf"), "w", encoding="utf-8") as conf:
            conf.write("CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")  # Not looked for: none is seen in a namespace.
        for node in self.nodes:
            self._name_hosts(node, addresses)
            os.makedirs(os.path.join(self.folder, node))
        self._start(self.nodes[0], "slurmctld", "-D", "-c")
        for node in self.nodes:
            self._start(node, "slurmd", "-D", "-N", node)
        wait_for(lambda: self._idle() == len(self.nodes), LIMIT_S, "idle nodes")
        return self

    def _name_hosts(self, node, addresses):
        """`ip netns exec` puts files of that folder in the place of those of /etc."""
        folder = f"/etc/netns/{self.network.namespace(node)}"
        os.makedirs(folder)
        self.hosts.append(folder)
        with open(os.path.join(folder, "hosts"), "w", encoding="utf-8") as hosts:
            hosts.write("127.0.0.1 localhost\n" + "".join(f"{addresses[name]} {name}\n" for name in self.nodes))

    def _start(self, node, *command):
        with open(os.path.join(self.folder, f"{command[0]}-{node}.out"), "wb") as output:
            self.processes.append(subprocess.Popen([*self.network.inside(node), *command], env=self.environment, stdin=subprocess.DEVNULL,
                                                   stdout=output, stderr=output))

    def _idle(self):
        told = subprocess.run([*self.network.inside(self.nodes[0]), "sinfo", "-h", "-o", "%t %D"], env=self.environment, text=True,
                              capture_output=True, timeout=LIMIT_S, check=False).stdout
        return sum(int(line.split()[1]) for line in told.splitlines() if line.startswith("idle "))

    def srun(self, *arguments, cwd, env):
        """A step, from the first node."""
        return self.person("srun", *arguments, cwd=cwd, env=env)

    def person(self, *command, cwd, env):
        """A command at the first node."""
        return subprocess.Popen([*self.network.inside(self.nodes[0]), *command], cwd=cwd, env={**self.environment, **env},
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def down(self):
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for folder in self.hosts:
            shutil.rmtree(folder, ignore_errors=True)
