// SPDX-License-Identifier: Apache-2.0
// Rings whose members are ranks or racks of ranks, several at once over one transport.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "collectives/transport.hpp"

namespace railweave {

/// A ring of members: a rack of ranks that switches add up is one, any other rank another. A tensor is cut
/// into `columns`, which go round the ring on their own. In each, one rank of a rack is its agent, and all
/// ranks of a rack are agents of equally many columns: so what goes round loads all their links alike.
class MemberRing {
 public:
  static constexpr int kMostColumns = 32;

  /// `members`: in the order of the ring, each its ranks in the order of the rack. std::invalid_argument if
  /// not every rank below `world_size` is in it once, if there are not two members, or if the columns are
  /// more than kMostColumns.
  MemberRing(std::vector<std::vector<int>> members, int rank, int world_size);

  int size() const { return static_cast<int>(members_.size()); }
  int columns() const { return columns_; }
  /// The least common multiple of the members' sizes; 0 if that is more than kMostColumns.
  static int columns_of(const std::vector<std::vector<int>>& members);

  /// Where this rank is: its member, and its place in that.
  int member() const { return member_; }
  int place() const { return place_; }
  const std::vector<int>& rack() const { return members_[static_cast<std::size_t>(member_)]; }
  /// The columns of which this rank is the agent, which lie side by side.
  int first_column() const { return place_ * own_columns(); }
  int own_columns() const { return columns_ / static_cast<int>(rack().size()); }
  /// The rank that stands for a member in a column.
  int agent(int member, int column) const;
  /// With whom this rank exchanges messages.
  std::vector<int> peers() const;

 private:
  std::vector<std::vector<int>> members_;
  int columns_ = 0;
  int member_ = -1;
  int place_ = 0;
};

/// This rank's columns as transports, whose ranks are the ring's members, over one transport of all ranks.
///
/// The transport only keeps the order of messages between two ranks, which may share several columns. So
/// their messages take turns, one of each column: all columns that are run together must send each peer
/// equally many.
class Columns {
 public:
  /// `narrow`: of a ring's columns only the first, whose agents are the racks' first ranks.
  Columns(Transport& transport, const MemberRing& ring, bool narrow);
  ~Columns();

  /// How many this rank has.
  std::size_t size() const { return columns_.size(); }
  Transport& column(std::size_t index);
  /// Which column the oldest unfinished send to, or receive from, this rank belongs to; it is finished now.
  std::size_t sent(int peer);
  std::size_t received(int peer);
  bool awaits_sent(int peer) const;
  /// Messages that columns have given to the transport.
  std::uint64_t messages() const { return messages_; }

 private:
  class Column;
  /// What columns want to exchange with one peer in one direction, in turns.
  template <typename Message>
  struct Turns {
    void share(std::size_t column) { columns.push_back(column), waiting.emplace_back(); }
    void wait(std::size_t column, Message message);
    /// The next message whose turn it is.
    std::optional<Message> take();
    std::size_t finish();

    std::vector<std::size_t> columns;
    std::vector<std::deque<Message>> waiting;  // of each of them
    std::size_t turn = 0;
    std::deque<std::size_t> posted;  // columns of what the transport has
  };

  void send(std::size_t column, int peer, Bytes data, Time now);
  void receive(std::size_t column, int peer, MutableBytes into, Time now);

  Transport& transport_;
  std::vector<std::unique_ptr<Column>> columns_;
  std::map<int, Turns<Bytes>> sends_;            // by peer
  std::map<int, Turns<MutableBytes>> receives_;  // likewise
  std::uint64_t messages_ = 0;
};

}  // namespace railweave
