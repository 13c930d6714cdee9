// SPDX-License-Identifier: Apache-2.0
// What a peer's stream says, frame by frame. No I/O: bytes go in, events come out.
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

/// Payload of messages goes straight to where the owner wants it. The owner reads into `room`, says how much
/// it was with `filled`, and then takes events until there is none.
class TcpReader {
 public:
  /// A message of `size` bytes follows. It is the next event again until `place` says where to.
  struct MessageBegins {
    MessageLabel label;
    std::size_t size;
  };
  /// All of it is in place.
  struct MessageEnds {};
  /// The peer lives, and waits for this, unless it is of 0 elements.
  struct Heartbeat {
    MessageLabel awaited;
  };
  /// The peer gives up; nothing if its reason cannot be read.
  struct PeerFailed {
    std::optional<Failure> failure;
  };
  /// The peer sends nothing more.
  struct Goodbye {};
  /// What comes is no frame, is a frame that the peer has not written, was damaged, or comes after a goodbye.
  /// Every later event is this one.
  struct Malformed {};
  using Event = std::variant<MessageBegins, MessageEnds, Heartbeat, PeerFailed, Goodbye, Malformed>;

  /// `key`: of the codes of the peer's frames.
  explicit TcpReader(const Key& key) : codes_(key) {}

  /// Where the next bytes go: the rest of the payload that is being received, if it has a place, then memory
  /// of the reader's own. The first is empty if there is no such payload; together they never are.
  std::array<MutableBytes, 2> room();
  /// So many bytes are there, from the front.
  void filled(std::size_t size);
  /// What has been said next; nothing: it takes more bytes to know.
  std::optional<Event> next();
  /// Only after MessageBegins. `into` has the message's size, or is empty: then the message is thrown away.
  void place(MutableBytes into);
  /// The rest of the message that is being received is thrown away: its memory is the owner's again.
  void discard() { into_ = nullptr; }

 private:
  std::optional<Event> end_frame();
  void take_staged();

  static constexpr std::size_t kStaging = 16 * 1024;

  std::array<std::byte, kStaging> staging_;
  std::size_t staged_begin_ = 0;
  std::size_t staged_end_ = 0;
  StreamCodes codes_;
  FrameHeaderBytes raw_;               // with its code
  std::optional<FrameHeader> header_;  // of the frame that is being received
  bool placed_ = false;                // it is known where its payload goes
  std::byte* into_ = nullptr;          // where the rest of it goes; nullptr: nowhere
  std::size_t payload_left_ = 0;
  std::uint32_t crc_ = 0;           // the register, behind what has come of the payload
  std::vector<std::byte> failure_;  // payload of an abort frame
  bool ended_ = false;              // a goodbye has come
  bool malformed_ = false;
};

}  // namespace railweave
