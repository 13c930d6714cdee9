// SPDX-License-Identifier: Apache-2.0
#include "ports/shared_link.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace railweave::ports {

namespace {

static_assert(std::atomic<std::uint32_t>::is_always_lock_free, "indices are shared between processes");

[[noreturn]] void fail(int error, const std::string& what) {
  errno = error;
  raise_errno(what);
}

}  // namespace

/// Frame n of a ring is in slot n mod kFrames.
struct SharedLink::Ring {
  struct Slot {
    std::uint32_t size;
    std::byte frame[kMaxFrame];
  };
  // An odd number of cache lines spreads frames over all sets of a cache.
  static_assert(sizeof(Slot) % 128 == 64);

  alignas(64) std::atomic<std::uint32_t> sent;   // written by the sender only
  alignas(64) std::atomic<std::uint32_t> taken;  // written by the receiver only
  alignas(64) Slot slots[kFrames];
};

struct SharedLink::Memory {
  Ring rings[2];  // by the sending end
};

SharedLink::SharedLink(const std::string& interface)
    : path_("/dev/shm/railweave-" + interface.substr(kSharedPrefix.size())) {
  unsigned end = 0;
  do {
    file_ = Descriptor(open(path_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
    struct stat status{};
    if (!file_ || fstat(file_.get(), &status) != 0) raise_errno(interface);
    if (!S_ISREG(status.st_mode) || status.st_uid != geteuid() || (status.st_mode & 077) != 0) {
      fail(EPERM, interface);
    }
    if (status.st_size > static_cast<off_t>(sizeof(Memory))) fail(EINVAL, interface);
    for (end = 0; end < 2 && !take_end(end); ++end) {
    }
    if (end == 2) fail(EBUSY, interface + " has two ends");
  } while (!named());  // the file's last end has just removed it
  if (const int error = posix_fallocate(file_.get(), 0, sizeof(Memory)); error != 0) fail(error, interface);
  void* const memory = mmap(nullptr, sizeof(Memory), PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
  if (memory == MAP_FAILED) raise_errno(interface);
  memory_ = static_cast<Memory*>(memory);
  out_ = &memory_->rings[end];
  in_ = &memory_->rings[1 - end];
  sent_ = out_->sent;
  taken_ = in_->sent;  // earlier frames are lost
  in_->taken = taken_;
}

SharedLink::~SharedLink() {
  if (memory_ == nullptr) return;
  munmap(memory_, sizeof(Memory));
  const bool last = take_end(0) && take_end(1);  // a process may lock its own byte again
  if (last && named()) unlink(path_.c_str());
}

/// Locks the byte of an end. Returns false if another process holds it.
bool SharedLink::take_end(unsigned end) const {
  struct flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = end;
  lock.l_len = 1;
  return fcntl(file_.get(), F_OFD_SETLK, &lock) == 0;
}

/// Whether the path still names this file.
bool SharedLink::named() const {
  struct stat file{}, path{};
  return fstat(file_.get(), &file) == 0 && lstat(path_.c_str(), &path) == 0 && file.st_ino == path.st_ino &&
         file.st_dev == path.st_dev;
}

bool SharedLink::send(Bytes frame) {
  // The difference is also too large if the other end writes invalid numbers.
  if (sent_ - out_->taken.load(std::memory_order_acquire) >= kFrames) return false;
  Ring::Slot& slot = out_->slots[sent_ % kFrames];
  slot.size = static_cast<std::uint32_t>(frame.size());
  std::memcpy(slot.frame, frame.data(), frame.size());
  out_->sent.store(++sent_, std::memory_order_release);
  return true;
}

bool SharedLink::readable() const { return in_->sent.load(std::memory_order_relaxed) != taken_; }

std::size_t SharedLink::receive(MutableBytes to) {
  const std::uint32_t sent = in_->sent.load(std::memory_order_acquire);
  const std::uint32_t waiting = sent - taken_;
  std::size_t size = 0;
  if (waiting > kFrames) {
    taken_ = sent;  // invalid: start again from here
  } else if (waiting != 0) {
    Ring::Slot& slot = in_->slots[taken_++ % kFrames];
    // Read once, because the other end may change it after the check.
    const std::uint32_t claimed = std::atomic_ref(slot.size).load(std::memory_order_relaxed);
    if (claimed <= std::min(to.size(), kMaxFrame)) size = claimed;
    std::memcpy(to.data(), slot.frame, size);
  }
  in_->taken.store(taken_, std::memory_order_release);
  return size;
}

}  // namespace railweave::ports
