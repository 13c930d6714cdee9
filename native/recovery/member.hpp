// SPDX-License-Identifier: Apache-2.0
// A rank's part in the agreement: it reports what it sees of the rails, and follows rank 0's decisions.
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

/// Nothing: the input is not allowed in that state.
std::optional<Round> next_round_state(Round state, RoundInput input);

class Member {
 public:
  explicit Member(const Options& options);

  /// "" for a rail that is heard.
  void set_silence(std::size_t rail, std::string reason) { rails_[rail].silence = std::move(reason); }
  void set_obstacle(std::size_t rail, std::string reason) { rails_[rail].obstacle = std::move(reason); }
  void suspect(std::size_t rail, std::string reason);
  void prepared(const Prepare& prepare, const Position& position);
  void halted(std::size_t rail, std::vector<std::uint64_t> next_chunks);
  void restarted(std::size_t rail, std::uint32_t incarnation, bool passed);
  /// Decisions come in the order in which they were made; some may be missing. False: the protocol does not
  /// allow this one now, and what it does not allow has been left out.
  bool follow(const Decision& decision);

  /// All that rank 0 has to know of this rank.
  Status status() const;
  std::optional<Event> poll();

  std::uint32_t epoch() const { return epoch_; }
  RailSet alive() const { return alive_; }
  /// Those that are to be alive from now on, as far as this rank knows.
  RailSet expected() const { return round_ == Round::kNone ? alive_ : prepare_.alive; }
  Round round() const { return round_; }

 private:
  struct Rail {
    ChannelState channel = ChannelState::kUp;
    std::uint32_t incarnation = 0;
    std::string broken{};  // why; until the channel is halted
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
  Prepare prepare_{};  // the newest; of the next epoch while a round runs
  std::optional<Prepared> prepared_{};
  std::deque<Event> events_;
};

}  // namespace railweave::recovery
