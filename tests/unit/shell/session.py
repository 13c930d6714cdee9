# SPDX-License-Identifier: Apache-2.0
"""A session of p4runtime-shell in its own interpreter: all operations of its entities, and refusals.

Arguments: address, device id, P4Info, BMv2 JSON. A line "send" asks for a frame on port 5 of the switch.
"""

import sys

from p4runtime_sh import shell
from p4runtime_sh.p4runtime import P4RuntimeException, P4RuntimeWriteException

HOST = "02:00:00:00:00:01"
DEADLINE_S = 15


def refused(action, code):
    codes = []
    try:
        action()
    except P4RuntimeWriteException as error:
        codes = [failure.canonical_code for _, failure in error.errors]
    assert codes == [code], f"{action}: {codes}"


def members_and_groups():
    for number in (1, 2):
        member = shell.ActionProfileMember("next_hops")(member_id=number, action="to_port")
        member.action["port"] = str(number)
        member.insert()
    group = shell.ActionProfileGroup("next_hops")(group_id=1)
    group.add(1, 2)
    group.add(2, 1)
    group.insert()
    entry = shell.TableEntry("spread")(group_id=1)
    entry.match["destination"] = "02:00:00:00:00:00/24"
    entry.insert()
    refused(group.delete, 9)  # FAILED_PRECONDITION
    assert len(list(shell.ActionProfileMember("next_hops").read())) == 2
    [read] = shell.ActionProfileGroup("next_hops").read()
    assert [(m.member_id, m.weight) for m in read.members] == [(1, 2), (2, 1)]
    entry.delete()
    group.delete()
    for member in shell.ActionProfileMember("next_hops").read():
        member.delete()


def one_shot():
    entry = shell.TableEntry("spread")
    entry.match["destination"] = "02:00:00:00:00:00/24"
    action = shell.Action("to_port")
    action["port"] = "3"
    entry.oneshot = shell.Oneshot("spread")
    entry.oneshot.add(action, weight=1)
    entry.insert()
    [read] = shell.TableEntry("spread").read()
    assert read.oneshot.actions[0].weight == 1
    entry.delete()


def entries():
    entry = shell.TableEntry("hosts")(action="host_port")
    entry.match["destination"] = HOST
    entry.action["port"] = "3"
    entry.meter_config.cir = 10
    entry.meter_config.cburst = 20
    entry.meter_config.pir = 30
    entry.meter_config.pburst = 40
    entry.insert()
    refused(entry.insert, 6)  # ALREADY_EXISTS
    [meter] = shell.DirectMeterEntry("hosts_meter").read()
    assert meter.pburst == 40
    meter.clear_config()
    meter.modify()
    counter = shell.DirectCounterEntry("hosts_counter")
    counter.table_entry.match["destination"] = HOST
    counter.packet_count = 7
    counter.modify()
    [read] = shell.DirectCounterEntry("hosts_counter").read()
    assert read.packet_count == 7
    entry.action["port"] = "4"
    entry.modify()
    entry.delete()
    refused(entry.delete, 5)  # NOT_FOUND

    policy = shell.TableEntry("policy")(action="drop", priority=5)
    policy.match["marked"] = "1"
    policy.match["ingress"] = "300"
    policy.match["type"] = "0x800&&&0xff00"
    policy.match["class"] = "3..9"
    policy.insert()
    [read] = shell.TableEntry("policy").read()
    assert read.priority == 5
    policy.delete()


def arrays():
    counter = shell.CounterEntry("arrivals")
    counter.index = 2
    counter.packet_count = 9
    counter.modify()
    assert [cell.packet_count for cell in shell.CounterEntry("arrivals").read()][2] == 9
    meter = shell.MeterEntry("rates")
    meter.index = 3
    meter.cir, meter.cburst, meter.pir, meter.pburst = 1, 2, 3, 4
    meter.modify()
    assert [cell.cir for cell in shell.MeterEntry("rates").read()][3] == 1
    counter.index = 8
    refused(counter.modify, 11)  # OUT_OF_RANGE


def replication():
    group = shell.MulticastGroupEntry(4)
    group.add(1, 1).add(2, 2)
    group.insert()
    [read] = shell.MulticastGroupEntry().read()
    assert [(r.egress_port, r.instance) for r in read.replicas] == [(1, 1), (2, 2)]
    group.delete()
    session = shell.CloneSessionEntry(5)
    session.add(3, 0)
    session.insert()
    session.delete()


def packets_and_digests():
    packets, digests = shell.PacketIn(), shell.DigestList()
    digest = shell.DigestEntry("learned_t")
    digest.max_list_size = 1
    digest.insert()
    default = shell.TableEntry("sources")(action="learn", is_default=True)
    default.modify()
    policy = shell.TableEntry("policy")(action="to_controller", priority=1)
    policy.match["marked"] = "0"
    policy.action["reason"] = "9"
    policy.insert()
    print("send", flush=True)
    packet = packets.packet_in_queue.get(timeout=DEADLINE_S).packet
    assert packet.payload.endswith(b"from the wire"), packet
    assert [m.value for m in packet.metadata] == [b"\5", b"\x09"]
    heard = digests.digest_list_queue.get(timeout=DEADLINE_S).digest
    assert heard.data[0].struct.members[1].bitstring == b"\5"
    out = shell.PacketOut(b"to the wire".rjust(60, b"."))
    out.metadata["egress_port"] = "6"
    out.metadata["color"] = "0"
    out.send()
    policy.delete()


def main():
    address, device, p4info, program = sys.argv[1:]
    config = shell.FwdPipeConfig(p4info, program)
    shell.setup(int(device), address, (0, 7), config=config, verbose=False)
    try:
        assert shell.APIVersion().startswith("1."), shell.APIVersion()
        for part in (entries, members_and_groups, one_shot, arrays, replication, packets_and_digests):
            part()
            print(part.__name__, flush=True)
    except P4RuntimeException as error:
        sys.exit(str(error))
    finally:
        shell.teardown()


if __name__ == "__main__":
    main()
