// SPDX-License-Identifier: Apache-2.0
// CPUs and processor time of threads.
#pragma once

#include <pthread.h>

#include <vector>

#include "core/time.hpp"

namespace railweave {

/// Restricts the thread to these CPUs. Throws std::invalid_argument without a change if this process may not
/// use a CPU.
void run_on(pthread_t thread, const std::vector<int>& cpus);

/// Processor time of this thread. Work of other processes does not count.
Time thread_time();

}  // namespace railweave
