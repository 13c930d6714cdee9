// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace railweave {

/// Keeps a flag set for a scope, also when an exception leaves it.
class ScopedFlag {
 public:
  explicit ScopedFlag(bool& flag) : flag_(flag) { flag_ = true; }
  ~ScopedFlag() { flag_ = false; }
  ScopedFlag(const ScopedFlag&) = delete;
  ScopedFlag& operator=(const ScopedFlag&) = delete;

 private:
  bool& flag_;
};

}  // namespace railweave
