// SPDX-License-Identifier: Apache-2.0
#include "rails/ina_worker.hpp"

#include <utility>

namespace railweave {
namespace {

constexpr std::size_t kMostWaiting = 1024;  // reports; beyond that, strays are dropped

}  // namespace

InaWorker::InaWorker(int cpu, Duration spin, DatagramSocket& socket, const InaTreesOptions& options,
                     const std::vector<InaGroup>& groups, const std::vector<SocketAddress>& members,
                     EventLoop& rail_loop, std::function<void()> reported)
    : rail_loop_(rail_loop),
      rail_owner_(rail_loop.owner()),
      reported_(std::move(reported)),
      loop_(this),
      trees_(loop_, *this, socket, options, groups, members),
      shared_loop_(loop_, mutex_, *this, "railweave-tree") {
  shared_loop_.run([this] { loop_.add_timed(trees_); });
  shared_loop_.lead_on({cpu}, spin);
}

void InaWorker::later(Task task) {
  loop_.post([this, task = std::move(task)] { task(trees_, EventLoop::now()); }, this);
}

void InaWorker::run(const Task& task) {
  shared_loop_.run([&] {
    loop_.run_posted();  // tasks of earlier calls of `later`
    task(trees_, EventLoop::now());
  });
}

std::optional<InaTrees::Event> InaWorker::poll() {
  const std::lock_guard lock(mutex_);
  if (events_.empty()) return std::nullopt;
  InaTrees::Event event = std::move(events_.front());
  events_.pop_front();
  return event;
}

void InaWorker::forget() {
  const std::lock_guard lock(mutex_);
  events_.clear();
}

void InaWorker::resume() {
  shared_loop_.run([this] { loop_.resume(*this); });
}

void InaWorker::stop() {
  shared_loop_.close([] {});
  forget();
}

void InaWorker::after_turn() {
  progress_.store(trees_.progress(), std::memory_order_relaxed);
  auto event = trees_.poll();
  if (!event) return;
  {
    const std::lock_guard lock(mutex_);
    for (; event; event = trees_.poll()) {
      if (events_.size() < kMostWaiting || !std::holds_alternative<Stray>(*event))
        events_.push_back(std::move(*event));
    }
  }
  rail_loop_.post(reported_, rail_owner_);
}

void InaWorker::turn_failed(const std::exception& error) {
  {
    const std::lock_guard lock(mutex_);
    events_.push_back(Failure{.kind = FailureKind::kRailDown, .rank = -1, .message = error.what()});
  }
  rail_loop_.post(reported_, rail_owner_);
}

}  // namespace railweave
