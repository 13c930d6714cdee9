// SPDX-License-Identifier: Apache-2.0
// Rank 0's part in the agreement: it makes one decision for all ranks from their newest statuses.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "recovery/datagram.hpp"
#include "recovery/probation.hpp"
#include "recovery/types.hpp"

namespace railweave::recovery {

/// A round begins when all ranks have applied the last decision and some rail should leave or join. Rank 0
/// sends the PREPARE. All ranks stop submitting calls and report how far they are. Rank 0 then sends the
/// COMMIT. If more rails fail meanwhile, rank 0 leaves them out and asks again. The last rail always stays.
class Coordinator {
 public:
  Coordinator(const Options& options, Time now);

  /// Takes the newest status of a rank. Returns false and ignores the status if it is impossible.
  bool take(int rank, const Status& status, Time now);
  void expire(Time now) { step(now); }
  Time deadline() const { return deadline_; }
  const Decision& decision() const { return decision_; }
  /// Whether all ranks have applied the last decision and no round runs.
  bool settled() const;
  /// The reason why some rank calls the rail unfit; empty if no rank does.
  std::string objection(std::size_t rail) const;

 private:
  void step(Time now);
  void decide(Time now);
  void go_on(Time now);
  void begin(RailSet alive, Time now);
  void narrow(RailSet alive, Time now);
  void commit(Time now);
  void leave_out(RailSet rails, Time now);
  void recover(std::size_t rail, bool fit, Time now);
  void start_trial(std::size_t rail, Time now);
  void end_trial(std::size_t rail, PhaseInput input, std::string reason, Time now);

  bool answered(int rank) const;
  RailSet joined() const;
  RailSet unfit() const;
  RailSet survivors(RailSet candidates) const;
  bool all_channels(std::size_t rail, ChannelState state) const;
  int failed_on(std::size_t rail) const;
  Reach reach(std::vector<std::uint32_t> Position::* channels, std::size_t rail) const;

  const std::size_t count_;
  std::vector<Status> statuses_;  // by rank
  std::vector<Probation> rails_;
  Decision decision_{};
  Time deadline_ = kNever;
};

}  // namespace railweave::recovery
