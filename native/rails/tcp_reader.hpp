// SPDX-License-Identifier: Apache-2.0
// Parser of a peer's stream of frames. It does no I/O: bytes go in, events come out.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <variant>
#include <vector>

#include "collectives/label.hpp"
#include "core/bytes.hpp"
#include "core/failure.hpp"
#include "rails/tcp_frame.hpp"

namespace railweave {

/// Payloads go directly into the owner's buffers. The owner reads into `room`, reports the size with
/// `filled`, and then takes events until `next` returns nothing.
class TcpReader {
 public:
  /// A message of `size` bytes follows. `next` repeats this event until `place` gives the message a buffer.
  struct MessageBegins {
    MessageLabel label;
    std::size_t size;
  };
  /// The message is complete.
  struct MessageEnds {};
  /// The peer is alive, and waits for the message with this label, unless the label has 0 elements.
  struct Heartbeat {
    MessageLabel awaited;
  };
  /// The peer gives up. `failure` is empty if the reason cannot be read.
  struct PeerFailed {
    std::optional<Failure> failure;
  };
  /// The peer sends nothing more.
  struct Goodbye {};
  /// The next frame is invalid, forged or damaged, or follows a goodbye. All later events are Malformed too.
  struct Malformed {};
  using Event = std::variant<MessageBegins, MessageEnds, Heartbeat, PeerFailed, Goodbye, Malformed>;

  /// `key` authenticates the peer's frames.
  explicit TcpReader(const Key& key) : codes_(key) {}

  /// Memory for the next bytes: the rest of the current payload, if it has a place, then the reader's own
  /// memory. Without such a payload the first part is empty. The two parts are never both empty.
  std::array<MutableBytes, 2> room();
  /// The first `size` bytes of `room` are filled.
  void filled(std::size_t size);
  /// The next event; nothing if the parser needs more bytes.
  std::optional<Event> next();
  /// Only after MessageBegins. `into` has the message's size, or is empty: then the message is discarded.
  void place(MutableBytes into);
  /// Discards the rest of the current message: its memory is the owner's again.
  void discard() { into_ = nullptr; }

 private:
  std::optional<Event> end_frame();
  void take_staged();

  static constexpr std::size_t kStaging = 16 * 1024;

  std::array<std::byte, kStaging> staging_;
  std::size_t staged_begin_ = 0;
  std::size_t staged_end_ = 0;
  StreamCodes codes_;
  FrameHeaderBytes raw_;               // the current header, with its code
  std::optional<FrameHeader> header_;  // of the current frame
  bool placed_ = false;                // its payload has a place, or is discarded
  std::byte* into_ = nullptr;          // place of the payload's rest; nullptr: discarded
  std::size_t payload_left_ = 0;
  std::uint32_t crc_ = 0;           // the register, over the payload so far
  std::vector<std::byte> failure_;  // payload of an abort frame
  bool ended_ = false;              // a goodbye has come
  bool malformed_ = false;
};

}  // namespace railweave
