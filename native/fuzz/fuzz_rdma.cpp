// SPDX-License-Identifier: Apache-2.0
// Peers of the RDMA rail. The input is a script, whose first byte chooses the game:
// - A peer against hostile messages. The script chooses the actions of this rank and the arriving messages:
//   raw control messages, or messages that an honest peer may send, in any order.
// - Two honest peers. The script chooses their posts and the arrival times of their messages. In the end all
//   messages must have arrived with the right contents.
// Buffers are on the heap, so that the sanitizer sees accesses out of bounds.
#include <algorithm>
#include <cstdint>
#include <deque>
#include <vector>

#include "fuzz/script.hpp"
#include "rails/rdma_message.hpp"
#include "rails/rdma_peer.hpp"

namespace {

using namespace railweave;

constexpr std::size_t kShort = 64;

/// Completes posted requests only when the script says so.
class ScriptedConnection final : public RdmaConnection {
 public:
  void post(const roce::WorkRequest& request) override { posted.push_back(request); }
  void post_receive(const roce::ReceiveRequest& request) override { receives.push_back(request); }
  std::optional<roce::Completion> poll() override {
    if (completions.empty()) return std::nullopt;
    const auto completion = completions.front();
    completions.pop_front();
    return completion;
  }
  Offer offer(MutableBytes into) override {
    offered.push_back(into);
    return {.address = 0, .rkey = static_cast<std::uint32_t>(offered.size() - 1)};
  }
  void take(std::uint32_t rkey) override { require(rkey < offered.size()); }
  void drop(std::uint32_t rkey) override { require(rkey < offered.size()); }
  void withdraw(std::uint32_t rkey) override { require(rkey < offered.size()); }
  Region region(std::size_t) override { return {}; }
  void set_patience(int, Duration) override {}
  bool awaits_answer() const override { return !posted.empty(); }
  std::size_t release_buffers() override { return 0; }
  void abort() override {}
  std::optional<Fault> fault() const override { return std::nullopt; }
  const roce::QueuePairStats& stats() const override { return stats_; }

  void arrive(Bytes message) {
    if (receives.empty()) return;  // an honest device would ask the sender to wait
    const auto request = receives.front();
    receives.pop_front();
    const std::size_t size = std::min(message.size(), request.buffer.size());
    std::copy_n(message.begin(), size, request.buffer.begin());
    completions.push_back({.id = request.id,
                           .kind = roce::CompletionKind::kReceive,
                           .byte_count = static_cast<std::uint32_t>(size)});
  }
  void written(std::uint32_t immediate, std::uint32_t bytes) {
    if (receives.empty()) return;
    completions.push_back({.id = receives.front().id,
                           .kind = roce::CompletionKind::kReceiveWrite,
                           .byte_count = bytes,
                           .immediate = immediate});
    receives.pop_front();
  }
  void complete() {
    if (posted.empty()) return;
    const auto request = posted.front();
    posted.pop_front();
    const bool write = request.operation == roce::Operation::kWrite;
    completions.push_back(
        {.id = request.id, .kind = write ? roce::CompletionKind::kWrite : roce::CompletionKind::kSend});
  }

  std::deque<roce::WorkRequest> posted;
  std::deque<roce::ReceiveRequest> receives;
  std::deque<roce::Completion> completions;
  std::vector<MutableBytes> offered;

 private:
  roce::QueuePairStats stats_;
};

class Counter final : public TransportListener {
 public:
  void sent(int, Time) override { ++sent_in_all; }
  void received(int, Time) override { ++received_in_all; }
  void failed(const Failure&, Time) override { ++failures; }
  std::optional<MessageLabel> own_label(const SliceKey& key) const override {
    return skipped && key_of(*skipped) == key ? skipped : std::nullopt;
  }

  std::optional<MessageLabel> skipped{};  // of a call without a part here
  std::size_t sent_in_all = 0, received_in_all = 0;
  int failures = 0;
};

MessageLabel label_of(std::uint8_t op_index) {
  return {.call = {.op_index = op_index,
                   .collective = Collective::kAllReduce,
                   .dtype = DType::kInt32,
                   .op = ReduceOp::kSum,
                   .root = 0,
                   .count = 16},
          .slice_count = 16};
}

/// Returns sizes of short and of longer messages.
std::size_t size_of(std::uint8_t value) { return value % 8 == 7 ? 2 * kShort : 1 + value % kShort; }

Key key_of(int rank) { return {static_cast<std::byte>(rank)}; }

RdmaPeerOptions options(int own) {
  return {.rank = 1 - own,
          .name = "the other",
          .short_bytes = kShort,
          .retries = 1,
          .max_timeout = 1,
          .own_key = key_of(own),
          .key = key_of(1 - own)};
}

CallCheck check_of(const int& rank, TransportListener* const& listener) {
  CallCheck check(rank, listener);
  check.begin(label_of(0));
  return check;
}

class Hostile {
 public:
  void step(Script& script) {
    const std::uint8_t what = script.next() % 16;
    const std::uint8_t value = script.next();
    switch (what) {
      case 0:
        label_ = label_of(value % 4);
        check_.begin(label_);
        return peer_.check_waiting(now_);
      case 1:
      case 2:
        blocks_.emplace_back(size_of(value));
        ++sends_;
        return peer_.post_send(blocks_.back(), now_);
      case 3:
      case 4:
        blocks_.emplace_back(size_of(value));
        ++posted_;
        return peer_.post_receive(blocks_.back(), now_);
      case 5:
        return connection_.complete();
      case 6:
        return connection_.written(value % 32, static_cast<std::uint32_t>(size_of(script.next())));
      case 7:
        listener_.skipped = {.call = label_of(value % 4).call, .slice_count = 0};
        return peer_.check_waiting(now_);
      case 8:
        peer_.clear_overdue();
        return peer_.heartbeat();
      case 9: {
        std::vector<std::byte> raw(value);
        for (std::byte& byte : raw) byte = static_cast<std::byte>(script.next());
        if (script.next() % 8 != 0) append_code(raw, codes_);
        return connection_.arrive(raw);
      }
      case 10:
      case 11: {
        const std::vector<std::byte> data(size_of(script.next()));
        return arrive(encode(ShortMessage{sequence_++, label_, data}), value);
      }
      case 12:
        return arrive(encode(ClearToSend{.sequence = value % 32u, .label = label_, .length = size_of(value)}),
                      script.next());
      case 13:
        return arrive(encode(ControlType::kTaken, {}), value);
      case 14:
        return arrive(encode(value % 8 == 0 ? ControlType::kGoodbye : ControlType::kTaken, {}), 0);
      default:
        if (value == 0) peer_.abort();
    }
  }
  void check() {
    while (peer_.drain(now_)) continue;
    require(listener_.failures <= 1);
    require(listener_.sent_in_all <= sends_ && listener_.received_in_all <= posted_);
  }

