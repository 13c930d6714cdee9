# SPDX-License-Identifier: Apache-2.0
"""Open MPI, with its TCP transport over the job's planes. It stripes large messages over the planes.

The command mpirun runs on the first host. It starts its daemons in the namespaces of the other hosts, through
a script in place of ssh. The ranks are processes of the generic worker, which call libmpi through ctypes.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from railweave.errors import explain
from railweave.experiments.contenders import Array, Endpoint, Implementation, Job
from railweave.experiments.errors import OptionError
from railweave.topologies.planes import MANAGEMENT_NETWORK

if TYPE_CHECKING:
    from railweave.topologies.lab.lab import Lab

LIBRARY = "libmpi.so.40"  # Open MPI 3.0 to 5.0
INSTALL = "install it: make baseline, or apt-get install openmpi-bin"
LAUNCHER = "mpirun.sh"  # in the folder of a job's results
RANK = "OMPI_COMM_WORLD_RANK"
VERSION_BYTES = 256  # MPI_MAX_LIBRARY_VERSION_STRING
OPTIONS = (
    # Any user, and more processes than cores: all hosts share this machine.
    *("--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--map-by", "node", "--quiet"),
    *("--mca", "mpi_yield_when_idle", "1"),
    *("--mca", "orte_leave_session_attached", "1", "--mca", "plm_rsh_no_tree_spawn", "1"),
    *("--mca", "oob_tcp_if_include", MANAGEMENT_NETWORK),
    *("--mca", "pml", "ob1", "--mca", "btl", "tcp,self"),
    # By default, Open MPI sends most of a large message over one plane. 16 MiB between two hosts on two
    # planes of 100 Mbit/s reach 95 Mbit/s. With flags 1, all fragments are sent, and they reach 169 Mbit/s.
    *("--mca", "btl_tcp_flags", "1", "--mca", "btl_tcp_max_send_size", "65536"),
)


class Kind(Implementation):
    """One mpirun per run."""

    collectives = ("all_reduce", "reduce_scatter", "all_gather", "broadcast")
    ops = ("sum", "max", "min")

    def obstacle(self) -> str:
        """Return the missing part of Open MPI and the remedy; empty if nothing is missing."""
        if shutil.which("mpirun") is None:
            return explain("openmpi without mpirun", "Open MPI", INSTALL)
        try:
            ctypes.CDLL(LIBRARY)
        except OSError as error:
            return explain(f"openmpi: {error}", f"{LIBRARY}", INSTALL)
        return ""

    @contextlib.asynccontextmanager
    async def on_lab(self, lab: Lab, job: Job) -> AsyncIterator[dict[str, Any]]:
        """Write the launcher for this lab, and make a folder for Open MPI's temporary files."""
        with tempfile.TemporaryDirectory(prefix="mpi-") as folder:  # short: it holds Unix sockets
            nodes = {job.addresses[job.planes[0]][rank]: host for rank, host in enumerate(lab.topology.hosts)}
            agent = Path(folder) / "enter"
            _write_script(agent, entering({node: lab.run_in(host, []) for node, host in nodes.items()}))
            networks = [lab.topology.plane(plane).network for plane in job.planes]
            command = ["mpirun", *OPTIONS, "--mca", "btl_tcp_if_include", ",".join(networks)]
            command += ["--mca", "orte_tmpdir_base", folder, "--mca", "plm_rsh_agent", str(agent)]
            command += ["--host", ",".join(f"{node}:1" for node in nodes), "-np", str(job.size)]
            _write_script(Path(job.out) / LAUNCHER, f'exec {shlex.join(command)} "$@"\n')
            yield {}

    def command(self, job_file: Path, rank: int) -> list[str]:
        """Return the command of rank 0, which starts the others."""
        if rank:
            return []
        worker = [sys.executable, "-m", "railweave.experiments.worker", str(job_file)]
        ranked = ["sh", "-c", f'exec {shlex.join(worker)} "${RANK}"']
        return [str(job_file.parent / LAUNCHER), *ranked]

    def connect(self, job: Job, rank: int) -> Endpoint:
        """Join the world."""
        made = _World()
        if (made.rank, made.size) != (rank, job.size):
            raise OptionError(
                f"mpirun made this rank {made.rank} of {made.size}",
                f"rank {rank} of {job.size}",
                "check Open MPI's version",
            )
        return made


def entering(nodes: Mapping[str, Sequence[str]]) -> str:
    """Return a script that runs a shell's command line on the node with a given address, as ssh does.

    The script gives each node a different host name, because daemons with one name count as one node.
    """
    cases = "".join(
        f'  {node}) set -- {shlex.join(enter)} unshare --uts sh -c "hostname node-{number} && $*" ;;\n'
        for number, (node, enter) in enumerate(nodes.items())
    )
    cases += '  *) echo "there is no node $node" >&2; exit 1 ;;\n'
    return f'node=$1; shift\ncase $node in\n{cases}esac\nexec "$@"\n'


def _write_script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}")
    path.chmod(0o755)


class _World(Endpoint):
    """MPI_COMM_WORLD. An error ends the whole job, which is MPI's default."""

    def __init__(self) -> None:
        self._mpi = ctypes.CDLL(LIBRARY, mode=os.RTLD_GLOBAL | os.RTLD_NOW)  # its plugins need its symbols
        self._types = {"f": self._handle("ompi_mpi_float"), "i": self._handle("ompi_mpi_int")}
        self._ops = {op: self._handle(f"ompi_mpi_op_{op}") for op in Kind.ops}
        self._world = self._handle("ompi_mpi_comm_world")
        self._mpi.MPI_Init(None, None)
        self.rank, self.size = self._number("MPI_Comm_rank"), self._number("MPI_Comm_size")

    def _handle(self, name: str) -> ctypes.c_void_p:
        return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(self._mpi, name)))

    def _number(self, function: str) -> int:
        number = ctypes.c_int()
        getattr(self._mpi, function)(self._world, ctypes.byref(number))
        return number.value

    def all_reduce(self, given: Array, out: Array, op: str) -> None:
        kind, source = self._types[out.dtype.char], IN_PLACE if given is out else _memory(given)
        self._mpi.MPI_Allreduce(source, _memory(out), out.size, kind, self._ops[op], self._world)

    def reduce_scatter(self, given: Array, out: Array, op: str) -> None:
        kind = self._types[out.dtype.char]
        self._mpi.MPI_Reduce_scatter_block(
            _memory(given), _memory(out), out.size, kind, self._ops[op], self._world
        )

    def all_gather(self, given: Array, out: Array) -> None:
        kind = self._types[out.dtype.char]
        self._mpi.MPI_Allgather(_memory(given), given.size, kind, _memory(out), given.size, kind, self._world)

    def broadcast(self, out: Array, root: int) -> None:
        self._mpi.MPI_Bcast(_memory(out), out.size, self._types[out.dtype.char], root, self._world)

    def barrier(self) -> None:
        self._mpi.MPI_Barrier(self._world)

    def versions(self) -> Mapping[str, str]:
        text, length = ctypes.create_string_buffer(VERSION_BYTES), ctypes.c_int()
        self._mpi.MPI_Get_library_version(text, ctypes.byref(length))
        return {"openmpi": text.value.decode().split(",")[0].removeprefix("Open MPI v")}

    def close(self) -> None:
        self._mpi.MPI_Finalize()


IN_PLACE = ctypes.c_void_p(1)  # MPI_IN_PLACE


def _memory(array: Array) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
