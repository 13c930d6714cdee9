// SPDX-License-Identifier: Apache-2.0
#include "ports/output_queue.hpp"

#include <algorithm>
#include <cstring>

namespace railweave::ports {

namespace {

constexpr std::size_t kSmallestFrame = 64;  // sizes the list of frames; smaller ones only fill it sooner

}  // namespace

OutputQueue::OutputQueue(const OutputLimits& limits)
    : limits_(limits),
      buffer_(std::make_unique_for_overwrite<std::byte[]>(limits.queue_bytes)),
      run_(std::min(limits.super_packet_bytes, kMaxIpSize), limits.exact_bytes) {
  frames_.reserve(limits.queue_bytes / kSmallestFrame);
}

MutableBytes OutputQueue::last_frame() {
  const OutputFrame& last = frames_.back();
  return {&buffer_[last.offset + sizeof(Offload)], last.size - sizeof(Offload)};
}

bool OutputQueue::push(Bytes packet) {
  const bool open = !empty();
  if (used_ + packet.size() + sizeof(Offload) > limits_.queue_bytes) return false;
  if (open && run_.join(last_frame(), packet)) {
    const Bytes payload = packet.subspan(UdpRun::kHeaderSize);
    std::memcpy(&buffer_[used_], payload.data(), payload.size());
    used_ += payload.size();
    frames_.back().size += payload.size();
    frames_.back().packets += 1;
    ++packets_;
    return true;
  }
  if (frames_.size() == frames_.capacity()) return false;
  if (open) seal_last();
  const OutputFrame frame{used_, sizeof(Offload) + packet.size(), 1, 0};
  std::memset(&buffer_[used_], 0, sizeof(Offload));
  std::memcpy(&buffer_[used_ + sizeof(Offload)], packet.data(), packet.size());
  used_ += frame.size;
  frames_.push_back(frame);
  run_.start(packet);
  ++packets_;
  return true;
}

void OutputQueue::seal_last() {
  if (run_.packets() > 1) {
    const Offload offload = run_.seal(last_frame());
    std::memcpy(&buffer_[frames_.back().offset], &offload, sizeof offload);
    frames_.back().rewritten = static_cast<std::uint32_t>(run_.rewritten());
  }
  run_.close();
}

std::span<const OutputFrame> OutputQueue::frames() {
  if (empty()) return {};
  seal_last();
  return std::span<const OutputFrame>(frames_).subspan(first_);
}

void OutputQueue::pop(std::size_t count) {
  for (; count > 0; --count) packets_ -= frames_[first_++].packets;
  if (empty()) {
    first_ = used_ = 0;
    frames_.clear();
  } else if (frames_[first_].offset >= limits_.queue_bytes / 2) {
    compact();
  }
}

/// Moves what waits to the front of the buffer, so that the room of sent frames is used again.
void OutputQueue::compact() {
  const std::size_t start = frames_[first_].offset;
  std::memmove(&buffer_[0], &buffer_[start], used_ - start);
  used_ -= start;
  frames_.erase(frames_.begin(), frames_.begin() + static_cast<std::ptrdiff_t>(first_));
  for (OutputFrame& frame : frames_) frame.offset -= start;
  first_ = 0;
}

}  // namespace railweave::ports
