// SPDX-License-Identifier: Apache-2.0
#include "rails/tcp_transport.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "collectives/choose.hpp"
#include "core/timing.hpp"

namespace railweave {
namespace {

constexpr std::size_t kSparePlaces = 16;  // per address, besides one for each rank that may dial from it
constexpr Duration kFirstPause = 5 * kMillisecond;    // between two dials
constexpr Duration kAcceptPause = 20 * kMillisecond;  // after no descriptor was left

}  // namespace

TcpTransport::TcpTransport(EventLoop& loop, const TcpTransportOptions& options)
    : loop_(loop),
      options_(options),
      interface_(interface_index(options.local.interface)),
      listening_(listen_on(options.local, options.port)),
      port_(port_of(listening_)) {}

TcpTransport::~TcpTransport() {
  for (const auto& handshake : handshakes_) loop_.unwatch(handshake->socket().get());
  if (!members_.empty()) loop_.unwatch(listening_.get());
}

// ---------------------------------------------------------------- joining

void TcpTransport::introduce(const Key& key, int rank, const std::vector<SocketAddress>& members) {
  std::map<std::uint32_t, std::size_t> dialling;
  for (std::size_t other = static_cast<std::size_t>(rank) + 1; other < members.size(); ++other)
    ++dialling[ipv4(members[other]).sin_addr.s_addr];
  dialling_ = std::move(dialling);
  key_ = key;
  rank_ = rank;
  members_ = members;
  peers_ = neighbours(rank, world_size());
  peers_.insert(peers_.end(), extra_peers_.begin(), extra_peers_.end());
  std::sort(peers_.begin(), peers_.end());
  peers_.erase(std::unique(peers_.begin(), peers_.end()), peers_.end());
  redials_.resize(members.size());
  heard_dials_.resize(members.size());
  parked_.resize(members.size());
  connections_.resize(members.size());
  loop_.watch(listening_.get(), EPOLLIN, *this);
}

void TcpTransport::connect(const Key& key, int rank, const std::vector<SocketAddress>& members, Time now) {
  introduce(key, rank, members);
  join(0, now);
}

void TcpTransport::restart(std::uint32_t incarnation, Time now) {
  if (members_.empty() || running_)
    throw std::logic_error("connections are restarted once it is known who takes part, and after a halt");
  if (incarnation <= incarnation_)
    throw std::logic_error("connections were in incarnation " + std::to_string(incarnation_) +
                           " before they are to restart as " + std::to_string(incarnation));
  follow_interface();
  join(incarnation, now);
}

/// Called only at a restart, because a rail that is not in use must accept nobody. A peer that dials earlier
/// is refused and tries again.
void TcpTransport::follow_interface() {
  const unsigned index = interface_index(options_.local.interface);
  if (index == interface_) return;
  Descriptor socket = listen_on(options_.local, port_);
  loop_.unwatch(listening_.get());
  loop_.watch(socket.get(), EPOLLIN, *this);
  listening_ = std::move(socket);
  interface_ = index;
  for (auto& parked : parked_) parked.reset();  // came over the old interface
}

void TcpTransport::join(std::uint32_t incarnation, Time now) {
  incarnation_ = incarnation;
  check_.restart();
  running_ = true;
  failed_ = false;
  for (const int peer : peers_) {
    if (peer > rank()) break;
    redials_[peer].pause = kFirstPause;
    dial_peer(peer, now);
  }
  for (int peer = 0; peer < world_size(); ++peer) {
    if (!parked_[peer] || parked_[peer]->hello.incarnation > incarnation) continue;
    Parked parked = *std::exchange(parked_[peer], std::nullopt);
    if (parked.hello.incarnation == incarnation) answer(std::move(parked.socket), parked.hello, now);
  }
}

std::vector<int> TcpTransport::missing() const {
  std::vector<int> ranks;
  for (const int peer : peers_) {
    if (!connections_[peer]) ranks.push_back(peer);
  }
  return ranks;
}

void TcpTransport::dial_peer(int peer, Time now) {
  redials_[peer].at = kNever;
  // The kernel repeats a SYN after a second. This is too late for a rail that has just come back.
  const Time deadline = patient() ? now + timing::kDialPatience : kNever;
  try {
    add_handshake(dial(options_.local, members_[peer]), peer, EPOLLOUT, deadline);
  } catch (const std::system_error& error) {
    try_again(peer, error.what(), now);
  }
}

void TcpTransport::try_again(int peer, const std::string& message, Time now) {
  last_refusal_ = message;
  if (failed_) return;
  Redial& redial = redials_[peer];
  redial.at = now + redial.pause;
  bring_forward(redial.at);
  redial.pause = std::min(2 * redial.pause, timing::kMostDialPause);
}

void TcpTransport::on_ready(std::uint32_t, Time now) {
  for (;;) {
    auto [socket, from, exhausted] = accept_from(listening_);
    if (exhausted) {  // else the listener stays readable, and the loop never sleeps
      accept_again_at_ = now + kAcceptPause;
      bring_forward(accept_again_at_);
      loop_.rewatch(listening_.get(), 0, *this);
    }
    if (!socket) return;
    if (!dialling_.contains(from)) {
      ++strangers_;
      continue;
    }
    make_room(from, now);
    add_handshake(std::move(socket), -1, EPOLLIN, now + options_.hello_timeout, from);
  }
}

void TcpTransport::make_room(std::uint32_t from, Time now) {
  const auto silent = [from](const auto& handshake) {
    return handshake->stage() == TcpHandshake::Stage::kAccepted && handshake->from() == from;
  };
  const auto places = static_cast<std::ptrdiff_t>(dialling_.at(from) + kSparePlaces);
  if (std::ranges::count_if(handshakes_, silent) < places) return;
  TcpHandshake* const oldest = std::ranges::find_if(handshakes_, silent)->get();
  handshake_ready(*oldest, EPOLLIN, now);  // its hello may be unread
  const auto left = std::ranges::find_if(handshakes_, silent);
  if (left != handshakes_.end() && left->get() == oldest) refuse(*oldest, /*stranger=*/true, now);
}

TcpHandshake& TcpTransport::add_handshake(Descriptor socket, int peer, std::uint32_t events, Time deadline,
                                          std::uint32_t from) {
  auto& handshake = handshakes_.emplace_back(
      std::make_unique<TcpHandshake>(*this, std::move(socket), peer, from, deadline));
  loop_.watch(handshake->socket().get(), events, *handshake);
  bring_forward(deadline);
  return *handshake;
}

Descriptor TcpTransport::remove_handshake(TcpHandshake& handshake) {
  loop_.unwatch(handshake.socket().get());
  Descriptor socket = std::move(handshake.socket());
  std::erase_if(handshakes_, [&handshake](const auto& held) { return held.get() == &handshake; });
  return socket;
}

void TcpHandshake::on_ready(std::uint32_t events, Time now) {
  transport_.handshake_ready(*this, events, now);
}

void TcpTransport::handshake_ready(TcpHandshake& handshake, std::uint32_t events, Time now) {
  if (events & EPOLLOUT) return greet(handshake, now);
  const TcpHandshake::Heard heard = handshake.hear();
  if (heard == TcpHandshake::Heard::kNothingYet) return;
  switch (handshake.stage()) {
    case TcpHandshake::Stage::kDialled:
      if (heard == TcpHandshake::Heard::kMessage) return take_answer(handshake, now);
      return refuse(handshake, /*stranger=*/!patient(), now);
    case TcpHandshake::Stage::kAccepted:
      if (heard == TcpHandshake::Heard::kMessage) return take_hello(handshake, now);
      return refuse(handshake, /*stranger=*/true, now);
    case TcpHandshake::Stage::kAnswered:
      if (heard == TcpHandshake::Heard::kMessage) return take_proof(handshake, now);
      return refuse(handshake, /*stranger=*/false, now);  // the peer has given up
  }
}

Hello TcpTransport::hello_to(int peer, std::uint64_t number) const {
  return {.rank = static_cast<std::uint32_t>(rank_),
          .to = static_cast<std::uint32_t>(peer),
          .world_size = static_cast<std::uint32_t>(members_.size()),
          .incarnation = incarnation_,
          .number = number};
}

void TcpTransport::greet(TcpHandshake& handshake, Time now) {
  const int peer = handshake.peer();
  int error = pending_error(handshake.socket());
  handshake.set_first(hello_to(peer, ++redials_[peer].dials));
  if (error == 0 && send_whole(handshake.socket(), encode(handshake.first(), 0, key_))) {
    handshake.set_deadline(kNever);  // the peer answers when it reaches this incarnation
    return loop_.rewatch(handshake.socket().get(), EPOLLIN, handshake);
  }
  if (error == 0) error = errno;
  remove_handshake(handshake);
  try_again(peer, "cannot connect to " + name_of(peer) + ": " + std::strerror(error), now);
}

void TcpTransport::refuse(TcpHandshake& handshake, bool stranger, Time now) {
  const int peer = handshake.peer();
  const bool dialled = handshake.dialled();
  remove_handshake(handshake);
  strangers_ += stranger;
  if (!dialled) return;
  try_again(
      peer,
      name_of(peer) + " does not answer as a rank of this job: it has failed, or the address is another's",
      now);
}

/// For a connection that this rank has dialled.
void TcpTransport::take_answer(TcpHandshake& handshake, Time now) {
  const int peer = handshake.peer();
  const Hello first = handshake.first();
  const auto answer = decode_hello(handshake.message(), first.number, key_);
  Hello expected = first;
  std::swap(expected.rank, expected.to);
  expected.number = answer ? answer->number : 0;
  if (answer != expected || !send_whole(handshake.socket(), proof(first, *answer, key_)))
    return refuse(handshake, /*stranger=*/!patient(), now);
  adopt(peer, remove_handshake(handshake), first, *answer, now);
}

// Only higher ranks dial this rank, and each connects once. A dial without a new, greater number is a copy.
void TcpTransport::take_hello(TcpHandshake& handshake, Time now) {
  const auto hello = decode_hello(handshake.message(), 0, key_);
  const bool of_peer = hello && hello->to == static_cast<std::uint32_t>(rank_) && hello->rank > hello->to &&
                       hello->rank < members_.size() && hello->world_size == members_.size();
  if (!of_peer || hello->number <= heard_dials_[hello->rank])
    return refuse(handshake, /*stranger=*/true, now);
  const std::uint32_t peer = hello->rank;
  heard_dials_[peer] = hello->number;
  if (hello->incarnation == incarnation_ && connections_[peer])
    return refuse(handshake, /*stranger=*/true, now);
  Descriptor socket = remove_handshake(handshake);
  if (hello->incarnation > incarnation_) {
    parked_[peer] = Parked{.socket = std::move(socket), .hello = *hello};
  } else if (hello->incarnation == incarnation_ && running_) {
    answer(std::move(socket), *hello, now);
  }  // else `socket` closes here, and the peer tries again
}

/// Only the last dial of a peer counts.
void TcpTransport::answer(Descriptor socket, const Hello& hello, Time now) {
  const auto earlier = std::ranges::find_if(handshakes_, [&](const auto& handshake) {
    return handshake->stage() == TcpHandshake::Stage::kAnswered &&
           handshake->peer() == static_cast<int>(hello.rank);
  });
  if (earlier != handshakes_.end()) remove_handshake(**earlier);
  const Hello own = hello_to(static_cast<int>(hello.rank), random_number());
  if (!send_whole(socket, encode(own, hello.number, key_))) return;
  TcpHandshake& handshake = add_handshake(std::move(socket), -1, EPOLLIN, now + options_.hello_timeout);
  handshake.set_first(hello);
  handshake.answered(own);
}

void TcpTransport::take_proof(TcpHandshake& handshake, Time now) {
  const int peer = handshake.peer();
  if (!equal(proof(handshake.first(), handshake.answer(), key_), {handshake.message(), sizeof(Mac)}))
    return refuse(handshake, /*stranger=*/true, now);
  const Hello first = handshake.first(), answer = handshake.answer();
  adopt(peer, remove_handshake(handshake), first, answer, now);
}

void TcpTransport::adopt(int peer, Descriptor socket, const Hello& dialled, const Hello& answer, Time now) {
  tune(socket);
  TransportListener& listener = *this;
  const auto key_of = [&](int sender) {
    return stream_key(dialled, answer, static_cast<std::uint32_t>(sender), key_);
  };
  connections_[peer] =
      std::make_unique<TcpConnection>(loop_, check_, peer, name_of(peer), std::move(socket), listener,
                                      options_.liveness, key_of(rank()), key_of(peer));
  bring_forward(connections_[peer]->deadline());
  if (!missing().empty() || failed_) return;
  joined_ = true;
  if (listener_ != nullptr) listener_->joined(now);
}

std::string TcpTransport::name_of(int peer) const {
  return "rank " + std::to_string(peer) + " at " + to_string(members_[peer]);
}

// ---------------------------------------------------------------- messages

void TcpTransport::post_send(int peer, Bytes data, Time now) {
  if (const auto& connection = connections_[peer]) connection->post_send(data, now);
}

void TcpTransport::post_receive(int peer, MutableBytes into, Time now) {
  if (const auto& connection = connections_[peer]) connection->post_receive(into, now);
}

template <typename Action>
void TcpTransport::for_each_connection(const Action& action) const {
  for (const auto& connection : connections_) {
    if (connection) action(*connection);
  }
}

Time TcpTransport::next_deadline() const {
  if (!halted_.empty()) return 0;  // at once: `expire` destroys them, when their code is not running
  Time next = accept_again_at_;
  for (const auto& handshake : handshakes_) next = std::min(next, handshake->deadline());
  for (const Redial& redial : redials_) next = std::min(next, redial.at);
  for_each_connection([&](const TcpConnection& connection) { next = std::min(next, connection.deadline()); });
  return next;
}

void TcpTransport::expire(Time now) {
  for (const auto& connection : halted_) connection->add_counts(past_);
  halted_.clear();
  if (accept_again_at_ <= now) {
    accept_again_at_ = kNever;
    loop_.rewatch(listening_.get(), EPOLLIN, *this);
  }
  const auto late = [now](const auto& handshake) { return handshake->deadline() <= now; };
  for (auto found = handshakes_.begin();
       (found = std::find_if(handshakes_.begin(), handshakes_.end(), late)) != handshakes_.end();) {
    refuse(**found, /*stranger=*/!(*found)->dialled() || !patient(), now);
  }
  for (int peer = 0; peer < static_cast<int>(redials_.size()); ++peer) {
    if (redials_[peer].at <= now) dial_peer(peer, now);
  }
  for (const auto& connection : connections_) {
    if (connection && connection->deadline() <= now) connection->expire(now);
  }
  deadline_ = next_deadline();
}

void TcpTransport::begin(const MessageLabel& label, Time now) {
  check_.begin(label);
  skip_call(now);
}

void TcpTransport::skip_call(Time now) {
  for_each_connection([&](TcpConnection& connection) { connection.check_waiting(now); });
}

bool TcpTransport::heard_recently(int peer, Time now) const {
  const auto& connection = connections_.at(static_cast<std::size_t>(peer));
  return connection && connection->heard_recently(now);
}

void TcpTransport::failed(const Failure& failure, Time now) {
  if (!std::exchange(failed_, true)) listener_->failed(failure, now);
}

void TcpTransport::announce(const Failure& failure, Time now) {
  for_each_connection([&](TcpConnection& connection) { connection.announce(failure, now); });
}

void TcpTransport::abort() {
  failed_ = true;
  for (Redial& redial : redials_) redial.at = kNever;
  for_each_connection([](TcpConnection& connection) { connection.abort(); });
}

// Accepted connections without a hello stay: they may belong to the next incarnation.
void TcpTransport::halt(Time) {
  running_ = joined_ = false;
  failed_ = true;
  for (Redial& redial : redials_) redial.at = kNever;
  while (true) {
    const auto of_this = [](const auto& handshake) {
      return handshake->stage() != TcpHandshake::Stage::kAccepted;
    };
    const auto found = std::find_if(handshakes_.begin(), handshakes_.end(), of_this);
    if (found == handshakes_.end()) break;
    remove_handshake(**found);
  }
  for (auto& connection : connections_) {
    if (!connection) continue;
    connection->halt();
    halted_.push_back(std::move(connection));
  }
  bring_forward(next_deadline());
}

void TcpTransport::close(Time now) {
  for_each_connection([&](TcpConnection& connection) { connection.close(now); });
}

bool TcpTransport::closed() const {
  return std::all_of(connections_.begin(), connections_.end(),
                     [](const auto& connection) { return !connection || connection->closed(); });
}

RailStats TcpTransport::stats() const {
  RailStats stats = past_;
  for_each_connection([&](const TcpConnection& connection) { connection.add_counts(stats); });
  for (const auto& connection : halted_) connection->add_counts(stats);
  stats.malformed = strangers_;
  return stats;
}

}  // namespace railweave
