// SPDX-License-Identifier: Apache-2.0
#include "collectives/columns.hpp"

#include <algorithm>
#include <numeric>
#include <set>
#include <stdexcept>
#include <utility>

namespace railweave {

int MemberRing::columns_of(const std::vector<std::vector<int>>& members) {
  std::size_t columns = 1;
  for (const auto& ranks : members) {
    if (ranks.empty() || ranks.size() > kMostColumns) return 0;
    columns = std::lcm(columns, ranks.size());
    if (columns > kMostColumns) return 0;
  }
  return static_cast<int>(columns);
}

MemberRing::MemberRing(std::vector<std::vector<int>> members, int rank, int world_size)
    : members_(std::move(members)), columns_(columns_of(members_)) {
  if (size() < 2) throw std::invalid_argument("a ring has two members or more");
  if (columns_ == 0)
    throw std::invalid_argument("a ring of empty members, or of sizes with no small common multiple");
  std::set<int> ranks;
  int total = 0;
  for (int member = 0; member < size(); ++member) {
    const std::vector<int>& of = members_[static_cast<std::size_t>(member)];
    total += static_cast<int>(of.size());
    ranks.insert(of.begin(), of.end());
    const auto own = std::find(of.begin(), of.end(), rank);
    if (own == of.end()) continue;
    member_ = member;
    place_ = static_cast<int>(own - of.begin());
  }
  const bool all = total == world_size && static_cast<int>(ranks.size()) == total && *ranks.begin() == 0 &&
                   *ranks.rbegin() == world_size - 1;
  if (!all || member_ < 0) throw std::invalid_argument("a ring holds every rank once");
}

int MemberRing::agent(int member, int column) const {
  const std::vector<int>& ranks = members_[static_cast<std::size_t>(member)];
  return ranks[static_cast<std::size_t>(column) * ranks.size() / static_cast<std::size_t>(columns_)];
}

std::vector<int> MemberRing::peers() const {
  std::set<int> peers;
  for (int column = first_column(); column < first_column() + own_columns(); ++column) {
    peers.insert(agent((member_ + 1) % size(), column));
    peers.insert(agent((member_ + size() - 1) % size(), column));
  }
  return {peers.begin(), peers.end()};
}

// A ring sends to the next member and receives from the one before, and leaves the rest to its owner.
class Columns::Column final : public Transport {
 public:
  Column(Columns& owner, const MemberRing& ring, int own)
      : owner_(owner),
        own_(static_cast<std::size_t>(own)),
        members_(ring.size()),
        member_(ring.member()),
        next_(ring.agent((member_ + 1) % members_, ring.first_column() + own)),
        previous_(ring.agent((member_ + members_ - 1) % members_, ring.first_column() + own)) {
    owner_.sends_[next_].share(own_);
    owner_.receives_[previous_].share(own_);
  }

  std::string_view kind() const override { return owner_.transport_.kind(); }
  int world_size() const override { return members_; }
  int rank() const override { return member_; }
  void post_send(int, Bytes data, Time now) override { owner_.send(own_, next_, data, now); }
  void post_receive(int, MutableBytes into, Time now) override { owner_.receive(own_, previous_, into, now); }
  void set_listener(TransportListener*) override {}
  void begin(const MessageLabel&, Time) override {}
  void announce(const Failure&, Time) override {}
  void abort() override {}
  void halt(Time) override {}
  void restart(std::uint32_t, Time) override {}
  bool ready() const override { return true; }
  RailStats stats() const override { return {}; }

 private:
  Columns& owner_;
  const std::size_t own_;
  const int members_;
  const int member_;
  const int next_;      // rank of the next member's agent
  const int previous_;  // likewise
};

template <typename Message>
void Columns::Turns<Message>::wait(std::size_t column, Message message) {
  const auto at = std::find(columns.begin(), columns.end(), column) - columns.begin();
  waiting[static_cast<std::size_t>(at)].push_back(message);
}

template <typename Message>
std::optional<Message> Columns::Turns<Message>::take() {
  std::deque<Message>& next = waiting[turn];
  if (next.empty()) return std::nullopt;
  const Message message = next.front();
  next.pop_front();
  posted.push_back(columns[turn]);
  turn = (turn + 1) % columns.size();
  return message;
}

template <typename Message>
std::size_t Columns::Turns<Message>::finish() {
  const std::size_t column = posted.front();
  posted.pop_front();
  return column;
}

Columns::Columns(Transport& transport, const MemberRing& ring, bool narrow) : transport_(transport) {
  const int count = narrow ? ring.place() == 0 : ring.own_columns();
  for (int own = 0; own < count; ++own) columns_.push_back(std::make_unique<Column>(*this, ring, own));
}

Columns::~Columns() = default;

Transport& Columns::column(std::size_t index) { return *columns_[index]; }

// A post may finish at once, and its owner post more: each turn is taken before.
void Columns::send(std::size_t column, int peer, Bytes data, Time now) {
  Turns<Bytes>& turns = sends_.at(peer);
  turns.wait(column, data);
  while (const auto next = turns.take()) {
    ++messages_;
    transport_.post_send(peer, *next, now);
  }
}

void Columns::receive(std::size_t column, int peer, MutableBytes into, Time now) {
  Turns<MutableBytes>& turns = receives_.at(peer);
  turns.wait(column, into);
  while (const auto next = turns.take()) transport_.post_receive(peer, *next, now);
}

std::size_t Columns::sent(int peer) { return sends_.at(peer).finish(); }
std::size_t Columns::received(int peer) { return receives_.at(peer).finish(); }

bool Columns::awaits_sent(int peer) const {
  const auto found = sends_.find(peer);
  return found != sends_.end() && !found->second.posted.empty();
}

}  // namespace railweave
