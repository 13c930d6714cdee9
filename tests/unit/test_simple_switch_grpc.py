# SPDX-License-Identifier: Apache-2.0
"""The command line of BMv2's simple_switch_grpc in front of the embedded switch."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from railweave.switch import simple_switch_grpc
from railweave.switch.errors import SwitchError
from railweave.switch.options import SwitchOptions, Tls
from railweave.switch.targets import BMV2

ROOT = Path(__file__).parents[2]


def options(line: str) -> SwitchOptions:
    return simple_switch_grpc.options_of(simple_switch_grpc.parse(line.split()))


def test_the_line_of_p4lang_tutorials() -> None:
    line = (
        "-i 1@s1-eth1 -i 2@s1-eth2 --pcap /pcaps --nanolog ipc:///tmp/bm-0-log.ipc --device-id 0 "
        "build/basic.json --log-console --thrift-port 9090 "
        "-- --grpc-server-addr 0.0.0.0:50051 --cpu-port 510 --priority-queues 8"
    )
    assert options(line) == SwitchOptions(
        interfaces={1: "s1-eth1", 2: "s1-eth2"},
        grpc="0.0.0.0:50051",
        device_id=0,
        program=Path("build/basic.json"),
        pcap={1: Path("/pcaps"), 2: Path("/pcaps")},
        cpu_port=510,
        priority_queues=8,
        refuses_empty_config=True,
    )


def test_the_defaults_are_those_of_bmv2() -> None:
    assert options("--no-p4") == SwitchOptions({}, "0.0.0.0:9559", 0, refuses_empty_config=True)


def test_no_p4_wins_over_a_program() -> None:
    assert options("--no-p4 basic.json").program is None


@pytest.mark.parametrize(
    ("line", "folder"), [("--pcap -i 1@a --no-p4", "."), ("-i 1@a --pcap=x --no-p4", "x")]
)
def test_the_folder_of_captures_may_be_left_out(line: str, folder: str) -> None:
    assert options(line).pcap == {1: Path(folder)}


def test_device_ids_have_64_bits() -> None:
    assert options(f"--no-p4 --device-id {(1 << 64) - 1}").device_id == (1 << 64) - 1


def test_the_ca_of_clients_counts_only_if_clients_need_certificates() -> None:
    tls = "--no-p4 -- --grpc-server-ssl --grpc-server-cert c --grpc-server-key k --grpc-server-cacert a"
    assert options(tls).tls == Tls(Path("c"), Path("k"))
    assert options(f"{tls} --grpc-server-with-client-auth").tls == Tls(Path("c"), Path("k"), Path("a"))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("-i 1@s1", ["JSON", "--no-p4"]),
        ("--no-p4 --use-files 0", ["--use-files", "--help"]),
        ("--no-p4 -i 1", ["PORT@INTERFACE"]),
        ("--no-p4 -i 511@s1", ["511", "drop"]),
        ("--no-p4 -i 1@shm:", ["'shm:'", "shm:NAME"]),
        ("--no-p4 -i 1@shm:../x", ["'shm:../x'", "shm:NAME"]),
        ("--no-p4 --device-id -1", ["--device-id -1"]),
        ("--no-p4 --device-id one", ["--device-id", "one"]),
        (f"--no-p4 --device-id {1 << 64}", ["--device-id"]),
        ("--no-p4 --log-console --log-file x", ["--log-console", "--log-file"]),
        ("--no-p4 --log-level loud", ["--log-level", "loud"]),
        ("--no-p4 -- --cpu-port 0", ["--cpu-port 0"]),
        ("--no-p4 -- --drop-port 510", ["--drop-port 510", "511"]),
        ("--no-p4 -- --priority-queues 9", ["--priority-queues 9", "1…8"]),
        ("--no-p4 -i 3@s1 -- --cpu-port 3", ["--cpu-port 3", "s1"]),
        ("--no-p4 -- --grpc-server-ssl", ["--grpc-server-cert"]),
    ],
)
def test_what_it_cannot_do_is_refused_in_words(line: str, words: list[str]) -> None:
    with pytest.raises(SwitchError) as refusal:
        options(line)
    assert all(word in str(refusal.value) for word in words), refusal.value


def test_options_without_effect_are_named_and_thrift_has_a_substitute() -> None:
    line = "--no-p4 --device-id 7 --debugger --thrift-port 9090 --max-mc-groups 9 "
    line += "-- --grpc-server-addr 0.0.0.0:5005"
    ignored, thrift = simple_switch_grpc.notes(simple_switch_grpc.parse(line.split()))
    assert ignored.startswith("--max-mc-groups, --debugger: no effect")
    assert "railweave switch stats --grpc 127.0.0.1:5005 --device-id 7" in thrift


def test_the_topology_for_containerlab_starts_the_switch_on_its_links() -> None:
    topology = yaml.safe_load((ROOT / "examples/switch/two-hosts.clab.yml").read_text())["topology"]
    _, _, line = topology["nodes"]["s1"]["cmd"].rstrip("'").partition("exec simple_switch_grpc")
    ends = [end for link in topology["links"] for end in link["endpoints"] if end.startswith("s1:")]
    assert sorted(f"s1:{name}" for name in options(line).interfaces.values()) == sorted(ends)


def test_a_link_to_the_drop_in_is_not_bmv2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = tmp_path / simple_switch_grpc.NAME
    command.touch(0o755)
    link = tmp_path / "simple_switch_grpc"
    link.symlink_to(command)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert str(link) in (BMV2.missing() or "")
    link.unlink()
    link.touch(0o755)
    assert BMV2.missing() is None
