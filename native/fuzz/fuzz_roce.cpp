// SPDX-License-Identifier: Apache-2.0
// The RoCEv2 parsers and a queue pair against hostile input. The first byte chooses the kind of the rest: a
// frame, a super-packet to be cut, a control message of the RDMA rail, or packets for a queue pair with
// pending requests. Buffers are blocks of the heap, so that the sanitizer sees accesses out of bounds.
#include <cstdint>
#include <vector>

#include "fuzz/script.hpp"
#include "rails/rdma_message.hpp"
#include "roce/frame.hpp"
#include "roce/queue_pair.hpp"

namespace {

using namespace railweave;
using namespace railweave::roce;

constexpr std::size_t kRegion = 3000;
constexpr std::uint32_t kQpn = 0x222;

void open_and_parse(Bytes frame, const Offload& offload = {}) {
  OpenedFrames frames(frame, offload);
  while (const auto* opened = frames.next()) {
    if (const auto packet = parse(opened->transport)) {
      std::vector<std::byte> again(written_size(*packet));
      require(write(*packet, again) == again.size());
    }
  }
}

void open_super_packet(Bytes input) {
  if (input.size() < 2) return;
  Offload offload{};
  offload.gso_type = kGsoUdp;
  offload.gso_size = load_be<std::uint16_t>(input.data());
  open_and_parse(input.subspan(2), offload);
}

void read_control(Bytes message) {
  if (!decode_header(message)) return;
  decode_clear_to_send(message);
  if (const auto whole = decode_short(message)) require(decode_short(encode(*whole)).has_value());
}

struct Target {
  MemoryRegions memory;
  std::vector<std::byte> writable = std::vector<std::byte>(kRegion);
  std::vector<std::byte> source = std::vector<std::byte>(5000);
  std::vector<std::byte> receives[4] = {std::vector<std::byte>(1500), std::vector<std::byte>(0),
                                        std::vector<std::byte>(1024), std::vector<std::byte>(7)};
  std::uint32_t write_key = memory.add(writable, kQpn);
  QueuePair queue_pair{
      {.qpn = kQpn, .peer_qpn = 0x111, .send_psn = kPsnMask - 2, .receive_psn = kPsnMask - 1}, memory};

  Target() {
    queue_pair.post({.id = 1, .operation = Operation::kWrite, .local = source, .immediate = 7});
    queue_pair.post({.id = 2, .operation = Operation::kSend, .local = source});
    for (std::size_t i = 0; i < 4; ++i) queue_pair.post_receive({.id = i, .buffer = receives[i]});
  }
};

/// Returns a packet with a number near the expected number and a size near the path MTU. The key is right or
/// nearly right.
Packet next_packet(Script& script, const Target& target, std::uint32_t& expected,
                   const std::vector<std::byte>& payload) {
  static constexpr std::size_t kSizes[] = {1024, 0, 4, 1023, 1025, 952, 1, 2048};
  Packet packet;
  packet.opcode = static_cast<Opcode>(script.next() % kShapes.size());
  packet.qpn = kQpn;
  const bool answers = packet.shape().operation >= Operation::kReadResponse;
  const int offset = static_cast<std::int8_t>(script.next()) / (answers ? 4 : 32);
  packet.psn = ((answers ? kPsnMask - 2 : expected) + static_cast<std::uint32_t>(offset)) & kPsnMask;
  if (!answers && offset == 0) ++expected;
  packet.payload = Bytes(payload).first(kSizes[script.next() % 8]);
  packet.ack_request = true;
  packet.aeth = {static_cast<AckKind>(script.next() & 3), static_cast<std::uint8_t>(script.next() & 31), 0};
  const std::uint8_t key_flip = script.next();
  packet.reth = {.address = reinterpret_cast<std::uintptr_t>(target.writable.data()) +
                            static_cast<std::uint64_t>(script.next()) * 16 -
                            static_cast<std::uint64_t>(script.next()),
                 .rkey = target.write_key ^ (key_flip > 0xf0 ? key_flip : 0u),
                 .length = static_cast<std::uint32_t>(script.next()) * 16};
  return packet;
}

void run(Script script) {
  Target target;
  const std::vector<std::byte> payload(2048, std::byte{0x99});
  std::vector<std::byte> buffer(1024 + kMaxOverhead);
  std::uint32_t expected = kPsnMask - 1;
  for (Time now = 0; !script.ended(); now += kMillisecond) {
    const std::uint8_t action = script.next();
    if (action > 0xfa) target.memory.remove(target.write_key);
    if (action > 0xf4 && action <= 0xfa) target.memory.release_buffer(target.write_key);
    if (action > 0xf0 && action <= 0xf4) target.queue_pair.release_buffers();
    if (action & 1) target.queue_pair.expire(now);
    target.queue_pair.receive(next_packet(script, target, expected, payload), now);
    for (int limit = 200; limit > 0; --limit) {
      const std::size_t size = target.queue_pair.transmit(buffer, now);
      if (size == 0) break;
      require(size <= buffer.size() && parse(Bytes(buffer).first(size)).has_value());
    }
    while (target.queue_pair.poll()) continue;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const Bytes input = std::as_bytes(std::span(data + 1, size - 1));
  switch (data[0] % 8) {
    case 0:
      open_and_parse(input);
      break;
    case 1:
      open_super_packet(input);
      break;
    case 2:
      read_control(input);
      break;
    default:
      run(Script(data + 1, size - 1));
  }
  return 0;
}
