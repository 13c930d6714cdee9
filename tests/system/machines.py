# SPDX-License-Identifier: Apache-2.0
"""Machines that share only cables: each has a separate network, mounts, host name and processes.

/etc is a copy, and /opt/railweave is this repository. `systemctl` and `scp` are stand-ins, because the
machines have neither an init system nor an SSH server.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
STAND_INS = Path(__file__).parent / "stand_ins"
OWN = ("setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--mount", "--uts", "--pid", "--fork")
SET_UP = """
echo "$1" > /proc/sys/kernel/hostname
cp -a /etc "$2"
mount --bind "$2/etc" /etc
mount -t tmpfs none /opt
mkdir /opt/railweave
mount --bind "$3" /opt/railweave
for which in all default; do
  switch=/proc/sys/net/ipv6/conf/$which/disable_ipv6
  [ ! -e $switch ] || echo 1 > $switch
done
ip link set lo up
echo up
exec "$4" -c "$5"
"""
# The kernel reaps orphaned processes, because this process ignores SIGCHLD.
INIT = "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN); signal.pause()"


class Machine:
    """A running machine, which `machine` has started."""

    def __init__(self, name: str, folder: Path, init: int) -> None:
        self.name = name
        self.folder = folder  # holds etc and the logs
        self.init = init  # process id of its first process, outside the machine

    def command(self, script: str) -> list[str]:
        """Return the command line that runs a script on the machine."""
        enter = ("nsenter", "-t", str(self.init), "--net", "--mount", "--uts", "--pid", "--wd=/")
        return [*enter, "bash", "-euo", "pipefail", "-c", script]

    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("RAILWEAVE_")}
        path = f"{STAND_INS}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        own = {
            "PATH": path,
            "HOSTNAME": self.name,
            "MACHINES": str(self.folder.parent),
            "PYTHONUNBUFFERED": "1",
        }
        return kept | own

    def start(self, script: str, **more: str) -> subprocess.Popen[str]:
        """Start a script. Its standard input stays open until the process object closes it."""
        return subprocess.Popen(
            self.command(script),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.environment() | more,
        )

    def run(self, script: str, *, code: int | None = 0, **more: str) -> str:
        """Run a script, check its exit status (None: any), and return its output."""
        with self.start(script, **more) as process:
            said, _ = process.communicate()
        assert code in (process.returncode, None), (
            f"{self.name}: {script}\nstatus {process.returncode}: {said}"
        )
        return said

    def log(self, service: str) -> str:
        """Return the log of a service."""
        return (self.folder / f"{service}.log").read_text()


@contextmanager
def machine(name: str, folder: Path) -> Iterator[Machine]:
    """Start a machine. All its processes end when the block ends."""
    own = folder / name
    own.mkdir()
    given = (name, str(own), str(REPOSITORY), sys.executable, INIT)
    command = [*OWN, "--mount-proc", "--kill-child", "sh", "-ec", SET_UP, "sh", *given]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "up\n"
            children = Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text().split()
            yield Machine(name, own, int(children[0]))
        finally:
            holder.kill()


@contextmanager
def machines(folder: Path, *names: str) -> Iterator[Mapping[str, Machine]]:
    """Start several machines, without cables."""
    with ExitStack() as stack:
        yield {name: stack.enter_context(machine(name, folder)) for name in names}


def cable(one: Machine, interface: str, other: Machine, port: str, mac: str | None = None) -> None:
    """Connect two machines. `mac` is the address of the first machine's interface. Both ends are down."""
    address = ("address", mac) if mac else ()
    ends = (interface, *address, "netns", str(one.init)), ("name", port, "netns", str(other.init))
    subprocess.run(["ip", "link", "add", "name", *ends[0], "type", "veth", "peer", *ends[1]], check=True)
