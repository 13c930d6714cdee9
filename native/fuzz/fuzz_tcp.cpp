// SPDX-License-Identifier: Apache-2.0
// The reader of a TCP rail's stream against hostile bytes. The first byte seeds the cuts of the rest. The
// cuts must not change the events and messages that the reader finds. Frames get their codes and CRCs here,
// unless the first byte is 0. Messages are on the heap, so that the sanitizer sees accesses out of bounds.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "core/crc32.hpp"
#include "fuzz/script.hpp"
#include "rails/tcp_reader.hpp"

namespace {

using namespace railweave;

constexpr std::size_t kLargest = 4096;  // larger messages are thrown away

/// The events and messages that a reader found in a stream.
struct Heard {
  std::vector<std::string> events;
  std::vector<std::vector<std::byte>> messages;

  bool operator==(const Heard&) const = default;
};

class Listener {
 public:
  /// Takes at most `most` of the bytes. Returns their number.
  std::size_t feed(Bytes bytes, std::size_t most) {
    std::size_t fed = 0;
    for (const MutableBytes room : reader_.room()) {
      const std::size_t size = std::min({room.size(), bytes.size() - fed, most - fed});
      std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(fed), size, room.begin());
      fed += size;
    }
    require(fed > 0);
    reader_.filled(fed);
    while (!malformed_) {
      const auto event = reader_.next();
      if (!event) break;
      std::visit([this](const auto& what) { take(what); }, *event);
    }
    return fed;
  }
  bool malformed() const { return malformed_; }
  const Heard& heard() const { return heard_; }

 private:
  void take(const TcpReader::MessageBegins& message) {
    const auto again = reader_.next();  // the same event, until the message is placed
    require(again && std::holds_alternative<TcpReader::MessageBegins>(*again));
    require(message.size > 0);
    heard_.events.push_back("begins " + describe(message.label) + " " + std::to_string(message.size));
    kept_ = message.size <= kLargest;
    message_ = std::make_unique<std::vector<std::byte>>(kept_ ? message.size : 0);
    reader_.place(*message_);
  }
  void take(const TcpReader::MessageEnds&) {
    heard_.events.push_back("ends");
    if (kept_) heard_.messages.push_back(*message_);
    message_.reset();
  }
  void take(const TcpReader::Heartbeat& heartbeat) { heard_.events.push_back(describe(heartbeat.awaited)); }
  void take(const TcpReader::PeerFailed& failed) {
    heard_.events.push_back(failed.failure ? failed.failure->rail + failed.failure->message : "failed");
  }
  void take(const TcpReader::Goodbye&) { heard_.events.push_back("goodbye"); }
  void take(const TcpReader::Malformed&) {
    heard_.events.push_back("malformed");
    malformed_ = true;
  }

  TcpReader reader_{Key{}};
  Heard heard_;
  std::unique_ptr<std::vector<std::byte>> message_;
  bool kept_ = false;
  bool malformed_ = false;
};

template <typename Cut>
Heard listen(Bytes stream, const Cut& cut) {
  Listener listener;
  while (!stream.empty() && !listener.malformed()) stream = stream.subspan(listener.feed(stream, cut()));
  return listener.heard();
}

/// Returns the stream with the codes and CRCs of its frames, as an honest peer would send it.
std::vector<std::byte> coded(Bytes stream) {
  constexpr std::size_t kHead = kFrameHeaderSize - sizeof(Mac);
  std::vector<std::byte> out;
  StreamCodes codes{Key{}};
  while (stream.size() >= kHead) {
    FrameHeaderBytes header{};
    std::copy_n(stream.begin(), kHead, header.begin());
    stream = stream.subspan(kHead);
    auto frame = decode_frame_header(header.data());
    const Bytes payload = stream.first(frame ? std::min<std::size_t>(frame->length, stream.size()) : 0);
    if (frame && frame->type == FrameType::kData) {
      frame->crc = ~crc32_update(kCrcStart, payload);
      header = encode(*frame);
    }
    set_code(header, frame && frame->type == FrameType::kAbort ? payload : Bytes{}, codes);
    out.insert(out.end(), header.begin(), header.end());
    out.insert(out.end(), payload.begin(), payload.end());
    stream = stream.subspan(payload.size());
  }
  out.insert(out.end(), stream.begin(), stream.end());
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Bytes input(reinterpret_cast<const std::byte*>(data), size);
  decode_failure(input);  // RDMA rails give it the rest of a message, however short
  if (size < 1 + kHelloSize) return 0;
  decode_hello(input.data() + 1, 0, {});
  const Bytes raw = input.subspan(1);
  const auto stream = data[0] == 0 ? std::vector(raw.begin(), raw.end()) : coded(raw);
  std::minstd_rand random(data[0]);
  const Heard whole = listen(stream, [] { return ~std::size_t{0}; });
  const Heard cut = listen(stream, [&] { return 1 + random() % (data[0] + 1u); });
  require(whole == cut);
  return 0;
}
