// SPDX-License-Identifier: Apache-2.0
#include "recovery/datagram.hpp"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "recovery/wire.hpp"

namespace railweave::recovery {
namespace {

enum class Kind : std::uint8_t { kBeat = 0, kReport = 1, kOrder = 2, kFarewell = 3 };

namespace flag {
constexpr std::uint8_t kUnfit = 1;
constexpr std::uint8_t kBroken = 2;
constexpr std::uint8_t kActive = 1;
}  // namespace flag

Kind kind_of(const Body& body) {
  if (const auto* stamped = std::get_if<Stamped>(&body))
    return std::holds_alternative<Report>(stamped->state) ? Kind::kReport : Kind::kOrder;
  return std::holds_alternative<Beat>(body) ? Kind::kBeat : Kind::kFarewell;
}

// --- writing ---

void put(Writer& to, const std::vector<std::uint64_t>& numbers) {
  const std::size_t count = std::min(numbers.size(), kMaxMarks);
  to.put(static_cast<std::uint8_t>(count));
  for (std::size_t i = 0; i < count; ++i) to.put(numbers[i]);
}

void put(Writer& to, const Beat& beat) {
  to.put(beat.tick);
  to.put(beat.first);
  for (const Standing& rank : beat.standings) {
    to.put(rank.completed);
    to.put(rank.submitted);
    to.put(rank.tick);
  }
}

void put(Writer& to, const Farewell& farewell) {
  to.put(farewell.rank);
  to.put(static_cast<std::uint8_t>(farewell.dead));
  to.text(farewell.reason, kMaxReason);
}

void put(Writer& to, const Report& report, std::size_t rails) {
  to.put(report.epoch);
  for (const ChannelReport& channel : report.channels) {
    to.put(static_cast<std::uint8_t>(channel.state));
    to.put(
        static_cast<std::uint8_t>((channel.unfit ? flag::kUnfit : 0) | (channel.broken ? flag::kBroken : 0)));
    to.put(channel.incarnation);
    to.text(channel.reason, kMaxReason);
    put(to, channel.marks);
  }
  to.put(static_cast<std::uint8_t>(report.status.has_value()));
  if (!report.status) return;
  to.put(report.status->attempt);
  to.put(report.status->position.submitted);
  for (std::size_t rail = 0; rail < rails; ++rail) {
    to.put(report.status->position.main[rail]);
    to.put(report.status->position.repair[rail]);
  }
}

void put(Writer& to, const Reach& reach) {
  to.put(reach.done);
  to.put(static_cast<std::uint16_t>(reach.rank));
  to.put(reach.least);
}

void put(Writer& to, const Order& order, std::size_t rails) {
  to.put(order.committed.epoch);
  to.put(static_cast<std::uint16_t>(order.committed.alive));
  to.put(order.committed.boundary);
  for (std::size_t rail = 0; rail < rails; ++rail) {
    put(to, order.committed.main[rail]);
    put(to, order.committed.repair[rail]);
  }
  for (const ChannelOrder& channel : order.channels) {
    to.put(static_cast<std::uint8_t>(channel.active ? flag::kActive : 0));
    to.put(channel.incarnation);
    to.text(channel.reason, kMaxReason);
    put(to, channel.bases);
  }
  to.put(static_cast<std::uint8_t>(order.proposal.has_value()));
  if (!order.proposal) return;
  to.put(order.proposal->attempt);
  to.put(static_cast<std::uint16_t>(order.proposal->alive));
}

// --- reading ---

void get(Reader& from, std::vector<std::uint64_t>& numbers) {
  numbers.resize(from.get<std::uint8_t>(kMaxMarks));
  for (auto& number : numbers) number = from.get<std::uint64_t>();
}

RailSet get_rails(Reader& from, const Shape& shape) { return from.get<std::uint16_t>(all_of(shape.rails)); }

Beat get_beat(Reader& from, const Shape& shape) {
  Beat beat{.tick = from.get<std::uint32_t>(),
            .first = from.get<std::uint16_t>(static_cast<std::uint64_t>(shape.world_size - 1))};
  beat.standings.resize(std::min(kWindow, static_cast<std::size_t>(shape.world_size)));
  for (Standing& rank : beat.standings) {
    rank.completed = from.get<std::uint32_t>();
    rank.submitted = from.get<std::uint32_t>();
    rank.tick = from.get<std::uint32_t>();
  }
  return beat;
}

ChannelReport get_channel_report(Reader& from) {
  ChannelReport channel{.state = static_cast<ChannelState>(from.get<std::uint8_t>(kChannelStates - 1))};
  const auto flags = from.get<std::uint8_t>(flag::kUnfit | flag::kBroken);
  channel.unfit = (flags & flag::kUnfit) != 0;
  channel.broken = (flags & flag::kBroken) != 0;
  if (channel.broken && !channel.unfit) from.refuse();
  channel.incarnation = from.get<std::uint32_t>();
  channel.reason = from.text(kMaxReason);
  get(from, channel.marks);
  return channel;
}

Report get_report(Reader& from, const Shape& shape) {
  Report report{.epoch = from.get<std::uint32_t>()};
  for (std::size_t rail = 0; rail < shape.rails; ++rail) report.channels.push_back(get_channel_report(from));
  if (from.get<std::uint8_t>(1) == 0) return report;
  Status status{.attempt = from.get<std::uint32_t>()};
  status.position.submitted = from.get<std::uint32_t>();
  for (std::size_t rail = 0; rail < shape.rails; ++rail) {
    status.position.main.push_back(from.get<std::uint32_t>());
    status.position.repair.push_back(from.get<std::uint32_t>());
  }
  report.status = std::move(status);
  return report;
}

Reach get_reach(Reader& from, const Shape& shape) {
  Reach reach{.done = from.get<std::uint32_t>()};
  reach.rank = from.get<std::uint16_t>(static_cast<std::uint64_t>(shape.world_size - 1));
  reach.least = from.get<std::uint32_t>(reach.done);
  return reach;
}

Order get_order(Reader& from, const Shape& shape) {
  Order order;
  order.committed.epoch = from.get<std::uint32_t>();
  order.committed.alive = get_rails(from, shape);
  if (order.committed.alive == 0) from.refuse();
  order.committed.boundary = from.get<std::uint32_t>();
  for (std::size_t rail = 0; rail < shape.rails; ++rail) {
    order.committed.main.push_back(get_reach(from, shape));
    order.committed.repair.push_back(get_reach(from, shape));
  }
  for (std::size_t rail = 0; rail < shape.rails; ++rail) {
    ChannelOrder channel{};
    channel.active = from.get<std::uint8_t>(flag::kActive) != 0;
    channel.incarnation = from.get<std::uint32_t>();
    channel.reason = from.text(kMaxReason);
    get(from, channel.bases);
    order.channels.push_back(std::move(channel));
  }
  if (from.get<std::uint8_t>(1) == 0) return order;
  const auto attempt = from.get<std::uint32_t>();
  order.proposal = {.attempt = attempt, .alive = get_rails(from, shape)};
  if (order.proposal->alive == 0) from.refuse();
  return order;
}

Stamp get_stamp(Reader& from) {
  const auto serial = from.get<std::uint32_t>();
  const auto seen = from.get<std::uint32_t>();
  return {.serial = serial, .seen = seen, .answer = from.get<std::uint8_t>(1) != 0};
}

Farewell get_farewell(Reader& from, const Shape& shape) {
  const auto rank = from.get<std::uint16_t>(static_cast<std::uint64_t>(shape.world_size - 1));
  const bool dead = from.get<std::uint8_t>(1) != 0;
  return {.rank = rank, .dead = dead, .reason = from.text(kMaxReason)};
}

Body get_body(Reader& from, Kind kind, const Shape& shape) {
  switch (kind) {
    case Kind::kBeat:
      return get_beat(from, shape);
    case Kind::kReport: {
      const Stamp stamp = get_stamp(from);
      return Stamped{stamp, get_report(from, shape)};
    }
    case Kind::kOrder: {
      const Stamp stamp = get_stamp(from);
      return Stamped{stamp, get_order(from, shape)};
    }
    case Kind::kFarewell:
      return get_farewell(from, shape);
  }
  from.refuse();
  return Farewell{};
}

}  // namespace

void encode(const Datagram& datagram, const Shape& shape, std::vector<std::byte>& to) {
  Writer writer(to);
  writer.put(kVersion);
  writer.put(shape.token);
  writer.put(static_cast<std::uint8_t>(kind_of(datagram.body)));
  writer.put(datagram.sender);
  writer.put(datagram.rail);
  if (const auto* beat = std::get_if<Beat>(&datagram.body)) return put(writer, *beat);
  if (const auto* farewell = std::get_if<Farewell>(&datagram.body)) return put(writer, *farewell);
  const auto* stamped = std::get_if<Stamped>(&datagram.body);
  writer.put(stamped->stamp.serial);
  writer.put(stamped->stamp.seen);
  writer.put(static_cast<std::uint8_t>(stamped->stamp.answer));
  std::visit([&](const auto& state) { put(writer, state, shape.rails); }, stamped->state);
}

std::variant<Datagram, Refusal> decode(Bytes from, const Shape& shape) {
  if (from.size() > kMaxDatagram) return Refusal::kMalformed;
  Reader reader(from);
  const auto version = reader.get<std::uint8_t>();
  const auto token = reader.get<std::uint64_t>();
  if (reader.refused() || token != shape.token) return Refusal::kStranger;
  if (version != kVersion) return Refusal::kMalformed;
  const auto kind = static_cast<Kind>(reader.get<std::uint8_t>(static_cast<std::uint8_t>(Kind::kFarewell)));
  Datagram datagram{.sender = reader.get<std::uint16_t>(static_cast<std::uint64_t>(shape.world_size - 1)),
                    .rail = reader.get<std::uint8_t>(shape.rails - 1)};
  if (reader.refused()) return Refusal::kMalformed;
  datagram.body = get_body(reader, kind, shape);
  if (!reader.whole()) return Refusal::kMalformed;
  return datagram;
}

}  // namespace railweave::recovery
