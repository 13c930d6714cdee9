// SPDX-License-Identifier: Apache-2.0
#include "ports/capture.hpp"

#include <cerrno>
#include <system_error>

namespace railweave::ports {

namespace {

constexpr std::uint32_t kNanosecondMagic = 0xa1b23c4d;
constexpr std::uint32_t kVersion = 2 | 4u << 16;  // 2.4
constexpr std::uint32_t kSnapLength = 1u << 18;
constexpr std::uint32_t kEthernet = 1;

}  // namespace

Capture::Capture(const std::string& path) : file_(path, std::ios::binary) {
  if (!file_) throw std::system_error(errno, std::generic_category(), "writing packets to " + path);
  for (const std::uint32_t value : {kNanosecondMagic, kVersion, 0u, 0u, kSnapLength, kEthernet}) word(value);
  file_.flush();  // a file without packets is one, too
}

void Capture::add(Bytes packet, Time at) {
  if (!file_) return;
  word(static_cast<std::uint32_t>(at / kSecond));
  word(static_cast<std::uint32_t>(at % kSecond));
  word(static_cast<std::uint32_t>(packet.size()));
  word(static_cast<std::uint32_t>(packet.size()));
  file_.write(reinterpret_cast<const char*>(packet.data()), static_cast<std::streamsize>(packet.size()));
  if (file_) ++packets_;
}

/// In the byte order of this machine, which the magic number tells.
void Capture::word(std::uint32_t value) { file_.write(reinterpret_cast<const char*>(&value), sizeof value); }

}  // namespace railweave::ports
