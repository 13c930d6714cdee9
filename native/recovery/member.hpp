// SPDX-License-Identifier: Apache-2.0
// A rank's part in the agreement. It reports the rails' states to rank 0 and follows rank 0's decisions.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "recovery/channel.hpp"
#include "recovery/datagram.hpp"
#include "recovery/types.hpp"

namespace railweave::recovery {

enum class Round : std::uint8_t { kNone, kPreparing, kPrepared };
inline constexpr std::size_t kRoundStates = 3;
enum class RoundInput : std::uint8_t {
  kPrepare,   // a PREPARE, or a later attempt of it
  kPrepared,  // the agent's answer to that attempt
  kCommit,    // the decision for it
};
inline constexpr std::size_t kRoundInputs = 3;

/// Returns nothing if the input is not allowed in that state.
std::optional<Round> next_round_state(Round state, RoundInput input);

class Member {
 public:
  explicit Member(const Options& options);

  /// An empty reason: the rail is heard.
  void set_silence(std::size_t rail, std::string reason) { rails_[rail].silence = std::move(reason); }
  void set_obstacle(std::size_t rail, std::string reason) { rails_[rail].obstacle = std::move(reason); }
  void suspect(std::size_t rail, std::string reason);
  void prepared(const Prepare& prepare, const Position& position);
  void halted(std::size_t rail, std::vector<std::uint64_t> next_chunks);
  void restarted(std::size_t rail, std::uint32_t incarnation, bool passed);
  /// Decisions come in the order in which rank 0 made them; some may be missing. Returns false if the
  /// protocol does not allow all of this decision now. The forbidden parts are ignored.
  bool follow(const Decision& decision);

  /// The complete report to rank 0.
  Status status() const;
  std::optional<Event> poll();

  std::uint32_t epoch() const { return epoch_; }
  RailSet alive() const { return alive_; }
  /// The rails that will be alive after the present round, to this rank's knowledge.
  RailSet expected() const { return round_ == Round::kNone ? alive_ : prepare_.alive; }
  Round round() const { return round_; }

 private:
  struct Rail {
    ChannelState channel = ChannelState::kUp;
    std::uint32_t incarnation = 0;
    std::string broken{};  // the reason; empty again after the halt
    std::string obstacle{};
    std::string silence{};
    std::vector<std::uint64_t> next_chunks{};
    State reported = State::kUp;
  };

  bool step(Rail& rail, ChannelInput input);
  bool step(RoundInput input);
  bool prepare(const PrepareRequest& prepare);
  bool commit(const Decision& decision);
  bool follow(std::size_t index, const ChannelDecision& decision);
  void report_changes(const std::vector<ChannelDecision>& decisions);

  const std::size_t count_;
  std::vector<Rail> rails_;
  std::uint32_t epoch_ = 0;
  RailSet alive_;
  Round round_ = Round::kNone;
  Prepare prepare_{};  // the newest; for the next epoch while a round runs
  std::optional<Prepared> prepared_{};
  std::deque<Event> events_;
};

}  // namespace railweave::recovery
