// SPDX-License-Identifier: Apache-2.0
// The switch's packet I/O: one thread between the sockets of all ports and the engine.
#pragma once

#include <sys/epoll.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine.hpp"
#include "loop/link_watch.hpp"
#include "ports/port.hpp"

namespace railweave::ports {

/// Owns ports and thread. A batch of frames from a port is run through the engine at once, and what it sends
/// is flushed at the end of the batch: latency is one batch, and like packets leave together. Interfaces may
/// go down, vanish and come back; the thread carries on with the others.
class SwitchPorts : private engine::OutputSink {
 public:
  using Interface = std::pair<std::uint16_t, std::string>;  // port number, name

  /// Opens all interfaces. Throws std::system_error that names the one that failed, std::invalid_argument for
  /// a port number or name that is given twice, and for a number of queues that ports cannot have.
  SwitchPorts(const std::vector<Interface>& interfaces, const OutputLimits& limits);
  ~SwitchPorts() override { stop(); }

  void start();
  void stop();

  /// Packets go through this engine from now on; nullptr drops them. When this returns, the one before is not
  /// in use any more. The engine must outlive its time here. `notices` is an eventfd that is written when the
  /// engine has something for the control plane; -1: nobody waits.
  void set_engine(engine::Engine* engine, int notices);

  /// Runs a packet through the engine as if it came in on `port`, soon, on the thread of the ports. False if
  /// too many wait.
  bool inject(std::uint16_t port, Bytes packet);

  /// Impairs a port in one direction from the next packet on; nothing: not any more. What waits at that
  /// moment is lost, as when a cable is changed. This and `capture` throw std::out_of_range where there is no
  /// such port.
  void impair(std::uint16_t port, Direction direction, const std::optional<Impairment>& impairment);
  std::optional<ImpairmentCounts> impairment_counts(std::uint16_t port, Direction direction);

  /// Writes what the program is given (in), or what leaves the interface (out), to a pcap file from now on,
  /// as packets on a wire; empty: not any more, and the file is whole. Throws std::system_error.
  void capture(std::uint16_t port, Direction direction, const std::string& path);

  /// Packets that came while there was no program.
  std::uint64_t without_program() const { return without_program_.get(); }
  /// Packets that the program sent to a port that does not exist.
  std::uint64_t no_such_port() const { return no_such_port_.get(); }

  const std::vector<std::unique_ptr<Port>>& ports() const { return ports_; }

 protected:
  /// Has a packet that has come in go through the engine.
  virtual void process(Port& port, MutableBytes packet, std::uint64_t now_us);

 private:
  using Events = std::array<epoll_event, 64>;
  struct Injected {
    std::uint16_t port;
    std::vector<std::byte> packet;
  };

  void emit(std::uint16_t port, const engine::Pieces& packet) override;
  void noticed() override;
  engine::OutputBacklog backlog(std::uint16_t port, std::size_t priority) const override;
  bool ready(std::uint16_t port) override;
  void overflowed(std::uint16_t port) override { find(port)->counters.tx_dropped.add(1); }
  void run();
  int wait(Events& events, int timeout_ms);
  bool readable() const;
  void wake() const;
  void run_injected();
  Port* find(std::uint16_t number) const;
  Path& path(std::uint16_t port, Direction direction);
  void release_due();
  bool receive(Port& port);
  void flush_all();
  bool flush(Port& port);
  Port::Flush release(Port& port);
  void handle_links();
  bool watch(int fd, std::uint32_t events, std::uint64_t key, int operation) const;

  const std::uint64_t start_us_;  // programs' timestamps count from here
  const std::size_t priority_queues_;
  std::vector<std::unique_ptr<Port>> ports_;
  std::vector<Port*> by_number_, shared_;
  ReceiveBatch batch_;
  LinkWatch links_;
  Descriptor epoll_, wake_, timer_;
  std::mutex engine_mutex_;  // held for a batch: an engine is swapped between batches only
  engine::Engine* engine_ = nullptr;
  int notices_ = -1;
  std::atomic<bool> impaired_{false};  // any port, in any direction
  std::vector<Injected> injected_;     // behind `engine_mutex_`
  Count without_program_, no_such_port_;
  std::atomic<bool> stopping_{false};
  std::uint64_t retry_at_us_ = 0;  // when to try ports again behind which a queue was full; 0: there are none
  Duration interval_ = 0;          // between packets, mean of the latest
  Time spin_from_ = 0;             // not before: the core is busy
  std::thread thread_;
  std::vector<std::byte> whole_;
};

}  // namespace railweave::ports
