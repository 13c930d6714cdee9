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

/// A ring of members. A member is a rack of ranks whose data switches add up, or a single rank. A tensor is
/// cut into `columns`, which go round the ring independently. For each column, a rack has one rank as its
/// agent. All ranks of a rack are agents of equally many columns, so that the load of their links is equal.
class MemberRing {
 public:
  static constexpr int kMostColumns = 32;

  /// `members` are in the order of the ring, and a member's ranks in the order of the rack. Throws
  /// std::invalid_argument unless `members` holds every rank below `world_size` once, has two members or
  /// more, and needs at most kMostColumns columns.
  MemberRing(std::vector<std::vector<int>> members, int rank, int world_size);

  int size() const { return static_cast<int>(members_.size()); }
  int columns() const { return columns_; }
  /// The least common multiple of the members' sizes; 0 if that is more than kMostColumns.
  static int columns_of(const std::vector<std::vector<int>>& members);

  /// This rank's member, and its place in the member.
  int member() const { return member_; }
  int place() const { return place_; }
  const std::vector<int>& rack() const { return members_[static_cast<std::size_t>(member_)]; }
  /// This rank is the agent of `own_columns` columns in a row, from `first_column` on.
  int first_column() const { return place_ * own_columns(); }
  int own_columns() const { return columns_ / static_cast<int>(rack().size()); }
  /// The rank that acts for a member in a column.
  int agent(int member, int column) const;
  /// The ranks that exchange messages with this rank.
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
  /// `own` is the column's index among this rank's columns.
  Column(Columns& owner, const MemberRing& ring, int own);

  /// The machine that uses this transport. The column's owner sets it.
  std::unique_ptr<BlockRing> machine;

  int next() const { return next_; }          // rank of the next member's agent
  int previous() const { return previous_; }  // rank of the previous member's agent
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

/// This rank's rings over one transport of all ranks. Each ring is an allreduce of blocks, in which each of
/// the L members sends 2 (L - 1) messages.
///
/// Two ranks may share several columns, but the transport only keeps the order of messages between two ranks.
/// So columns that were opened together take turns, one message each. All messages of columns that were
/// opened before go first.
class Columns {
 public:
  Columns(Transport& transport, const MemberRing& ring) : transport_(transport), ring_(ring) {}

  /// Opens columns, given by their index among this rank's columns. A column may be opened more than once.
  /// All ranks open columns in the same order. Columns that are opened together live until all their machines
  /// are finished.
  std::vector<std::unique_ptr<Column>> open(const std::vector<int>& own);
  /// Finishes the oldest unfinished send to, or receive from, `peer`. Returns its column.
  Column& sent(int peer);
  Column& received(int peer);
  bool awaits_sent(int peer) const;
  /// Messages that columns have given to the transport.
  std::uint64_t messages() const { return messages_; }

 private:
  friend class Column;
  /// Messages to or from one peer, of columns that were opened together.
  template <typename Message>
  struct Round {
    std::vector<Column*> columns;
    std::vector<std::deque<Message>> waiting;  // by column
    std::size_t taken = 0;                     // messages, by the transport
  };
  template <typename Message>
  struct Turns {
    void wait(const Column* column, Message message);
    /// Takes the message whose turn it is, if it waits. A column has `messages` messages in total.
    std::optional<Message> take(std::size_t messages);
    Column& finish();

    std::deque<Round<Message>> rounds;
    std::deque<Column*> posted;  // columns of the messages that the transport has
  };

  std::size_t messages_of_column() const { return 2 * static_cast<std::size_t>(ring_.size() - 1); }
  void send(const Column& column, Bytes data, Time now);
  void receive(const Column& column, MutableBytes into, Time now);

  Transport& transport_;
  const MemberRing& ring_;
  std::map<int, Turns<Bytes>> sends_;            // by peer
  std::map<int, Turns<MutableBytes>> receives_;  // by peer
  std::uint64_t messages_ = 0;
};

}  // namespace railweave
