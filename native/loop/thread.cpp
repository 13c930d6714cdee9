// SPDX-License-Identifier: Apache-2.0
#include "loop/thread.hpp"

#include <sched.h>
#include <time.h>

#include <cstring>
#include <stdexcept>
#include <string>
#include <system_error>

namespace railweave {
namespace {

void set_affinity(pthread_t thread, const cpu_set_t& cpus) {
  if (const int error = pthread_setaffinity_np(thread, sizeof cpus, &cpus); error != 0)
    throw std::system_error(error, std::generic_category(), "choosing the CPUs of a thread");
}

cpu_set_t affinity(pthread_t thread) {
  cpu_set_t cpus;
  if (const int error = pthread_getaffinity_np(thread, sizeof cpus, &cpus); error != 0)
    throw std::system_error(error, std::generic_category(), "reading the CPUs of a thread");
  return cpus;
}

std::string listed(const cpu_set_t& cpus) {
  std::string text;
  for (int first = 0; first < CPU_SETSIZE; ++first) {
    if (!CPU_ISSET(first, &cpus)) continue;
    int last = first;
    while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, &cpus)) ++last;
    if (!text.empty()) text += ',';
    text += std::to_string(first);
    if (last > first) text.append("-").append(std::to_string(last));
    first = last;
  }
  return text;
}

}  // namespace

void run_on(pthread_t thread, const std::vector<int>& cpus) {
  const cpu_set_t before = affinity(thread);
  cpu_set_t usable;
  // The kernel silently ignores the CPUs that it does not allow.
  std::memset(&usable, 0xff, sizeof usable);
  set_affinity(thread, usable);
  usable = affinity(thread);
  cpu_set_t wanted;
  CPU_ZERO(&wanted);
  for (const int cpu : cpus) {
    if (cpu < 0 || cpu >= CPU_SETSIZE || !CPU_ISSET(cpu, &usable)) {
      set_affinity(thread, before);
      throw std::invalid_argument("CPU " + std::to_string(cpu) +
                                  " is not one of those that this process may " + "use, " + listed(usable) +
                                  "; choose among them, or widen its cpuset");
    }
    CPU_SET(cpu, &wanted);
  }
  set_affinity(thread, wanted);
}

Time thread_time() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * kSecond + now.tv_nsec;
}

}  // namespace railweave
