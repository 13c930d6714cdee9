// SPDX-License-Identifier: Apache-2.0
#include "spread/spreader.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

namespace railweave::spread {
namespace {

// At most this many later chunks of a source make a gap. They take one path, where few are overtaken.
constexpr std::uint32_t kMostReorder = 256;
constexpr std::size_t kMostQuestions = 1024;  // that wait to be sent
constexpr std::size_t kMostAnswers = 1024;    // FETCHes that wait for their answers
constexpr std::size_t kMostEarly = 512;       // packets of tasks that this rank has not begun
constexpr std::uint32_t kLongestRun = 8;      // chunks of one answer, before the next has its turn
constexpr Duration kMostCalm = 40 * kMillisecond;
constexpr Duration kMostPatience = 100 * kMillisecond;
constexpr int kMostDoublings = 3;
constexpr Duration kLate = 2 * kMillisecond;  // a timer this late shows that the process had no core

}  // namespace

const SpreaderOptions& SpreaderOptions::checked() const {
  auto demand = [](bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(what);
  };
  demand(child < ina::kMaxChildren, "child must be 0 to 30");
  demand(world_size >= 2 && world_size <= 65535, "world size must be 2 to 65535");
  demand(rank >= 0 && rank < world_size, "rank must be one of the world's");
  demand(roots >= 1, "at least one rank sends");
  return *this;
}

std::uint64_t SpreaderStats::refused_in_all() const {
  return std::accumulate(refused.begin(), refused.end(), std::uint64_t{0});
}

Keys Keys::of(const Secret& secret, std::uint64_t tree) {
  return {.spread = derive_key(secret, "spread", tree), .fetch = derive_key(secret, "fetch", tree)};
}

Spreader::Spreader(const SpreaderOptions& options)
    : options_(options.checked()),
      left_(static_cast<std::uint16_t>((options.rank + options.world_size - 1) % options.world_size)),
      pacer_(options.rate_bps) {
  if (!options.keys) return;
  fetches_.resize(static_cast<std::size_t>(options.world_size));
  heard_.resize(fetches_.size());
}

void Spreader::start(std::uint64_t task, const Slice& slice, std::size_t chunk_bytes, std::size_t unfinished,
                     Time now) {
  if (slice.world_size != options_.world_size || slice.rank != options_.rank)
    throw std::invalid_argument("the slice is of another rank or world size than the group");
  if (last_task_ && task <= *last_task_)
    throw std::invalid_argument("the numbers of tasks grow: " + std::to_string(task) + " came after " +
                                std::to_string(*last_task_));
  drop(tasks_.size(), unfinished);
  Task made(task, slice, chunk_bytes, options_.roots,
            options_.keys ? std::optional(options_.keys->spread) : std::nullopt);
  reserve(chunk_bytes);
  reorder_ = std::max(reorder_ / 2, kLeastReorder);
  calm_ = std::max(calm_ / 2, kLeastCalm);
  if (made.own() != Task::kNone)
    pacer_.begin(ina::kHeaderBytes + made.chunk_size(0) + code_bytes(), made.own() % made.roots(), now);
  ++stats_.tasks;
  last_task_ = task;
  tasks_.push_back(std::move(made));
  if (front_ + 1 == tasks_.size()) watch(now);
  settle(now);
  take_early(now);
}

/// Drops the finished tasks among the first `before`, except the last `unfinished`.
void Spreader::drop(std::size_t before, std::size_t unfinished) {
  for (; before > unfinished && front_ > 0; --before) {
    tasks_.pop_front();
    --front_;
    if (sending_ > 0) --sending_;
  }
}

void Spreader::forget(std::uint64_t task, std::size_t unfinished) {
  std::size_t before = 0;
  while (before < tasks_.size() && tasks_[before].number() < task) ++before;
  drop(before, unfinished);
}

/// The task number with these low bits that is nearest to the last task's.
std::uint64_t Spreader::number_of(std::uint32_t mark) const {
  const std::uint64_t last = last_task_.value_or(near_);
  const auto ahead = static_cast<std::int32_t>(mark - static_cast<std::uint32_t>(last));
  return last + static_cast<std::uint64_t>(std::int64_t{ahead});
}

Task* Spreader::find(std::uint64_t number) {
  const auto found = std::lower_bound(tasks_.begin(), tasks_.end(), number,
                                      [](const Task& each, std::uint64_t of) { return each.number() < of; });
  return found != tasks_.end() && found->number() == number ? &*found : nullptr;
}

// --- receiving ---

void Spreader::receive(Bytes datagram, Time now, std::uint64_t near) {
  near_ = near;
  if (datagram.size() < ina::kHeaderBytes) return refuse(Refusal::kShort);
  const ina::Header header = ina::decode(datagram.data());
  const Bytes body = datagram.subspan(ina::kHeaderBytes);
  if (header.version != ina::kVersion) return refuse(Refusal::kVersion);
  if (header.group != options_.group) {
    if (header.group != left_group_) return refuse(Refusal::kGroup);
    ++stats_.stale;
    return;
  }
  if (header.kind == static_cast<std::uint8_t>(ina::Kind::kSpread)) {
    if (const auto payload = proven(header, body)) receive_spread(header, *payload, now);
    return;
  }
  if (header.kind == static_cast<std::uint8_t>(ina::Kind::kFetch)) return receive_fetch(header, body, now);
  refuse(Refusal::kKind);
}

/// The payload of a SPREAD with a valid code.
std::optional<Bytes> Spreader::proven(const ina::Header& header, Bytes body) {
  if (!options_.keys) return body;
  if (body.size() < kCodeBytes) {
    refuse(Refusal::kLength);
    return std::nullopt;
  }
  const Bytes payload = body.first(body.size() - kCodeBytes);
  const Mac code = code_of(options_.keys->spread, number_of(header.mark), header.slot, header.round, payload);
  if (equal(code, body.last(kCodeBytes))) return payload;
  refuse(Refusal::kCode);
  return std::nullopt;
}

void Spreader::receive_spread(const ina::Header& header, Bytes payload, Time now) {
  Task* const task = find(number_of(header.mark));
  if (task == nullptr) return keep_early(header, payload);
  const std::uint32_t shard = task->shard_of(header.slot);
  const std::uint32_t chunk = header.round;
  if (shard == Task::kNone || shard == task->own()) return refuse(Refusal::kSource);
  if (chunk >= task->chunks()) return refuse(Refusal::kChunk);
  if (payload.size() != task->chunk_size(chunk)) return refuse(Refusal::kLength);
  if (!task->place(shard, chunk, payload)) {
    ++stats_.duplicates;
    hasty_ |= (header.flags & ina::flag::kRetransmission) != 0;
    return;
  }
  ++stats_.received;
  stats_.received_bytes += payload.size();
  if (header.flags & ina::flag::kRetransmission) {
    ++stats_.fetched;
    stats_.fetched_bytes += payload.size();
  } else {
    reach_ = kLeastReach;
  }
  // The chunk was not lost, but overtaken by more chunks than expected.
  const bool overtaken = !(header.flags & ina::flag::kRetransmission) && chunk < task->judged(shard);
  if (overtaken) reorder_ = std::min(2 * reorder_, kMostReorder);
  take_answer_time(header, now);
  progress(*task, now);
  const std::uint32_t frontier = task->frontier(shard);
  ask_gaps(*task, shard, frontier > reorder_ ? frontier - reorder_ : 0);
  // A rank in the middle of its shard began when the one before it had sent all except its last few chunks.
  if (shard >= task->roots() && frontier > kLastChunks + reorder_ && shard - task->roots() != task->own())
    ask_gaps(*task, shard - task->roots(), task->chunks());
  settle(now);
}

/// Others may know before this rank that all are ready, because its result of READY may be lost or overtaken.
void Spreader::keep_early(const ina::Header& header, Bytes payload) {
  const bool ahead = !last_task_ || static_cast<std::int64_t>(number_of(header.mark) - *last_task_) > 0;
  if (ahead) early_.push_back({header, {payload.begin(), payload.end()}});
  if (ahead && early_.size() <= kMostEarly) return;
  if (ahead) early_.pop_front();
  ++stats_.stale;
}

void Spreader::take_early(Time now) {
  for (const Early& each : std::exchange(early_, {})) receive_spread(each.header, each.payload, now);
}

/// Times the first answer to a question that was sent once, as RFC 6298 times segments.
void Spreader::take_answer_time(const ina::Header& header, Time now) {
  if (asked_at_ == kNever || header.mark != static_cast<std::uint32_t>(timed_.task) ||
      header.slot != timed_.source || header.round != timed_.range.first)
    return;
  answer_time_.sample(now - asked_at_);
  asked_at_ = kNever;
}

Mac Spreader::code_of_fetch(const Question& question, std::uint16_t sender, std::uint64_t number) const {
  std::array<std::byte, 8 + 2 + 4 + 2 + 2 + 2 + 2 + 8> said;
  store_fields(said.data(), question.task, question.source, question.range.first, question.origin,
               static_cast<std::uint16_t>(question.range.count), sender, question.to, number);
  return authenticate(options_.keys->fetch, said);
}

/// A peer's question to this rank, if it is valid.
std::optional<Spreader::Question> Spreader::question(const ina::Header& header, Bytes body) {
  const auto no = [this](Refusal why) {
    refuse(why);
    return std::nullopt;
  };
  if (body.size() != kQuestionBytes + (options_.keys ? kFetchProofBytes : 0)) return no(Refusal::kLength);
  std::uint16_t origin, count, sender;
  std::uint64_t number;
  const std::byte* const proof = load_fields(body.data(), origin, count);
  const Question question{.task = number_of(header.mark),
                          .source = header.slot,
                          .origin = origin,
                          .to = static_cast<std::uint16_t>(options_.rank),
                          .range = {.first = header.round, .count = count}};
  if (!options_.keys) return question;
  load_fields(proof, sender, number);
  if (!equal(code_of_fetch(question, sender, number), body.last(kCodeBytes))) return no(Refusal::kCode);
  if (sender >= heard_.size() || !heard_[sender].take(number)) return no(Refusal::kReplay);
  return question;
}

void Spreader::receive_fetch(const ina::Header& header, Bytes body, Time now) {
  const auto asked_for = question(header, body);
  if (!asked_for) return;
  const std::uint16_t origin = asked_for->origin;
  Range range = asked_for->range;
  Task* const task = find(asked_for->task);
  if (task == nullptr) {
    ++stats_.stale;
    return;
  }
  const std::uint32_t shard = task->shard_of(header.slot);
  if (shard == Task::kNone) return refuse(Refusal::kSource);
  if (origin >= options_.world_size || origin == options_.rank || origin == header.slot)
    return refuse(Refusal::kOrigin);
  if (range.count < 1 || range.count > kMostFetched || range.first >= task->chunks() ||
      range.count > task->chunks() - range.first)
    return refuse(Refusal::kChunk);
  if (shard == task->own()) {
    // Chunks that have not been sent yet will go to all ranks.
    const std::uint32_t sent = task->frontier(shard);
    range.count = std::min(range.count, sent - std::min(range.first, sent));
  }
  if (range.count > 0 && task->has(shard, range)) {
    Answer asked{.task = task->number(), .shard = shard, .origin = origin, .rest = range};
    asked.rest = unanswered(asked);
    const bool taken = answers_.size() < kMostAnswers && asked.rest.count > 0;
    if (taken) answers_.push_back(asked);
    if (taken && shard == task->own()) pacer_.lost(now);
    ++(taken ? stats_.fetches_taken : stats_.fetches_dropped);
  } else if (shard != task->own() && questions_.size() < kMostQuestions) {
    ++stats_.fetches_passed;
    questions_.push_back(
        {.task = task->number(), .source = header.slot, .origin = origin, .to = header.slot, .range = range});
  } else {
    ++stats_.fetches_dropped;
  }
}

// --- asking ---

void Spreader::ask(const Task& task, std::uint32_t shard, Range range, std::uint16_t to) {
  questions_.push_back({.task = task.number(),
                        .source = task.rank_of(shard),
                        .origin = static_cast<std::uint16_t>(options_.rank),
                        .to = to,
                        .range = range});
}

/// Asks for missing chunks before `limit` that it has not asked for. If too many questions wait, it asks for
/// the rest later.
void Spreader::ask_gaps(Task& task, std::uint32_t shard, std::uint32_t limit) {
  std::uint32_t& judged = task.judged(shard);
  while (judged < limit && questions_.size() < kMostQuestions) {
    const Range gap = task.gap(shard, judged, limit);
    if (gap.count > 0) ask(task, shard, gap, left_);
    judged = gap.count > 0 ? gap.first + gap.count : limit;
  }
}

/// Nothing has come of the oldest task for long. Asks for missing chunks up to the last that came, and for a
/// few more. These double each time until a chunk is multicast again. An owner does not answer for chunks
/// that it has not sent. But an owner that runs late has sent them when it reads the question.
void Spreader::ask_again(Time now) {
  const Task& task = tasks_[front_];
  asked_at_ = kNever;  // an answer may be to either question
  if (std::exchange(hasty_, false)) calm_ = std::min(2 * calm_, kMostCalm);
  if (questions_.empty()) {
    for (std::uint32_t shard = 0; shard < task.shards(); ++shard) {
      if (shard == task.own() || task.complete(shard) || !task.due(shard)) continue;
      const std::uint64_t far = std::uint64_t{task.frontier(shard)} + reach_;
      const auto limit = static_cast<std::uint32_t>(std::min<std::uint64_t>(far, task.chunks()));
      const std::uint16_t to = silences_ == 0 ? left_ : task.rank_of(shard);
      for (Range gap; questions_.size() < kMostQuestions;) {
        gap = task.gap(shard, gap.first + gap.count, limit);
        if (gap.count == 0) break;
        ask(task, shard, gap, to);
      }
    }
    reach_ = std::min(2 * reach_, kMostFetched);
  }
  stats_.silences += !questions_.empty();
  silences_ = std::min(silences_ + 1, kMostDoublings);
  watch(now);
}

Duration Spreader::patience() const {
  const Duration usual = 2 * answer_time_.smoothed() + 4 * answer_time_.variation();
  return std::min(std::max({usual, calm_, 2 * reducing_}) << silences_, kMostPatience);
}

/// A chunk of the task has come, or was sent. While a rank sends, other ranks may wait for this rank.
void Spreader::progress(const Task& task, Time now) {
  if (&task != &tasks_[front_]) return;
  silences_ = 0;
  was_late_ = false;
  watch(now);
}

void Spreader::watch(Time now) { quiet_at_ = idle() ? kNever : now + patience(); }

// --- sending ---

/// The task whose own shard has the next chunk to send. Null if nothing is left, or if others have their
/// turn.
Task* Spreader::sending() {
  while (sending_ < tasks_.size() && tasks_[sending_].over()) ++sending_;
  if (sending_ == tasks_.size()) return nullptr;
  Task& task = tasks_[sending_];
  const bool turn = task.own() != Task::kNone && !task.complete(task.own()) && task.due(task.own());
  return turn ? &task : nullptr;
}

/// The part of the range that no waiting answer will send.
Range Spreader::unanswered(const Answer& asked) const {
  std::uint32_t first = asked.rest.first, end = first + asked.rest.count;
  for (const Answer& each : answers_) {
    if (each.task != asked.task || each.shard != asked.shard || each.origin != asked.origin) continue;
    const std::uint32_t begin = each.rest.first, beyond = begin + each.rest.count;
    if (begin <= first) {
      first = std::max(first, beyond);
    } else {
      end = std::min(end, begin);  // chunks behind it will be asked for again
    }
  }
  return {.first = first, .count = end > first ? end - first : 0};
}

/// The first FETCH that can be answered, or null. FETCHes take turns, so that every rank soon gets an answer.
Spreader::Answer* Spreader::answering() {
  while (!answers_.empty()) {
    Answer& answer = answers_.front();
    const Task* const task = find(answer.task);
    const bool has = task != nullptr && answer.rest.count > 0 && task->has(answer.shard, answer.rest);
    if (has && in_run_ < kLongestRun) return &answer;
    if (has) answers_.push_back(answer);
    answers_.pop_front();
    in_run_ = 0;
  }
  return nullptr;
}

Packet Spreader::transmit(Time now) {
  if (paused_) return {};
  if (!questions_.empty()) return send_question(now);
  Task* const own = sending();
  Answer* const answer = answering();
  const bool own_open = own != nullptr && pacer_.next_shared() <= now;
  const bool answer_open = answer != nullptr && pacer_.next() <= now;
  if (answer_open && (answers_next_ || !own_open)) return send_answer(*answer, now);
  if (own_open) return send_own(*own, now);
  if (answer != nullptr) {
    wake_at_ = pacer_.next() + Pacer::kQuantum;
  } else if (own != nullptr) {
    wake_at_ = pacer_.next_shared() + Pacer::kQuantum;
  }
  return {};
}

Packet Spreader::send_question(Time now) {
  const Question question = questions_.front();
  questions_.pop_front();
  constexpr std::size_t kSaid = ina::kHeaderBytes + kQuestionBytes;
  std::byte* const to = scratch(kSaid + (options_.keys ? kFetchProofBytes : 0));
  ina::encode({.kind = static_cast<std::uint8_t>(ina::Kind::kFetch),
               .group = options_.group,
               .child = options_.child,
               .slot = question.source,
               .round = question.range.first,
               .mark = static_cast<std::uint32_t>(question.task)},
              to);
  std::byte* end =
      store_fields(to + ina::kHeaderBytes, question.origin, static_cast<std::uint16_t>(question.range.count));
  if (options_.keys) {
    const auto sender = static_cast<std::uint16_t>(options_.rank);
    const std::uint64_t number = ++fetches_[question.to];
    end = std::ranges::copy(code_of_fetch(question, sender, number), store_fields(end, sender, number)).out;
  }
  ++stats_.fetches_sent;
  if (asked_at_ == kNever && silences_ == 0 && question.origin == options_.rank) {
    asked_at_ = now;
    timed_ = question;
  }
  return {.bytes = {to, end}, .to = question.to};
}

Packet Spreader::send_answer(Answer& answer, Time now) {
  const Task& task = *find(answer.task);
  const std::uint32_t shard = answer.shard;
  const std::uint32_t chunk = answer.rest.first++;
  --answer.rest.count;
  ++in_run_;
  const Bytes payload = task.payload(shard, chunk);
  std::byte* const to = scratch(ina::kHeaderBytes + payload.size() + code_bytes());
  ina::encode({.kind = static_cast<std::uint8_t>(ina::Kind::kSpread),
               .group = options_.group,
               .child = options_.child,
               .flags = ina::flag::kRetransmission,
               .slot = task.rank_of(shard),
               .round = chunk,
               .mark = static_cast<std::uint32_t>(task.number())},
              to);
  std::byte* end = std::ranges::copy(payload, to + ina::kHeaderBytes).out;
  if (options_.keys) {
    const Mac code = code_of(options_.keys->spread, task.number(), task.rank_of(shard), chunk, payload);
    end = std::ranges::copy(code, end).out;
  }
  const Bytes bytes(to, end);
  pacer_.pay(bytes.size(), now);
  answers_next_ = false;
  ++stats_.answered;
  stats_.answered_bytes += payload.size();
  return {.bytes = bytes, .to = answer.origin};
}

Packet Spreader::send_own(Task& task, Time now) {
  if (task.frontier(task.own()) == 0) pacer_.take_turn(now);
  const Bytes bytes = task.build_next(options_.group, options_.child);
  pacer_.pay_shared(bytes.size(), task.senders(), reducing_ > 0, now);
  answers_next_ = true;
  progress(task, now);
  ++stats_.sent;
  stats_.sent_bytes += bytes.size() - ina::kHeaderBytes - code_bytes();
  settle(now);
  return {.bytes = bytes};
}

/// Makes room for packets that are not of the own shard. Packets that the caller holds stay where they are.
void Spreader::reserve(std::size_t chunk_bytes) {
  const std::size_t largest =
      ina::kHeaderBytes + std::max(chunk_bytes + kCodeBytes, kQuestionBytes + kFetchProofBytes);
  const std::size_t size = (kHeldPackets + 2) * largest;  // the rest at the end stays empty
  if (size <= scratch_size_) return;
  scratch_.push_back(std::make_unique_for_overwrite<std::byte[]>(size));
  scratch_size_ = size;
  scratch_used_ = 0;
}

/// Places a packet right behind the one before, so that they can leave together.
std::byte* Spreader::scratch(std::size_t bytes) {
  if (scratch_used_ + bytes > scratch_size_) scratch_used_ = 0;
  return scratch_.back().get() + std::exchange(scratch_used_, scratch_used_ + bytes);
}

// --- time and ends ---

/// Reports complete tasks.
void Spreader::settle(Time now) {
  const std::size_t before = front_;
  while (front_ < tasks_.size() && tasks_[front_].complete()) {
    tasks_[front_].release_output();
    done_.push_back({tasks_[front_].slice_id()});
    ++front_;
  }
  if (front_ == before) return;
  silences_ = 0;
  watch(now);
}

Time Spreader::deadline() const { return paused_ ? kNever : std::min(wake_at_, quiet_at_); }

void Spreader::expire(Time now) {
  if (paused_) return;
  if (now >= wake_at_) wake_at_ = kNever;
  if (now < quiet_at_) return;
  if (now < quiet_at_ + kLate || was_late_) return ask_again(now);
  was_late_ = true;  // this process had no core, and perhaps peers had no core either
  watch(now);
}

std::optional<Done> Spreader::poll() {
  if (done_.empty()) return std::nullopt;
  const Done done = done_.front();
  done_.pop_front();
  return done;
}

void Spreader::halt() {
  tasks_.clear();
  early_.clear();
  questions_.clear();
  answers_.clear();
  done_.clear();
  front_ = sending_ = 0;
  silences_ = 0;
  wake_at_ = quiet_at_ = asked_at_ = kNever;
}

void Spreader::pause() {
  paused_ = true;
  questions_.clear();
  answers_.clear();
  wake_at_ = kNever;
}

void Spreader::resume(std::uint16_t group, std::uint8_t child, Time now) {
  SpreaderOptions options = options_;
  options.group = group;
  options.child = child;
  options.checked();
  if (group != options_.group) left_group_ = options_.group;
  options_ = options;
  paused_ = false;
  silences_ = 0;
  watch(now);
}

}  // namespace railweave::spread
