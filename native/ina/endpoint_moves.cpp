// SPDX-License-Identifier: Apache-2.0
// How a group goes on after a halt, or in another tree.
#include <algorithm>
#include <stdexcept>
#include <string>

#include "ina/endpoint.hpp"

namespace railweave::ina {

void Endpoint::halt() {
  abort();
  halted_ = true;
  floor_ = position_ = next_sent_ = next_built_;
}

void Endpoint::restart(std::uint64_t base, Time now) {
  if (!halted_) throw std::logic_error("an endpoint restarts after it was halted");
  if (base < next_chunk())
    throw std::invalid_argument("a group restarts at the greatest next chunk of its ranks: this one's is " +
                                std::to_string(next_chunk()) + ", not " + std::to_string(base));
  floor_ = position_ = next_sent_ = next_built_ = next_task_ = base;
  dead_ = halted_ = false;
  begin_anew(now);
}

/// Nothing is in flight. Earlier measurements may be of another path.
void Endpoint::begin_anew(Time now) {
  for (FlightList* list : {&fresh_, &again_, &lost_}) list->clear();
  window_ = Window(options_.capped_window());
  prober_.reset();
  newest_delivered_ = next_transmission_ - 1;
  untimed_before_ = next_transmission_;
  silence_ = false;
  redo_.reset();
  progress_resumed_at_ = now;
  silent_at_ = kNever;
}

std::uint64_t Endpoint::pause(Time) {
  paused_ = true;
  return position_;
}

void Endpoint::resume(const GroupConfig& config, std::uint64_t resume_from, Time now) {
  if (!paused_) throw std::logic_error("an endpoint resumes after it was paused");
  EndpointOptions options = options_;
  options.group = config.group;
  options.child = config.child;
  options.slots = config.slots;
  options.checked();
  if (config.lanes != options_.lanes)
    throw std::invalid_argument("a group moves between switches of the same lanes: " +
                                std::to_string(options_.lanes) + ", not " + std::to_string(config.lanes));
  if (resume_from > position_)
    throw std::invalid_argument("a group resumes at the least position of its ranks: this one's is " +
                                std::to_string(position_) + ", not " + std::to_string(resume_from));
  if (resume_from < base_)
    throw std::invalid_argument("a group resumes where it resumed before or beyond: at " +
                                std::to_string(base_) + ", not " + std::to_string(resume_from));
  if (next_built_ - std::max(resume_from, floor_) > flights_.capacity())
    throw std::invalid_argument("the contributions to chunk " + std::to_string(resume_from) +
                                " and on are no longer kept: the oldest is " +
                                std::to_string(next_built_ - flights_.capacity()));
  left_group_ = options_.group;
  options_ = options;
  begin_anew(now);
  flights_.grow(std::size_t{2} * options.slots, next_built_);
  base_ = resume_from;
  next_sent_ = first();
  for (std::uint64_t chunk = next_sent_; chunk < next_built_; ++chunk) {
    Flight& flight = flights_.at(chunk);
    flight.state = FlightState::kBuilt;
    flight.transmissions = flight.refused = 0;
    flight.redo = false;
  }
  paused_ = false;
  ++stats_.moves;
}

}  // namespace railweave::ina
