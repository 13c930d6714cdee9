// SPDX-License-Identifier: Apache-2.0
// What a thread has of the processors: where it may run, and for how long it has.
#pragma once

#include <pthread.h>

#include <vector>

#include "core/time.hpp"

namespace railweave {

/// From now on the thread runs on these CPUs alone. Throws std::invalid_argument, and changes nothing, where
/// it may not use one of them.
void run_on(pthread_t thread, const std::vector<int>& cpus);

/// Processor time of this thread: other processes on the machine do not count.
Time thread_time();

}  // namespace railweave
