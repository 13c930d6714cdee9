# SPDX-License-Identifier: Apache-2.0
"""`python -m railweave.experiments.bench_switch_io`: packets per second of the embedded switch, end to end.

`patch` sends to a peer that reflects, over a program that does nothing: every packet counted at the sender
crosses the switch twice. `aggregate` runs the aggregation program under `--workers` hosts in a closed loop:
a packet is a contribution, and as many results go out. Needs root.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from railweave.experiments.bench_engine.__main__ import configure, worker_ip, worker_mac
from railweave.p4src.artifacts import artifact
from railweave.switch.pipeline import Pipeline
from railweave.switch.ports import Ports

SLOTS = 480
VIRTUAL = "10.1.255.1"
CLONE_NEWNET = 0x40000000

_T = TypeVar("_T")


def in_namespace(name: str, call: Callable[[], _T]) -> _T:
    """Call in a thread that has entered the network namespace."""
    results: list[_T] = []

    def enter() -> None:
        with Path("/run/netns", name).open() as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")
        results.append(call())

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    return results[0]


def ip(*arguments: str) -> None:
    """Run `ip`."""
    subprocess.run(["ip", *arguments], check=True)


@contextlib.contextmanager
def network(hosts: int) -> Iterator[tuple[str, list[str]]]:
    """A switch's namespace with a link to each host's: names of both."""
    names = [f"rwio-{os.getpid()}-{i}" for i in range(hosts + 1)]
    with ExitStack() as stack:
        for name in names:
            ip("netns", "add", name)
            stack.callback(ip, "netns", "delete", name)
        for i, host in enumerate(names[1:]):
            ip(
                "-n",
                names[0],
                "link",
                "add",
                f"s{i + 1}",
                "type",
                "veth",
                "peer",
                "name",
                "eth0",
                "netns",
                host,
            )
            ip("-n", names[0], "link", "set", f"s{i + 1}", "up")
            mac = worker_mac(i).to_bytes(6, "big").hex(":")
            ip("-n", host, "link", "set", "eth0", "address", mac, "up")
            ip("-n", host, "address", "add", f"{address(i)}/16", "dev", "eth0")
            others = {address(j): worker_mac(j) for j in range(hosts)} | {VIRTUAL: 0x02_00_00_01_FF_01}
            for other, other_mac in others.items():
                if other != address(i):
                    at = ["lladdr", other_mac.to_bytes(6, "big").hex(":"), "dev", "eth0"]
                    ip("-n", host, "neighbour", "add", other, *at)
        yield names[0], names[1:]


def address(worker: int) -> str:
    """A worker's IPv4 address as text."""
    return ".".join(str(byte) for byte in worker_ip(worker).to_bytes(4, "big"))


@contextlib.contextmanager
def workers(namespaces: list[str], options: list[dict[str, Any]]) -> Iterator[list[subprocess.Popen[str]]]:
    """Worker processes, ready to start."""
    children = []
    try:
        for namespace, option in zip(namespaces, options, strict=True):
            command = [
                sys.executable,
                "-m",
                "railweave.experiments.bench_switch_io.worker",
                json.dumps(option),
            ]
            child = subprocess.Popen(
                ["ip", "netns", "exec", namespace, *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            children.append(child)
        for child in children:
            assert child.stdout  # noqa: S101
            child.stdout.readline()
        yield children
    finally:
        for child in children:
            child.kill()
            child.wait()


def measure(
    kind: str, program: bytes, prepare: Callable[[Pipeline], None], options: list[dict[str, Any]], limit: int
) -> dict[str, Any]:
    """Datagrams per second of all workers together, and what a received packet costs the switch."""
    with network(len(options)) as (switch, hosts):
        pipeline = Pipeline.load(program)
        prepare(pipeline)
        interfaces = {i + 1: f"s{i + 1}" for i in range(len(options))}

        def start() -> Ports:
            opened = Ports(interfaces, limit)
            opened.use(pipeline)
            opened.start()  # a thread looks at the interfaces of the namespace that it was started in
            return opened

        ports = in_namespace(switch, start)
        with workers(hosts, options) as children:
            began = thread_cpu_s()
            active = [c for c, o in zip(children, options, strict=True) if o["kind"] != "reflect"]
            for child in active:
                assert child.stdin  # noqa: S101
                child.stdin.write("\n")
                child.stdin.flush()
            results = [json.loads(child.stdout.readline() or "null") for child in active if child.stdout]
        cpu_s = thread_cpu_s() - began
        ports.stop()
        if None in results:
            for counters in ports.counters():
                print(counters, file=sys.stderr)
            raise SystemExit("a worker failed")
        packets = sum(counters.rx_packets for counters in ports.counters())
        return {
            "pps": round(sum(result.get("pps", 0.0) for result in results)),
            "switch_cpu_ns_per_packet": round(cpu_s * 1e9 / packets),
            "workers": results,
        }


def thread_cpu_s() -> float:
    """CPU time so far of the switch's packet thread: what a packet costs, whoever else uses the machine."""
    for task in Path("/proc/self/task").iterdir():
        if (task / "comm").read_text().strip() == "railweave-ports":
            return int((task / "schedstat").read_text().split()[0]) / 1e9
    return 0.0


def main() -> None:
    """Print one row per measurement."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["patch", "aggregate"])
    parser.add_argument("--lanes", type=int, default=256)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--segments", type=int, nargs="+", default=[1, 8, 40], help="datagrams per super-packet"
    )
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--latency", action="store_true", help="one datagram at a time instead")
    parser.add_argument("--super-packet-bytes", type=int, default=65535)
    parser.add_argument("--program", type=Path, help="BMv2 JSON that patches port 1 to 2")
    arguments = parser.parse_args()
    for segments in [1] if arguments.latency else arguments.segments:
        option = {
            "kind": "latency" if arguments.latency else "drive",
            "lanes": arguments.lanes,
            "slots": SLOTS,
            "segments": segments,
            "seconds": arguments.seconds,
        }
        if arguments.what == "patch":
            program = arguments.program.read_bytes()
            options = [
                option | {"worker": 0, "address": address(0), "port": 40000, "to": address(1)},
                option | {"worker": 1, "address": address(1), "port": 5257, "kind": "reflect"},
            ]
            results = measure("patch", program, lambda _: None, options, arguments.super_packet_bytes)
        else:
            program = artifact(arguments.lanes).json_path.read_bytes()
            count = arguments.workers
            options = [
                option | {"worker": i, "address": address(i), "port": 40000 + i, "to": VIRTUAL}
                for i in range(count)
            ]
            results = measure(
                "aggregate", program, partial(configure, workers=count), options, arguments.super_packet_bytes
            )
        row = {"what": arguments.what, "lanes": arguments.lanes, "segments": segments} | results
        print(json.dumps(row))


if __name__ == "__main__":
    main()