 private:
  void arrive(std::vector<std::byte> message, std::uint8_t taken) {
    set_taken(message, taken % 32);
    append_code(message, codes_);
    connection_.arrive(message);
  }

  const Time now_ = 1;
  ScriptedConnection connection_;
  Counter listener_;
  TransportListener* const told_ = &listener_;
  const int rank_ = 0;
  CallCheck check_ = check_of(rank_, told_);
  RdmaPeer peer_{options(0), check_, connection_, listener_};
  StreamCodes codes_{key_of(1)};  // those of an honest peer
  MessageLabel label_ = label_of(0);
  std::deque<std::vector<std::byte>> blocks_;
  std::uint32_t sequence_ = 0;
  std::size_t sends_ = 0, posted_ = 0;
};

class Honest {
 public:
  /// Makes one of every `period` messages long.
  explicit Honest(std::size_t period) : period_(period) {}
  void step(Script& script) {
    const std::uint8_t what = script.next();
    End &end = ends_[what & 1], &other = ends_[1 - (what & 1)];
    switch (what >> 1 & 7) {
      case 0:
      case 1:
        return send(end);
      case 2:
      case 3:
        return receive(end);
      case 4:
        end.peer.clear_overdue();
        return end.peer.heartbeat();
      default:
        arrive(end, other);
    }
  }
  void check() {
    for (End& end : ends_) {
      while (end.peer.drain(now_)) continue;
      require(end.listener.failures == 0);
    }
  }
  void end() {
    for (int side : {0, 1})
      while (ends_[side].received.size() != ends_[1 - side].sent.size())
        ends_[side].received.size() < ends_[1 - side].sent.size() ? receive(ends_[side])
                                                                  : send(ends_[1 - side]);
    bool moves = true;
    while (moves) {
      check();
      moves = arrive(ends_[0], ends_[1]) || arrive(ends_[1], ends_[0]);
    }
    for (int side : {0, 1}) {
      const End &end = ends_[side], &other = ends_[1 - side];
      require(end.listener.sent_in_all == end.sent.size());
      require(end.listener.received_in_all == other.sent.size());
      require(end.received == other.sent);
    }
  }

 private:
  struct End {
    explicit End(int own) : rank(own), peer(options(own), check, connection, listener) {}
    const int rank;
    ScriptedConnection connection;
    Counter listener;
    TransportListener* const told = &listener;
    const CallCheck check = check_of(rank, told);
    RdmaPeer peer;
    std::deque<std::vector<std::byte>> sent, received;
  };

  std::size_t size_of(std::size_t number) const {
    return number % period_ == period_ - 1 ? 2 * kShort : 1 + number % kShort;
  }
  void send(End& end) {
    end.sent.emplace_back(size_of(end.sent.size()), static_cast<std::byte>(1 + end.sent.size() % 255));
    end.peer.post_send(end.sent.back(), now_);
  }
  void receive(End& end) {
    end.received.emplace_back(size_of(end.received.size()));
    end.peer.post_receive(end.received.back(), now_);
  }
  /// Delivers the oldest message of an end. Returns false if the end has sent nothing.
  bool arrive(End& from, End& at) {
    if (from.connection.posted.empty()) return false;
    const auto request = from.connection.posted.front();
    if (request.operation == roce::Operation::kSend) {
      require(!at.connection.receives.empty());  // otherwise the connection would stall
      at.connection.arrive(request.local);
    } else if (request.immediate) {
      std::copy(request.local.begin(), request.local.end(), at.connection.offered.at(request.rkey).begin());
      at.connection.written(*request.immediate, static_cast<std::uint32_t>(request.local.size()));
    }
    from.connection.complete();
    return true;
  }

  const Time now_ = 1;
  const std::size_t period_;
  End ends_[2]{End(0), End(1)};
};

template <typename Run>
void run(Script& script, Run& run) {
  while (!script.ended()) {
    run.step(script);
    run.check();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Script script(data, size);
  if (const std::size_t what = script.next(); what % 2 == 0) {
    Hostile hostile;
    run(script, hostile);
  } else {
    Honest honest(1 + what / 4);
    run(script, honest);
    honest.end();
  }
  return 0;
}
