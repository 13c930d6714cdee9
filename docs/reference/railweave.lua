-- SPDX-License-Identifier: Apache-2.0
-- Wireshark dissector for railweave's in-network aggregation packets (docs/reference/wire-format.md).
-- Use: wireshark -X lua_script:docs/reference/railweave.lua capture.pcap, or copy it into Wireshark's plugin folder.

local ina = Proto("ina", "railweave in-network aggregation")

local kinds = { [0] = "CONTRIBUTE", [1] = "RESULT", [2] = "PROBE", [3] = "SPREAD", [4] = "FETCH" }
local ops = { [0] = "SUM", [1] = "MAX" }
local SPREAD, FETCH = 3, 4
local HEADER_BYTES, CODE_BYTES, FETCH_BYTES = 16, 16, 30
local UDP_PORT = 5257

local f = ina.fields
f.version = ProtoField.uint8("ina.version", "Version", base.DEC, nil, 0xf0)
f.kind = ProtoField.uint8("ina.kind", "Kind", base.DEC, kinds, 0x0f)
f.op = ProtoField.uint8("ina.op", "Op", base.DEC, ops)
f.group = ProtoField.uint16("ina.group", "Group")
f.child = ProtoField.uint8("ina.child", "Child")
f.flags = ProtoField.uint8("ina.flags", "Flags", base.HEX)
f.retransmission = ProtoField.bool("ina.flags.retransmission", "Retransmission", 8, nil, 0x01)
f.nonfinite = ProtoField.bool("ina.flags.nonfinite", "Non-finite", 8, nil, 0x02)
f.overflow = ProtoField.bool("ina.flags.overflow", "Overflow", 8, nil, 0x04)
f.mismatch = ProtoField.bool("ina.flags.mismatch", "Mismatch", 8, nil, 0x08)
f.to_root = ProtoField.bool("ina.flags.to_root", "To root", 8, nil, 0x10)
f.owner = ProtoField.bool("ina.flags.owner", "Owner", 8, nil, 0x20)
f.last = ProtoField.bool("ina.flags.last", "Last", 8, nil, 0x40)
f.slot = ProtoField.uint16("ina.slot", "Slot number")
f.copy = ProtoField.uint16("ina.slot.copy", "Copy", base.DEC, nil, 0x0001)
f.round = ProtoField.uint32("ina.round", "Round")
f.mark = ProtoField.uint32("ina.mark", "Mark", base.HEX)
f.lane = ProtoField.int32("ina.lane", "Lane")
f.rank = ProtoField.uint16("ina.rank", "Source rank")
f.chunk = ProtoField.uint32("ina.chunk", "Chunk")
f.task = ProtoField.uint32("ina.task", "Task")
f.payload = ProtoField.bytes("ina.payload", "Payload")
f.origin = ProtoField.uint16("ina.origin", "Origin rank")
f.chunks = ProtoField.uint16("ina.chunks", "Chunks")
f.sender = ProtoField.uint16("ina.sender", "Sender's rank")
f.number = ProtoField.uint64("ina.number", "Number")
f.code = ProtoField.bytes("ina.code", "Code")

-- Add the fields of a packet for a slot (CONTRIBUTE, RESULT, PROBE). Return the end of the summary line.
local function chunk(buffer, root)
  root:add(f.slot, buffer(6, 2)):add(f.copy, buffer(6, 2))
  root:add(f.round, buffer(8, 4))
  root:add(f.mark, buffer(12, 4))
  local lanes = math.floor((buffer:len() - HEADER_BYTES) / 4)
  if lanes > 0 then
    local list = root:add(buffer(HEADER_BYTES, lanes * 4), string.format("Lanes: %d", lanes))
    for lane = 0, lanes - 1 do
      list:add(f.lane, buffer(HEADER_BYTES + 4 * lane, 4)):prepend_text(string.format("[%d] ", lane))
    end
  end
  return string.format("slot %d round %d %s, %d lanes", buffer(6, 2):uint(), buffer(8, 4):uint(),
    ops[buffer(1, 1):uint()] or "unknown op", lanes)
end

-- Add the fields of a packet for a rank's shard (SPREAD, FETCH). Return the end of the summary line.
local function shard(buffer, root, number)
  root:add(f.rank, buffer(6, 2))
  root:add(f.chunk, buffer(8, 4))
  root:add(f.task, buffer(12, 4))
  local bytes = buffer:len() - HEADER_BYTES
  local about = string.format("of rank %d chunk %d", buffer(6, 2):uint(), buffer(8, 4):uint())
  if number == FETCH and bytes >= FETCH_BYTES then
    root:add(f.origin, buffer(HEADER_BYTES, 2))
    root:add(f.chunks, buffer(HEADER_BYTES + 2, 2))
    root:add(f.sender, buffer(HEADER_BYTES + 4, 2))
    root:add(f.number, buffer(HEADER_BYTES + 6, 8))
    root:add(f.code, buffer(HEADER_BYTES + 14, CODE_BYTES))
    return about .. string.format(", %d chunks for rank %d", buffer(HEADER_BYTES + 2, 2):uint(),
      buffer(HEADER_BYTES, 2):uint())
  end
  local payload = math.max(bytes - CODE_BYTES, 0)
  if payload > 0 then
    root:add(f.payload, buffer(HEADER_BYTES, payload))
    root:add(f.code, buffer(HEADER_BYTES + payload, CODE_BYTES))
  end
  return about .. string.format(", %d bytes", payload)
end

function ina.dissector(buffer, packet, tree)
  if buffer:len() < HEADER_BYTES then return 0 end
  packet.cols.protocol = "INA"
  local root = tree:add(ina, buffer())
  root:add(f.version, buffer(0, 1))
  root:add(f.kind, buffer(0, 1))
  root:add(f.op, buffer(1, 1))
  root:add(f.group, buffer(2, 2))
  root:add(f.child, buffer(4, 1))
  local flags = root:add(f.flags, buffer(5, 1))
  for _, field in ipairs({ f.retransmission, f.nonfinite, f.overflow, f.mismatch, f.to_root, f.owner, f.last }) do
    flags:add(field, buffer(5, 1))
  end
  local number = buffer(0, 1):bitfield(4, 4)
  local more = (number == SPREAD or number == FETCH) and shard or chunk
  packet.cols.info = string.format("%s group %d child %d %s", kinds[number] or "unknown kind", buffer(2, 2):uint(),
    buffer(4, 1):uint(), more(buffer, root, number))
  return buffer:len()
end

DissectorTable.get("udp.port"):add(UDP_PORT, ina)
