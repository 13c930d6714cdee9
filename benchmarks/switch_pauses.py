# SPDX-License-Identifier: Apache-2.0
"""Pauses of packets and of other clients while a client sends heavy P4Runtime requests to a switch.

A switch without interfaces serves P4Runtime. A thread of its process sends single packets through the engine.
This process asks for the version again and again, and another one sends the heavy requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing as mp
import signal
import tempfile
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import grpc
from finsy import P4Schema
from finsy.proto import U128, p4r, p4r_grpc

from railweave.benchmarks.aggregation import Scenario
from railweave.benchmarks.harness import REPORT, OnPhase, Reading
from railweave.experiments.errors import ResultError
from railweave.switch import pauses
from railweave.switch.p4runtime.batches import MAX_ATOMIC_UPDATES
from railweave.switch.p4runtime.server import listen
from railweave.switch.p4runtime.service import Service
from railweave.switch.pipeline import Pipeline

LANES = 64
LIMIT = "a core for each of three processes; times in which a process gets no core are included"
NOTES = (
    "packet, answer: longest time of a packet in the engine, and of an answer to another client, in each "
    "second in which a client sends such requests.",
)
PAUSE_S = 0.001  # between two steps of a probe
NOTHING = "nothing"
REQUESTS = (NOTHING, "all registers", "1,000 wildcards", "atomic batches", "VERIFY_AND_COMMIT")
Config = p4r.SetForwardingPipelineConfigRequest
_SPAWN = mp.get_context("spawn")


async def measure(seconds: float, _: Path, on_phase: OnPhase) -> AsyncIterator[Reading]:
    """Measure the longest packet and the longest answer of each second, for each kind of request."""
    with tempfile.TemporaryDirectory() as folder:
        address = f"unix:{folder}/grpc"
        with _process(serve, address) as switch, grpc.insecure_channel(address) as channel:
            stub = p4r_grpc.P4RuntimeStub(channel)
            for request in REQUESTS:
                on_phase(request)
                with _process(send, address, request):
                    switch.send(True)
                    probe = Probe(lambda: stub.Capabilities(p4r.CapabilitiesRequest(device_id=1)))
                    await asyncio.sleep(seconds)
                    answers = probe.stop()
                    switch.send(False)
                    packets: list[float] = switch.recv()
                for name, longest in (("packet", packets), ("answer", answers)):
                    for milliseconds in longest:
                        yield Reading("pauses", {"requests": request}, {name: (milliseconds, "ms")})
                    yield Reading("pauses", {"requests": request}, {f"longest {name}": (max(longest), "ms")})


@contextlib.contextmanager
def _process(target: Callable[..., None], *arguments: str) -> Iterator[Connection]:
    """Start a process and wait until it is ready. Yield the other end of its pipe. Kill it at the end."""
    pipe, theirs = _SPAWN.Pipe()
    process = _SPAWN.Process(target=_without_sigint, args=(target, theirs, *arguments), daemon=True)
    process.start()
    theirs.close()  # so that recv() fails if the process ends
    try:
        pipe.recv()
        yield pipe
        if not process.is_alive():
            raise ResultError(f"{target.__name__} {arguments} has ended", "a process that goes on", REPORT)
    except EOFError:
        raise ResultError(f"{target.__name__} {arguments} has ended", "`ready`", REPORT) from None
    finally:
        process.kill()
        process.join()


def _without_sigint(target: Callable[..., None], *arguments: object) -> None:
    """Call in a process that its parent ends, also on Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    target(*arguments)


class Probe:
    """Repeats a step in a thread. Keeps the longest time of each second."""

    def __init__(self, step: Callable[[], object]) -> None:
        """Start the thread."""
        self._step, self._ended = step, False
        self._longest: dict[int, float] = {}
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended:
            start = time.perf_counter()
            self._step()
            taken, second = 1000 * (time.perf_counter() - start), int(start)
            self._longest[second] = max(self._longest.get(second, 0), taken)
            time.sleep(PAUSE_S)

    def stop(self) -> list[float]:
        """End the thread. Return the longest step of each second in milliseconds."""
        self._ended = True
        self._thread.join()
        return list(self._longest.values())


def serve(pipe: Connection, address: str) -> None:
    """Be the switch. A message on `pipe` starts the probe of packets, and the next one stops it."""
    pauses.keep_short()
    running: deque[Pipeline] = deque(maxlen=1)
    packet = Scenario(LANES).contribution(0, 0, 1)

    async def main() -> None:
        service = Service(1, running.append)
        await service.config.set(_program(Config.VERIFY_AND_COMMIT))
        server = await listen(service, address)
        await server.start()
        pipe.send(None)
        while True:
            await asyncio.to_thread(pipe.recv)
            probe = Probe(lambda: running[-1].native.inject(1, packet))
            await asyncio.to_thread(pipe.recv)
            pipe.send(await asyncio.to_thread(probe.stop))

    asyncio.run(main())


def send(pipe: Connection, address: str, request: str) -> None:
    """Be the primary client, and send such requests until the process is killed."""
    registers = p4r.ReadRequest(device_id=1, entities=[p4r.Entity(register_entry=p4r.RegisterEntry())])
    wildcards = p4r.ReadRequest(device_id=1, entities=[p4r.Entity(table_entry=p4r.TableEntry())] * 1000)
    program = _program(Config.VERIFY_AND_COMMIT)
    register = program.config.p4info.registers[0].preamble.id
    cell = p4r.RegisterEntry(register_id=register, index=p4r.Index(index=3))
    cell.data.bitstring = b"\1"
    update = p4r.Update(type=p4r.Update.MODIFY, entity=p4r.Entity(register_entry=cell))
    batch = p4r.WriteRequest(
        device_id=1,
        election_id=U128.encode(1),
        atomicity=p4r.WriteRequest.DATAPLANE_ATOMIC,
        updates=[update] * MAX_ATOMIC_UPDATES,
    )

    def hello() -> Iterator[p4r.StreamMessageRequest]:
        arbitration = p4r.MasterArbitrationUpdate(device_id=1, election_id=U128.encode(1))
        yield p4r.StreamMessageRequest(arbitration=arbitration)
        threading.Event().wait()

    with grpc.insecure_channel(address) as channel:
        stub = p4r_grpc.P4RuntimeStub(channel)
        primary = stub.StreamChannel(hello())  # as long as it is referenced
        next(primary)
        pipe.send(None)
        while True:
            if request == "all registers":
                list(stub.Read(registers))
            elif request == "1,000 wildcards":
                list(stub.Read(wildcards))
            elif request == "atomic batches":
                stub.Write(batch)
            elif request == "VERIFY_AND_COMMIT":
                stub.SetForwardingPipelineConfig(program)
            else:
                pipe.recv()


def _program(action: int) -> p4r.SetForwardingPipelineConfigRequest:
    artifact = Scenario(LANES).program
    config = P4Schema(artifact.p4info_path, artifact.json_path).get_pipeline_config()
    return Config(device_id=1, election_id=U128.encode(1), action=action, config=config)  # type: ignore[arg-type]
