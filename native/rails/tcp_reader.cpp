// SPDX-License-Identifier: Apache-2.0
#include "rails/tcp_reader.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/crc32.hpp"

namespace railweave {

std::array<MutableBytes, 2> TcpReader::room() {
  if (staged_begin_ > 0) {
    std::copy(staging_.begin() + staged_begin_, staging_.begin() + staged_end_, staging_.begin());
    staged_end_ -= std::exchange(staged_begin_, 0);
  }
  // If the payload has a place, it has already taken all staged bytes.
  const MutableBytes payload = into_ != nullptr ? MutableBytes(into_, payload_left_) : MutableBytes();
  return {payload, MutableBytes(staging_).subspan(staged_end_)};
}

void TcpReader::filled(std::size_t size) {
  if (into_ != nullptr) {
    const std::size_t direct = std::min(size, payload_left_);
    crc_ = crc32_update(crc_, {into_, direct});
    into_ += direct;
    payload_left_ -= direct;
    size -= direct;
  }
  staged_end_ += size;
}

std::optional<TcpReader::Event> TcpReader::next() {
  if (malformed_) return Malformed{};
  if (!header_) {
    if (staged_end_ - staged_begin_ < kFrameHeaderSize) return std::nullopt;
    std::copy_n(staging_.begin() + staged_begin_, kFrameHeaderSize, raw_.begin());
    header_ = decode_frame_header(raw_.data());
    staged_begin_ += kFrameHeaderSize;
    malformed_ = !header_ || ended_ || (header_->type != FrameType::kAbort && !has_code(raw_, {}, codes_));
    if (malformed_) return Malformed{};
    payload_left_ = header_->length;
    crc_ = kCrcStart;
    placed_ = header_->type != FrameType::kData;
    if (header_->type == FrameType::kAbort) {
      failure_.resize(header_->length);
      into_ = failure_.data();
    }
  }
  if (!placed_) return MessageBegins{.label = header_->label, .size = header_->length};
  take_staged();
  if (payload_left_ > 0) return std::nullopt;
  return end_frame();
}

void TcpReader::place(MutableBytes into) {
  placed_ = true;
  into_ = into.empty() ? nullptr : into.data();
}

void TcpReader::take_staged() {
  const std::size_t size = std::min(staged_end_ - staged_begin_, payload_left_);
  crc_ = crc32_update(crc_, Bytes(staging_).subspan(staged_begin_, size));
  if (into_ != nullptr && size > 0) {
    std::memcpy(into_, staging_.data() + staged_begin_, size);
    into_ += size;
  }
  staged_begin_ += size;
  payload_left_ -= size;
}

std::optional<TcpReader::Event> TcpReader::end_frame() {
  const FrameHeader header = *std::exchange(header_, std::nullopt);
  into_ = nullptr;
  switch (header.type) {
    case FrameType::kData:
      malformed_ = ~crc_ != header.crc;
      if (malformed_) return Malformed{};
      return MessageEnds{};
    case FrameType::kAbort:
      malformed_ = !has_code(raw_, failure_, codes_);
      if (malformed_) return Malformed{};
      return PeerFailed{decode_failure(failure_)};
    case FrameType::kGoodbye:
      ended_ = true;
      return Goodbye{};
    case FrameType::kHeartbeat:
      return Heartbeat{header.label};
  }
  return std::nullopt;
}

}  // namespace railweave
