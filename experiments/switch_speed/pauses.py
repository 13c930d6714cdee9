# SPDX-License-Identifier: Apache-2.0
"""`python -m railweave.experiments.switch_speed.pauses`: what a client that asks much costs the others.

A switch without interfaces serves P4Runtime; a thread of its process sends a packet at a time through the
engine, a client asks for the version again and again, and another process asks much. For each thing asked the
longest packet and the longest answer in a second are printed: the median over seconds and, in brackets, the
longest, beside those while nothing is asked. Both are sound only on a quiet machine with a core for each of
three processes: the times in which they get none are in them.
"""

from __future__ import annotations

import asyncio
import multiprocessing as mp
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event

import grpc
from finsy import P4Schema
from finsy.proto import U128, p4r, p4r_grpc

from railweave.experiments import statistics
from railweave.experiments.switch_speed.scenario import Scenario
from railweave.switch import pauses
from railweave.switch.p4runtime.batches import MAX_ATOMIC_UPDATES
from railweave.switch.p4runtime.server import listen
from railweave.switch.p4runtime.service import Service
from railweave.switch.pipeline import Pipeline

LANES = 64
SECONDS = 8.0  # for each thing asked
PROBE_S = 0.001
READY_S = 120.0
Config = p4r.SetForwardingPipelineConfigRequest
_SPAWN = mp.get_context("spawn")


class Probe:
    """Takes steps, and notes the longest of each second in milliseconds."""

    def __init__(self, step: Callable[[], object]) -> None:
        """Begin to take steps in a thread."""
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
            time.sleep(PROBE_S)

    def stop(self) -> str:
        """End; the median of the seconds' longest, and the longest of all."""
        self._ended = True
        self._thread.join()
        return (
            f"{statistics.median(list(self._longest.values())):6.1f} ({max(self._longest.values()):6.1f}) ms"
        )


def serve(address: str, pipe: Connection) -> None:
    """Be the switch: `pipe` is told that it serves, and answers each question with the longest packet."""
    pauses.keep_short()
    running: deque[Pipeline] = deque(maxlen=1)
    packet = Scenario(LANES).contribution(0, 0, 1)

    async def main() -> None:
        server = await listen(Service(1, running.append), address)
        await server.start()
        pipe.send(None)
        while await asyncio.to_thread(pipe.recv):
            probe = Probe(lambda: running[-1].native.inject(1, packet))
            await asyncio.to_thread(pipe.recv)
            pipe.send(await asyncio.to_thread(probe.stop))
        await server.stop(None)

    asyncio.run(main())


def ask(address: str, what: str, stop: Event) -> None:
    """Be the client that asks much, until told to stop."""
    program = Scenario(LANES).program
    config = P4Schema(program.p4info_path, program.json_path).get_pipeline_config()
    register = config.p4info.registers[0].preamble.id
    number = 0
    with grpc.insecure_channel(address) as channel:
        stub = p4r_grpc.P4RuntimeStub(channel)
        while not stop.is_set():
            number += 1
            if what == "all registers":
                request = p4r.ReadRequest(
                    device_id=1, entities=[p4r.Entity(register_entry=p4r.RegisterEntry())]
                )
                for _ in stub.Read(request):
                    if stop.is_set():
                        break
            elif what == "1,000 wildcards":
                entities = [p4r.Entity(table_entry=p4r.TableEntry())] * 1000
                list(stub.Read(p4r.ReadRequest(device_id=1, entities=entities)))
            elif what == "atomic batches":
                entry = p4r.RegisterEntry(register_id=register, index=p4r.Index(index=3))
                entry.data.bitstring = b"\1"
                update = p4r.Update(type=p4r.Update.MODIFY, entity=p4r.Entity(register_entry=entry))
                stub.Write(
                    p4r.WriteRequest(
                        device_id=1,
                        election_id=U128.encode(1),
                        atomicity=p4r.WriteRequest.DATAPLANE_ATOMIC,
                        updates=[update] * MAX_ATOMIC_UPDATES,
                    )
                )
            else:
                config.p4info.pkg_info.version = str(number)  # another program, with all of the state
                push(stub, config, Config.RECONCILE_AND_COMMIT)


def push(stub: p4r_grpc.P4RuntimeStub, config: p4r.ForwardingPipelineConfig, action: int) -> None:
    """Set the program, as the primary."""
    request = Config(device_id=1, election_id=U128.encode(1), action=action)  # type: ignore[arg-type]
    request.config.CopyFrom(config)
    stub.SetForwardingPipelineConfig(request, timeout=READY_S)


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        address = f"unix:{folder}/grpc"
        pipe, theirs = _SPAWN.Pipe()
        switch = _SPAWN.Process(target=serve, args=(address, theirs), daemon=True)
        switch.start()
        pipe.recv()
        with grpc.insecure_channel(address) as channel:
            stub = p4r_grpc.P4RuntimeStub(channel)
            hello = p4r.StreamMessageRequest()
            hello.arbitration.device_id = 1
            hello.arbitration.election_id.CopyFrom(U128.encode(1))
            ended = threading.Event()

            def stream() -> Iterator[p4r.StreamMessageRequest]:
                yield hello
                ended.wait()

            primary = stub.StreamChannel(stream())
            next(primary)
            program = Scenario(LANES).program
            push(
                stub,
                P4Schema(program.p4info_path, program.json_path).get_pipeline_config(),
                Config.VERIFY_AND_COMMIT,
            )
            for what in (
                "nothing",
                "all registers",
                "1,000 wildcards",
                "atomic batches",
                "RECONCILE_AND_COMMIT",
            ):
                measure(address, stub, pipe, what)
            ended.set()
            primary.cancel()
        pipe.send(False)
        switch.join()


def measure(address: str, stub: p4r_grpc.P4RuntimeStub, pipe: Connection, what: str) -> None:
    """One line."""
    stop = _SPAWN.Event()
    asker = _SPAWN.Process(target=ask, args=(address, what, stop), daemon=True)
    if what != "nothing":
        asker.start()
        time.sleep(2)  # until it has imported what it needs
    pipe.send(True)
    probe = Probe(lambda: stub.Capabilities(p4r.CapabilitiesRequest(device_id=1)))
    time.sleep(SECONDS)
    answer = probe.stop()
    pipe.send(False)
    packet = pipe.recv()
    print(f"{what:22} longest packet {packet}, longest answer to another {answer}", flush=True)
    if what != "nothing":
        stop.set()
        asker.join()


if __name__ == "__main__":
    main()
