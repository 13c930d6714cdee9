// SPDX-License-Identifier: Apache-2.0
#include "recovery/datagram.hpp"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "recovery/wire.hpp"

namespace railweave::recovery {
namespace {

enum class Kind : std::uint8_t { kHeartbeat = 0, kStatus = 1, kDecision = 2, kGoodbye = 3, kInquiry = 4 };

namespace flag {
constexpr std::uint8_t kUnfit = 1;
constexpr std::uint8_t kBroken = 2;
constexpr std::uint8_t kActive = 1;
}  // namespace flag

Kind kind_of(const Body& body) {
  if (const auto* stamped = std::get_if<Stamped>(&body))
    return std::holds_alternative<Status>(stamped->state) ? Kind::kStatus : Kind::kDecision;
  if (std::holds_alternative<Inquiry>(body)) return Kind::kInquiry;
  return std::holds_alternative<Heartbeat>(body) ? Kind::kHeartbeat : Kind::kGoodbye;
}

// --- writing ---

void put(Writer& to, const std::vector<std::uint64_t>& numbers) {
  const std::size_t count = std::min(numbers.size(), kMaxTrees);
  to.put(static_cast<std::uint8_t>(count));
  for (std::size_t i = 0; i < count; ++i) to.put(numbers[i]);
}

void put(Writer& to, const Heartbeat& heartbeat) {
  to.put(heartbeat.tick);
  to.put(heartbeat.first);
  for (const Standing& rank : heartbeat.standings) {
    to.put(rank.completed);
    to.put(rank.submitted);
    to.put(rank.tick);
  }
}

void put(Writer& to, const Goodbye& goodbye) {
  to.put(goodbye.rank);
  to.put(static_cast<std::uint8_t>(goodbye.dead));
  to.text(goodbye.reason, kMaxReason);
}

void put(Writer& to, const Status& status, std::size_t rails) {
  to.put(status.epoch);
  for (const ChannelStatus& channel : status.channels) {
    to.put(static_cast<std::uint8_t>(channel.state));
    to.put(
        static_cast<std::uint8_t>((channel.unfit ? flag::kUnfit : 0) | (channel.broken ? flag::kBroken : 0)));
    to.put(channel.incarnation);
    to.text(channel.reason, kMaxReason);
    put(to, channel.next_chunks);
  }
  to.put(static_cast<std::uint8_t>(status.prepared.has_value()));
  if (!status.prepared) return;
  to.put(status.prepared->attempt);
  to.put(status.prepared->position.submitted);
  for (std::size_t rail = 0; rail < rails; ++rail) {
    to.put(status.prepared->position.main[rail]);
    to.put(status.prepared->position.repair[rail]);
  }
}

void put(Writer& to, const Reach& reach) {
  to.put(reach.done);
  to.put(static_cast<std::uint16_t>(reach.rank));
  to.put(reach.least);
}

void put(Writer& to, const Decision& decision, std::size_t rails) {
  to.put(decision.committed.epoch);
  to.put(static_cast<std::uint16_t>(decision.committed.alive));
  to.put(decision.committed.boundary);
  for (std::size_t rail = 0; rail < rails; ++rail) {
    put(to, decision.committed.main[rail]);
    put(to, decision.committed.repair[rail]);
  }
  for (const ChannelDecision& channel : decision.channels) {
    to.put(static_cast<std::uint8_t>(channel.active ? flag::kActive : 0));
    to.put(channel.incarnation);
    to.text(channel.reason, kMaxReason);
    put(to, channel.bases);
  }
  to.put(static_cast<std::uint8_t>(decision.prepare.has_value()));
  if (!decision.prepare) return;
  to.put(decision.prepare->attempt);
  to.put(static_cast<std::uint16_t>(decision.prepare->alive));
}

// --- reading ---

void get(Reader& from, std::vector<std::uint64_t>& numbers) {
  numbers.resize(from.get<std::uint8_t>(kMaxTrees));
  for (auto& number : numbers) number = from.get<std::uint64_t>();
}

RailSet get_rails(Reader& from, const Shape& shape) { return from.get<std::uint16_t>(all_of(shape.rails)); }

Heartbeat get_beat(Reader& from, const Shape& shape) {
  Heartbeat heartbeat{.tick = from.get<std::uint32_t>(),
                      .first = from.get<std::uint16_t>(static_cast<std::uint64_t>(shape.world_size - 1))};
  heartbeat.standings.resize(std::min(kWindow, static_cast<std::size_t>(shape.world_size)));
  for (Standing& rank : heartbeat.standings) {
    rank.completed = from.get<std::uint32_t>();
    rank.submitted = from.get<std::uint32_t>();
    rank.tick = from.get<std::uint32_t>();
  }
  return heartbeat;
}

ChannelStatus get_channel_report(Reader& from) {
  ChannelStatus channel{.state = static_cast<ChannelState>(from.get<std::uint8_t>(kChannelStates - 1))};
  const auto flags = from.get<std::uint8_t>(flag::kUnfit | flag::kBroken);
  channel.unfit = (flags & flag::kUnfit) != 0;
  channel.broken = (flags & flag::kBroken) != 0;
  if (channel.broken && !channel.unfit) from.refuse();
  channel.incarnation = from.get<std::uint32_t>();
  channel.reason = from.text(kMaxReason);
  get(from, channel.next_chunks);
  return channel;
}

Status get_report(Reader& from, const Shape& shape) {
  Status status{.epoch = from.get<std::uint32_t>()};
  for (std::size_t rail = 0; rail < shape.rails; ++rail) status.channels.push_back(get_channel_report(from));
  if (from.get<std::uint8_t>(1) == 0) return status;
  Prepared prepared{.attempt = from.get<std::uint32_t>()};
  prepared.position.submitted = from.get<std::uint32_t>();
  for (std::size_t rail = 0; rail < shape.rails; ++rail) {
    prepared.position.main.push_back(from.get<std::uint32_t>());
    prepared.position.repair.push_back(from.get<std::uint32_t>());
  }
  status.prepared = std::move(prepared);
  return status;
}

Reach get_reach(Reader& from, const Shape& shape) {
  Reach reach{.done = from.get<std::uint32_t>()};
  reach.rank = from.get<std::uint16_t>(static_cast<std::uint64_t>(shape.world_size - 1));
  reach.least = from.get<std::uint32_t>(reach.done);
  return reach;
}

Decision get_order(Reader& from, const Shape& shape) {
  Decision decision;
  decision.committed.epoch = from.get<std::uint32_t>();
  decision.committed.alive = get_rails(from, shape);
  if (decision.committed.alive == 0) from.refuse();
  decision.committed.boundary = from.get<std::uint32_t>();
  for (std::size_t rail = 0; rail < shape.rails; ++rail) {
    decision.committed.main.push_back(get_reach(from, shape));
    decision.committed.repair.push_back(get_reach(from, shape));
  }
  for (std::size_t rail = 0; rail < shape.rails; ++rail) {
    ChannelDecision channel{};
    channel.active = from.get<std::uint8_t>(flag::kActive) != 0;
    channel.incarnation = from.get<std::uint32_t>();
    channel.reason = from.text(kMaxReason);
    get(from, channel.bases);
    decision.channels.push_back(std::move(channel));
  }
  if (from.get<std::uint8_t>(1) == 0) return decision;
  const auto attempt = from.get<std::uint32_t>();
  decision.prepare = {.attempt = attempt, .alive = get_rails(from, shape)};
  if (decision.prepare->alive == 0) from.refuse();
  return decision;
}

Stamp get_stamp(Reader& from) {
  const auto serial = from.get<std::uint32_t>();
  const auto seen = from.get<std::uint32_t>();
  return {.serial = serial, .seen = seen, .answer = from.get<std::uint8_t>(1) != 0};
}

Goodbye get_farewell(Reader& from, const Shape& shape) {
  const auto rank = from.get<std::uint16_t>(static_cast<std::uint64_t>(shape.world_size - 1));
  const bool dead = from.get<std::uint8_t>(1) != 0;
  return {.rank = rank, .dead = dead, .reason = from.text(kMaxReason)};
}

Body get_body(Reader& from, Kind kind, const Shape& shape) {
  switch (kind) {
    case Kind::kHeartbeat:
      return get_beat(from, shape);
    case Kind::kStatus: {
      const Stamp stamp = get_stamp(from);
      return Stamped{stamp, get_report(from, shape)};
    }
    case Kind::kDecision: {
      const Stamp stamp = get_stamp(from);
      return Stamped{stamp, get_order(from, shape)};
    }
    case Kind::kGoodbye:
      return get_farewell(from, shape);
    case Kind::kInquiry:
      return Inquiry{.answer = from.get<std::uint8_t>(1) != 0};
  }
  from.refuse();
  return Goodbye{};
}

void put(Writer& to, const Datagram& datagram, const Shape& shape) {
  to.put(kVersion);
  to.put(datagram.sequence);
  to.put(static_cast<std::uint8_t>(kind_of(datagram.body)));
  to.put(datagram.sender);
  to.put(datagram.rail);
  if (const auto* heartbeat = std::get_if<Heartbeat>(&datagram.body)) return put(to, *heartbeat);
  if (const auto* goodbye = std::get_if<Goodbye>(&datagram.body)) return put(to, *goodbye);
  if (const auto* inquiry = std::get_if<Inquiry>(&datagram.body))
    return to.put(static_cast<std::uint8_t>(inquiry->answer));
  const auto* stamped = std::get_if<Stamped>(&datagram.body);
  to.put(stamped->stamp.serial);
  to.put(stamped->stamp.seen);
  to.put(static_cast<std::uint8_t>(stamped->stamp.answer));
  std::visit([&](const auto& state) { put(to, state, shape.rails); }, stamped->state);
}

}  // namespace

Key key_of(const Secret& secret, int receiver) {
  return derive_key(secret, "recovery", static_cast<std::uint64_t>(receiver));
}

void append_code(std::vector<std::byte>& datagram, const Key& key) {
  const Mac code = authenticate(key, datagram);
  datagram.insert(datagram.end(), code.begin(), code.end());
}

void encode(const Datagram& datagram, const Shape& shape, const Key& key, std::vector<std::byte>& to) {
  Writer writer(to);
  put(writer, datagram, shape);
  append_code(to, key);
}

std::variant<Datagram, Refusal> decode(Bytes from, const Shape& shape, const Key& key) {
  if (from.size() < sizeof(Mac) || from.size() > kMaxDatagram) return Refusal::kStranger;
  const Bytes said = from.first(from.size() - sizeof(Mac));
  if (!verify(key, said, from.last(sizeof(Mac)))) return Refusal::kStranger;
  Reader reader(said);
  const auto version = reader.get<std::uint8_t>();
  if (version != kVersion) return Refusal::kMalformed;
  Datagram datagram{.sequence = reader.get<std::uint64_t>()};
  const auto kind = static_cast<Kind>(reader.get<std::uint8_t>(static_cast<std::uint8_t>(Kind::kInquiry)));
  datagram.sender = reader.get<std::uint16_t>(static_cast<std::uint64_t>(shape.world_size - 1));
  datagram.rail = reader.get<std::uint8_t>(shape.rails - 1);
  if (reader.refused()) return Refusal::kMalformed;
  datagram.body = get_body(reader, kind, shape);
  if (!reader.whole()) return Refusal::kMalformed;
  return datagram;
}

}  // namespace railweave::recovery
