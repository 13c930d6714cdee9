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

#include "collectives/algorithm.hpp"

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

class Columns;

/// A column as the transport of a ring, whose ranks are the ring's members.
class Column final : public Transport {
 public:
  /// Of its ring, by this rank's place among its own columns.
  Column(Columns& owner, const MemberRing& ring, int own);

  /// The machine whose transport it is; its owner's to set.
  std::unique_ptr<BlockRing> machine;

  int next() const { return next_; }          // rank of the next member's agent
  int previous() const { return previous_; }  // likewise
  std::string_view kind() const override;
  int world_size() const override { return members_; }
  int rank() const override { return member_; }
  void post_send(int, Bytes data, Time now) override;
  void post_receive(int, MutableBytes into, Time now) override;
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
  const int members_;
  const int member_;
  const int next_;
  const int previous_;
};

/// Rings of this rank over one transport of all ranks: allreduces of blocks, in each of which every member
/// sends 2 (L - 1) messages.
///
/// The transport only keeps the order of messages between two ranks, which may share several columns. So
/// their messages take turns, one of each column that was opened at the same time, behind all of those that
/// were opened before.
class Columns {
 public:
  Columns(Transport& transport, const MemberRing& ring) : transport_(transport), ring_(ring) {}

  /// Opens columns, by this rank's places among its own ones; a column may be opened more than once. All
  /// ranks open theirs in the same order. They have to live until their machines are finished.
  std::vector<std::unique_ptr<Column>> open(const std::vector<int>& own);
  /// The column of the oldest unfinished send to, or receive from, this rank; it is finished now.
  Column& sent(int peer);
  Column& received(int peer);
  bool awaits_sent(int peer) const;
  /// Messages that columns have given to the transport.
  std::uint64_t messages() const { return messages_; }

 private:
  friend class Column;
  /// What columns that were opened together want to exchange with one peer in one direction.
  template <typename Message>
  struct Round {
    std::vector<Column*> columns;
    std::vector<std::deque<Message>> waiting;  // of each of them
    std::size_t taken = 0;                     // messages
  };
  template <typename Message>
  struct Turns {
    void wait(const Column* column, Message message);
    /// The next message whose turn it is, where a column has so many in all.
    std::optional<Message> take(std::size_t messages);
    Column& finish();

    std::deque<Round<Message>> rounds;
    std::deque<Column*> posted;  // of what the transport has
  };

  std::size_t messages_of_column() const { return 2 * static_cast<std::size_t>(ring_.size() - 1); }
  void send(const Column& column, Bytes data, Time now);
  void receive(const Column& column, MutableBytes into, Time now);

  Transport& transport_;
  const MemberRing& ring_;
  std::map<int, Turns<Bytes>> sends_;            // by peer
  std::map<int, Turns<MutableBytes>> receives_;  // likewise
  std::uint64_t messages_ = 0;
};

}  // namespace railweave
