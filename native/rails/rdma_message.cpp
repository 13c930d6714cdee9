// SPDX-License-Identifier: Apache-2.0
#include "rails/rdma_message.hpp"

#include <algorithm>
#include <array>

namespace railweave {
namespace {

constexpr std::uint8_t kVersion = 4;
constexpr std::size_t kClearToSendSize = kControlHeaderSize + kLabelSize + 8 + 8 + 4;

std::byte* store_header(std::byte* to, ControlType type, std::uint32_t sequence) {
  return store_fields(to, type, kVersion, std::uint16_t{0}, sequence);
}

Mac code_of(Bytes message, StreamCodes& codes) {
  const bool is_short = !message.empty() && message[0] == static_cast<std::byte>(ControlType::kShort);
  const std::size_t covered = is_short ? std::min(message.size(), kShortHeaderSize) : message.size();
  return codes.next(message.first(covered), message.size());
}

}  // namespace

std::vector<std::byte> encode(const ClearToSend& clearance) {
  std::vector<std::byte> message(kClearToSendSize);
  std::byte* to = store_header(message.data(), ControlType::kClearToSend, clearance.sequence);
  store_fields(store_label(to, clearance.label), clearance.address, clearance.length, clearance.rkey);
  return message;
}

std::vector<std::byte> encode(const ShortMessage& message) {
  std::vector<std::byte> bytes(kShortHeaderSize + message.data.size());
  std::byte* to = store_header(bytes.data(), ControlType::kShort, message.sequence);
  std::copy(message.data.begin(), message.data.end(), store_label(to, message.label));
  return bytes;
}

std::vector<std::byte> encode(ControlType type, Bytes payload) {
  payload = payload.first(std::min(payload.size(), kMostFailure - kControlHeaderSize));
  std::vector<std::byte> message(kControlHeaderSize + payload.size());
  store_header(message.data(), type, 0);
  std::copy(payload.begin(), payload.end(), message.begin() + kControlHeaderSize);
  return message;
}

void set_taken(std::vector<std::byte>& message, std::uint16_t taken) { store_be(&message[2], taken); }

void append_code(std::vector<std::byte>& message, StreamCodes& codes) {
  const Mac code = code_of(message, codes);
  message.insert(message.end(), code.begin(), code.end());
}

std::optional<Bytes> without_code(Bytes message, StreamCodes& codes) {
  if (message.size() < kCodeSize) return std::nullopt;
  const Bytes said = message.first(message.size() - kCodeSize);
  return equal(code_of(said, codes), message.last(kCodeSize)) ? std::optional(said) : std::nullopt;
}

std::optional<ControlHeader> decode_header(Bytes message) {
  if (message.size() < kControlHeaderSize || load_be<std::uint8_t>(&message[1]) != kVersion)
    return std::nullopt;
  const auto type = load_be<std::uint8_t>(&message[0]);
  if (type < 1 || type > 5) return std::nullopt;
  return ControlHeader{static_cast<ControlType>(type), load_be<std::uint16_t>(&message[2])};
}

std::optional<ClearToSend> decode_clear_to_send(Bytes message) {
  if (message.size() != kClearToSendSize) return std::nullopt;
  const auto label = load_label(&message[kControlHeaderSize]);
  if (!label) return std::nullopt;
  ClearToSend clearance{.sequence = load_be<std::uint32_t>(&message[4]), .label = *label};
  load_fields(&message[kControlHeaderSize + kLabelSize], clearance.address, clearance.length, clearance.rkey);
  return clearance;
}

std::optional<ShortMessage> decode_short(Bytes message) {
  if (message.size() <= kShortHeaderSize || message.size() > kShortHeaderSize + kMostShort)
    return std::nullopt;
  const auto label = load_label(&message[kControlHeaderSize]);
  if (!label) return std::nullopt;
  return ShortMessage{load_be<std::uint32_t>(&message[4]), *label, message.subspan(kShortHeaderSize)};
}

}  // namespace railweave
