// SPDX-License-Identifier: Apache-2.0
#include "roce/burst.hpp"

#include "core/segments.hpp"

namespace railweave::roce {

bool Burst::takes(const Packet& packet) const {
  if (count_ == 0) return true;
  const std::size_t size = written_size(packet) + kIcrcSize;
  return open_ && size <= segment_ && size_ + size <= limit_ && count_ < kMaxSegments;
}

void Burst::append(const Packet& packet) {
  const MutableBytes to = frame_.subspan(size_);
  const std::size_t size = write(packet, to);
  const auto id = static_cast<std::uint16_t>(first_id_ + count_);
  store_le<std::uint32_t>(to.data() + size, icrc(network_header(path_, id, size), to.first(size)));
  if (count_++ == 0) segment_ = size + kIcrcSize;
  open_ = size + kIcrcSize == segment_;
  size_ += size + kIcrcSize;
}

Burst::Made Burst::close() {
  const std::size_t payload = size_ - kFrameHeaderSize;
  write_headers(path_, network_header(path_, first_id_, payload - kIcrcSize), frame_);
  return {.size = size_,
          .offload = count_ == 1 ? Offload{} : make_super_packet(frame_.first(size_), segment_)};
}

}  // namespace railweave::roce
