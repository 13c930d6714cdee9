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

/// Owns the ports and their thread. A batch of frames from a port runs through the engine at once. The output
/// is sent at the end of the batch, so similar packets leave together and latency is one batch. Interfaces
/// may go down, disappear and come back. The thread goes on with the others.
class SwitchPorts : private engine::OutputSink {
 public:
  using Interface = std::pair<std::uint16_t, std::string>;  // port number, name

  /// Opens all interfaces. Throws std::system_error with the interface that failed. Throws
  /// std::invalid_argument for a repeated port number or name, and for a number of queues out of range.
  SwitchPorts(const std::vector<Interface>& interfaces, const OutputLimits& limits);
  ~SwitchPorts() override { stop(); }

  void start();
  void stop();

  /// Sends packets through this engine from now on; nullptr drops them. On return the previous engine is no
  /// longer in use. The engine must stay valid while it is set. `notices`: an eventfd that is written when
  /// the engine has news for the control plane; -1: nobody waits.
  void set_engine(engine::Engine* engine, int notices);

  /// Runs a packet through the engine as if it came from `port`, soon and on the ports' thread. Returns false
  /// if too many packets wait.
  bool inject(std::uint16_t port, Bytes packet);

  /// Impairs a port in one direction from the next packet on; nullopt ends the impairment. Waiting packets
  /// are lost, as with an unplugged cable. This method and `capture` throw std::out_of_range if there is no
  /// such port.
  void impair(std::uint16_t port, Direction direction, const std::optional<Impairment>& impairment);
  std::optional<ImpairmentCounts> impairment_counts(std::uint16_t port, Direction direction);

  /// Writes the program's input (in) or the interface's output (out) to a pcap file, as packets on a wire. An
  /// empty path ends the capture and completes the file. Throws std::system_error.
  void capture(std::uint16_t port, Direction direction, const std::string& path);

  /// Packets that came while there was no program.
  std::uint64_t without_program() const { return without_program_.get(); }
  /// Packets that the program sent to a port that does not exist.
  std::uint64_t no_such_port() const { return no_such_port_.get(); }

  const std::vector<std::unique_ptr<Port>>& ports() const { return ports_; }

 protected:
  /// Runs a received packet through the engine.
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

  const std::uint64_t start_us_;  // origin of programs' timestamps
  const std::size_t priority_queues_;
  std::vector<std::unique_ptr<Port>> ports_;
  std::vector<Port*> by_number_, shared_;
  ReceiveBatch batch_;
  LinkWatch links_;
  Descriptor epoll_, wake_, timer_;
  std::mutex engine_mutex_;  // held during a batch, so an engine is replaced only between batches
  engine::Engine* engine_ = nullptr;
  int notices_ = -1;
  std::atomic<bool> impaired_{false};  // some port has an impairment
  std::vector<Injected> injected_;     // guarded by `engine_mutex_`
  Count without_program_, no_such_port_;
  std::atomic<bool> stopping_{false};
  std::uint64_t retry_at_us_ = 0;  // when to try ports with a full kernel queue again; 0: no such port
  Duration interval_ = 0;          // mean time between recent packets
  Time spin_from_ = 0;             // no spinning before this time, because the core is busy
  std::thread thread_;
  std::vector<std::byte> whole_;
};

}  // namespace railweave::ports
