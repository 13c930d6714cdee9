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

// A ring only sends to the next member and receives from the previous one. Its owner does everything else.
Column::Column(Columns& owner, const MemberRing& ring, int own)
    : owner_(owner),
      members_(ring.size()),
      member_(ring.member()),
      next_(ring.agent((member_ + 1) % members_, ring.first_column() + own)),
      previous_(ring.agent((member_ + members_ - 1) % members_, ring.first_column() + own)) {}

std::string_view Column::kind() const { return owner_.transport_.kind(); }
void Column::post_send(int, Bytes data, Time now) { owner_.send(*this, data, now); }
void Column::post_receive(int, MutableBytes into, Time now) { owner_.receive(*this, into, now); }

// Adds a message to the round in which its column was opened. Rounds are served in the order of opening.
template <typename Message>
void Columns::Turns<Message>::wait(const Column* column, Message message) {
  for (Round<Message>& round : rounds) {
    const auto at = std::find(round.columns.begin(), round.columns.end(), column);
    if (at == round.columns.end()) continue;
    return round.waiting[static_cast<std::size_t>(at - round.columns.begin())].push_back(message);
  }
}

template <typename Message>
std::optional<Message> Columns::Turns<Message>::take(std::size_t messages) {
  if (rounds.empty()) return std::nullopt;
  Round<Message>& round = rounds.front();
  const std::size_t turn = round.taken % round.columns.size();
  if (round.waiting[turn].empty()) return std::nullopt;
  const Message message = round.waiting[turn].front();
  round.waiting[turn].pop_front();
  posted.push_back(round.columns[turn]);
  if (++round.taken == messages * round.columns.size()) rounds.pop_front();
  return message;
}

template <typename Message>
Column& Columns::Turns<Message>::finish() {
  Column& column = *posted.front();
  posted.pop_front();
  return column;
}

std::vector<std::unique_ptr<Column>> Columns::open(const std::vector<int>& own) {
  std::vector<std::unique_ptr<Column>> opened;
  const auto share = [](auto& turns, Column& column, bool first) {
    if (first) turns.rounds.emplace_back();
    turns.rounds.back().columns.push_back(&column);
    turns.rounds.back().waiting.emplace_back();
  };
  std::set<int> next, previous;
  for (const int place : own) {
    Column& column = *opened.emplace_back(std::make_unique<Column>(*this, ring_, place));
    share(sends_[column.next()], column, next.insert(column.next()).second);
    share(receives_[column.previous()], column, previous.insert(column.previous()).second);
  }
  return opened;
}

// A post may finish at once, and its owner may then post more. So each turn is taken before its post.
void Columns::send(const Column& column, Bytes data, Time now) {
  Turns<Bytes>& turns = sends_.at(column.next());
  turns.wait(&column, data);
  while (const auto next = turns.take(messages_of_column())) {
    ++messages_;
    transport_.post_send(column.next(), *next, now);
  }
}

void Columns::receive(const Column& column, MutableBytes into, Time now) {
  Turns<MutableBytes>& turns = receives_.at(column.previous());
  turns.wait(&column, into);
  while (const auto next = turns.take(messages_of_column()))
    transport_.post_receive(column.previous(), *next, now);
}

Column& Columns::sent(int peer) { return sends_.at(peer).finish(); }
Column& Columns::received(int peer) { return receives_.at(peer).finish(); }

bool Columns::awaits_sent(int peer) const {
  const auto found = sends_.find(peer);
  return found != sends_.end() && !found->second.posted.empty();
}

}  // namespace railweave
