// SPDX-License-Identifier: Apache-2.0
#include "ina/call.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <utility>

#include "ina/exact.hpp"
#include "ina/fixed_point.hpp"
#include "ina/lanes.hpp"

namespace railweave::ina {
namespace {

constexpr std::uint32_t kReadyLanes = 2;
constexpr std::int32_t kMostUnfinished = 1 << 16;
constexpr std::int32_t kMaxIdentity = std::numeric_limits<std::int32_t>::min();

std::uint32_t divide_up(std::size_t value, std::size_t by) {
  return static_cast<std::uint32_t>((value + by - 1) / by);
}

Order order_of(ReduceOp op) { return op == ReduceOp::kMin ? Order::kMin : Order::kMax; }

/// The call's mark, with the slice's length mixed in, so that ranks notice different splits of a tensor.
std::uint32_t mark_of_slice(const Slice& slice) {
  return (mark_of(slice.call) ^ static_cast<std::uint32_t>(slice.count ^ slice.count >> 32)) * 16777619u;
}

bool adds(ReduceOp op) { return op == ReduceOp::kSum || op == ReduceOp::kAvg; }

bool reduces(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kReduceScatter;
}

constexpr std::size_t kWord = sizeof(std::int32_t);
constexpr std::uint32_t kHalfBits = 16;

/// Values of a shard.
std::size_t length_of(const Slice& slice) {
  if (reduces(slice.call.collective)) return slice.count;
  return (slice.count * item_size(slice.call.dtype) + kWord - 1) / kWord;
}

std::uint32_t shards_of(const Slice& slice) {
  return is_sharded(slice.call.collective) ? static_cast<std::uint32_t>(slice.world_size) : 1;
}

}  // namespace

bool carries(const CallDescription& call) {
  if (!reduces(call.collective)) return true;
  const bool dtype = call.dtype == DType::kFloat32 || call.dtype == DType::kInt32 || is_half(call.dtype);
  return dtype && call.op != ReduceOp::kProd;
}

std::size_t chunk_elements(const CallDescription& call, std::uint32_t lanes) {
  return reduces(call.collective) ? lanes : std::max<std::size_t>(1, lanes * kWord / item_size(call.dtype));
}

std::size_t tree_elements(const Slice& slice, std::uint32_t lanes, std::size_t trees) {
  const std::size_t chunk = chunk_elements(slice.call, lanes);
  return divide_up(divide_up(slice.count, chunk), trees) * chunk;
}

bool spreads(const Slice& slice, std::uint32_t lanes) {
  return !reduces(slice.call.collective) && lanes >= kReadyLanes &&
         shards_of(slice) * std::uint64_t{divide_up(length_of(slice), lanes)} >= kLeastSpread;
}

Call::Call(const Slice& slice, const CallOptions& options)
    : slice_(slice),
      mark_(mark_of_slice(slice)),
      lanes_(options.lanes),
      lead_(options.lead),
      sealed_(options.sealed),
      headroom_(headroom_bits(slice.world_size)),
      words_(!reduces(slice.call.collective)),
      half_(!words_ && is_half(slice.call.dtype)),
      length_(length_of(slice)),
      shards_(shards_of(slice)),
      chunks_(shards_ * divide_up(length_, lanes_)),
      spread_(options.multicast && spreads(slice, lanes_)),
      exact_(sums_floats() && chunks_ == 1 && length_ * exact_lanes(slice.world_size) <= lanes_),
      wides_(is(Collective::kAllReduce) && fixed_point() && length_ <= options.wide
                 ? divide_up(kWideLanes * length_, lanes_)
                 : 0),
      segments_(fixed_point() ? divide_up(chunks_, lanes_) : 0),
      witness_bits_(static_cast<std::uint32_t>(std::bit_width(static_cast<std::uint32_t>(slice.world_size)))),
      witness_chunks_(31 / witness_bits_),
      floats_(half_ ? std::max<std::size_t>(lanes_, wides_ > 0 ? length_ : 0) : 0),
      wide_(wides_ * lanes_ * kLaneBytes),
      exponents_(fixed_point() ? chunks_ : 0),
      own_exponents_(exponents_.size()) {
  if (!sealed_ || !finds_maxima()) return;
  const std::size_t witnesses = divide_up(chunks_, witness_chunks_);
  witnesses_.resize(witnesses * lanes_);
  witnessed_.resize(witnesses);
}

bool Call::sums_floats() const {
  return !words_ && slice_.call.dtype != DType::kInt32 && adds(slice_.call.op);
}

bool Call::sums_integers() const {
  return !words_ && slice_.call.dtype == DType::kInt32 && adds(slice_.call.op);
}

bool Call::finds_maxima() const { return !words_ && !adds(slice_.call.op); }

std::size_t Call::chunk_size(std::uint32_t chunk) const {
  return std::min<std::size_t>(lanes_, length_ - first(chunk));
}

std::size_t Call::offset(std::uint32_t chunk, bool sharded) const {
  const std::size_t item = item_size(slice_.call.dtype);
  const std::size_t shards_before = sharded ? shard(chunk) * slice_.stride * item : 0;
  return shards_before + first(chunk) * (words_ ? kWord : item);
}

bool Call::contributes(std::uint32_t chunk) const {
  if (is(Collective::kBroadcast)) return slice_.rank == slice_.call.root;
  return !is(Collective::kAllGather) || mine(chunk);
}

const std::byte* Call::input(std::uint32_t chunk) {
  const std::byte* const values = slice_.input + offset(chunk, is(Collective::kReduceScatter));
  if (!half_) return values;
  widen(slice_.call.dtype, values, chunk_size(chunk), floats());
  return floats();
}

std::byte* Call::output(std::uint32_t chunk) const {
  return slice_.output + offset(chunk, is(Collective::kAllGather));
}

std::size_t Call::word_bytes(std::uint32_t chunk) const {
  const std::size_t begin = first(chunk) * kWord;
  return std::min(lanes_ * kWord, slice_.count * item_size(slice_.call.dtype) - begin);
}

std::byte* Call::results(std::uint32_t chunk) { return half_ ? floats() : output(chunk); }

void Call::put(std::uint32_t chunk) {
  if (half_) narrow(slice_.call.dtype, floats(), chunk_size(chunk), output(chunk));
}

std::optional<Item> Call::next() const {
  if (spread_) return issued_ == 0 ? std::optional(Item{Phase::kReady, 0}) : std::nullopt;
  if (next_wide_ < wides_) return Item{Phase::kWide, next_wide_};
  if (wide_absorbed_ < wides_ || wide_holds()) return std::nullopt;
  if (next_chunk_ < chunks_) {
    if (next_segment_ < segments_ && next_segment_ <= next_chunk_ / lanes_ + lead_)
      return Item{Phase::kExponents, next_segment_};
    if (fixed_point() && exponents_[next_chunk_] == 0) return std::nullopt;
    return Item{Phase::kData, next_chunk_};
  }
  return next_added_ < added_.size() ? std::optional(added_[next_added_]) : std::nullopt;
}

std::size_t Call::left(Phase phase) const {
  switch (phase) {
    case Phase::kWide:
      return wides_ - next_wide_;
    case Phase::kExponents:
      return segments_ - next_segment_;
    case Phase::kData:
      return chunks_ - next_chunk_;
    case Phase::kClasses:
    case Phase::kHalves:
    case Phase::kWitness:
      return added_.size() - next_added_;
    case Phase::kReady:
      return issued_ == 0 ? 1 : 0;
  }
  __builtin_unreachable();
}

bool Call::exhausted() const {
  if (spread_) return issued_ > 0;
  if (wide_holds()) return true;
  if (next_chunk_ < chunks_) return false;
  return !may_add() || (data_absorbed_ == chunks_ && next_added_ == added_.size());
}

WireOp Call::wire_op(Item item) const {
  if (item.phase == Phase::kExponents || item.phase == Phase::kReady) return WireOp::kMax;
  return item.phase == Phase::kData && finds_maxima() ? WireOp::kMax : WireOp::kSum;
}

std::uint8_t Call::build(Item item, std::byte* lanes) {
  ++issued_;
  const std::uint8_t flags = build_phase(item, lanes);
  return scattered(item) && mine(chunk_of(item)) ? flags | flag::kOwner : flags;
}

std::uint8_t Call::build_phase(Item item, std::byte* lanes) {
  switch (item.phase) {
    case Phase::kWide:
      return build_wide(next_wide_++, lanes);
    case Phase::kExponents:
      ++next_segment_;
      return build_exponents(item.index, lanes);
    case Phase::kData:
      ++next_chunk_;
      return build_data(item.index, lanes);
    case Phase::kClasses:
      ++next_added_;
      build_classes(item.index, lanes);
      return flag::kNonfinite;
    case Phase::kHalves:
      ++next_added_;
      build_halves(item, lanes);
      return 0;
    case Phase::kWitness:
      ++next_added_;
      build_witness(item.index, lanes);
      return 0;
    case Phase::kReady:
      build_ready(lanes);
      return 0;
  }
  __builtin_unreachable();
}

std::uint32_t Call::small_maxima(Item item) const {
  if (item.phase == Phase::kReady) return kReadyLanes;
  return item.phase == Phase::kExponents ? std::min(lanes_, chunks_ - item.index * lanes_) : 0;
}

void Call::store_maximum(std::byte* lanes, std::uint32_t lane, std::int32_t value) const {
  store_lane(lanes, lane, sealed_ ? value << kMaximumTagBits : value);
}

std::int32_t Call::load_maximum(const std::byte* lanes, std::uint32_t lane) const {
  return sealed_ ? load_lane(lanes, lane) >> kMaximumTagBits : load_lane(lanes, lane);
}

Counts Call::counts(Item item, std::uint8_t flags) const {
  const bool agrees =
      item.phase == Phase::kData && fixed_point() && own_exponents_[item.index] == exponents_[item.index];
  return {.agreeing = agrees ? 1u : 0u,
          .nonfinite = (flags & flag::kNonfinite) != 0 ? 1u : 0u,
          .overflowing = (flags & flag::kOverflow) != 0 ? 1u : 0u};
}

std::uint64_t Call::made_from(Item item) const {
  if (item.phase == Phase::kWitness) return witnessed_[item.index];
  return item.phase == Phase::kData && fixed_point() ? exponents_[item.index] : 0;
}

std::uint8_t Call::build_wide(std::uint32_t index, std::byte* lanes) {
  if (index == 0) {
    if (half_) widen(slice_.call.dtype, slice_.input, length_, floats());
    const std::byte* const values = half_ ? floats() : slice_.input;
    overflow_ = !encode_wide(values, length_, slice_.world_size, wide_.data());
  }
  const std::size_t bytes = lanes_ * kLaneBytes;
  std::copy_n(wide_.data() + index * bytes, bytes, lanes);
  return overflow_ ? flag::kOverflow : 0;
}

std::uint8_t Call::build_exponents(std::uint32_t segment, std::byte* lanes) {
  const std::uint32_t first = segment * lanes_, chunks = small_maxima({Phase::kExponents, segment});
  bool finite = true;
  for (std::uint32_t i = 0; i < chunks; ++i) {
    const ChunkScan found = scan(input(first + i), chunk_size(first + i));
    store_maximum(lanes, i, found.exponent);
    own_exponents_[first + i] = static_cast<std::uint8_t>(found.exponent);
    finite = finite && found.finite;
  }
  fill_lanes(lanes, chunks, lanes_, kMaxIdentity);
  input_nonfinite_ = input_nonfinite_ || !finite;
  return finite ? 0 : flag::kNonfinite;
}

std::uint8_t Call::build_data(std::uint32_t chunk, std::byte* lanes) {
  if (words_) {
    build_words(chunk, lanes);
    return 0;
  }
  const std::size_t count = chunk_size(chunk);
  const ReduceOp op = slice_.call.op;
  if (exact_) {
    encode_exact(input(chunk), count, slice_.world_size, lanes);
    fill_lanes(lanes, count * exact_lanes(slice_.world_size), lanes_, 0);
    return 0;
  }
  fill_lanes(lanes, count, lanes_, adds(op) ? 0 : kMaxIdentity);
  if (fixed_point()) return build_fixed_point(chunk, lanes);
  if (sums_integers()) return build_integers(chunk, lanes);
  if (slice_.call.dtype != DType::kInt32) {
    encode_ordered(input(chunk), count, order_of(op), lanes);
  } else {
    encode_integers(input(chunk), count, order_of(op), lanes);
  }
  return 0;
}

/// Sealed sums must not wrap. The owner's own values may wrap, because the owner adds them after the check.
std::uint8_t Call::build_integers(std::uint32_t chunk, std::byte* lanes) {
  const std::size_t count = chunk_size(chunk);
  const std::byte* const values = input(chunk);
  const bool alone = scattered({Phase::kData, chunk}) && mine(chunk);
  const std::int32_t most = std::numeric_limits<std::int32_t>::max() / slice_.world_size;
  if (sealed_ && !alone && !within(values, count, most)) {
    fill_lanes(lanes, 0, lanes_, 0);
    return flag::kOverflow;
  }
  encode_integers(values, count, Order::kMax, lanes);
  return 0;
}

void Call::build_halves(Item item, std::byte* lanes) {
  const std::uint32_t chunk = chunk_of(item);
  const std::size_t count = chunk_size(chunk);
  encode_integers(input(chunk), count, Order::kMax, lanes);
  fill_lanes(lanes, count, lanes_, 0);
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t value = load_lane(lanes, i);
    store_lane(lanes, i, item.index % 2 == 0 ? value & 0xffff : value >> kHalfBits);
  }
}

void Call::build_witness(std::uint32_t index, std::byte* lanes) {
  const auto* const counts =
      reinterpret_cast<const std::byte*>(witnesses_.data() + std::size_t{index} * lanes_);
  encode_integers(counts, lanes_, Order::kMax, lanes);
}

void Call::build_words(std::uint32_t chunk, std::byte* lanes) {
  if (!contributes(chunk)) return fill_lanes(lanes, 0, lanes_, 0);
  const std::size_t bytes = word_bytes(chunk), whole = bytes / kWord;
  fill_lanes(lanes, whole, lanes_, 0);
  encode_integers(input(chunk), whole, Order::kMax, lanes);
  if (bytes % kWord == 0) return;
  std::array<std::byte, kWord> last{};
  std::copy_n(input(chunk) + whole * kWord, bytes % kWord, last.begin());
  encode_integers(last.data(), 1, Order::kMax, lanes + whole * kWord);
}

std::uint8_t Call::build_fixed_point(std::uint32_t chunk, std::byte* lanes) {
  const std::size_t count = chunk_size(chunk);
  if (!input_nonfinite_) {
    quantise(input(chunk), count, exponents_[chunk], headroom_, lanes);
    return 0;
  }
  std::vector<std::uint8_t> classes(count);
  if (!quantise_finite(input(chunk), count, exponents_[chunk], headroom_, lanes, classes.data())) return 0;
  classes_.emplace(chunk, std::move(classes));
  return flag::kNonfinite;
}

void Call::build_classes(std::uint32_t chunk, std::byte* lanes) {
  const auto own = classes_.find(chunk);
  const std::size_t count = own == classes_.end() ? 0 : own->second.size();
  if (count > 0) encode_classes(own->second.data(), count, lanes);
  fill_lanes(lanes, count, lanes_, 0);
}

void Call::build_ready(std::byte* lanes) {
  store_maximum(lanes, 0, std::min(static_cast<std::int32_t>(ready_.unfinished), kMostUnfinished));
  store_maximum(lanes, 1, -static_cast<std::int32_t>(ready_.chunk_bytes));
  fill_lanes(lanes, kReadyLanes, lanes_, kMaxIdentity);
}

bool Call::absorb(Item item, std::uint8_t flags, const std::byte* lanes, const Counts& counts) {
  ++absorbed_;
  switch (item.phase) {
    case Phase::kWide:
      absorb_wide(item.index, flags, lanes);
      return true;
    case Phase::kExponents:
      absorb_exponents(item.index, flags, lanes);
      return true;
    case Phase::kData:
      return absorb_data(item.index, flags, lanes, counts);
    case Phase::kClasses:
      if (keeps(item)) absorb_classes(item.index, lanes);
      return true;
    case Phase::kHalves:
      if (keeps(item)) absorb_halves(item, lanes);
      return true;
    case Phase::kWitness:
      return absorb_witness(item.index, lanes);
    case Phase::kReady:
      absorb_ready(lanes);
      return true;
  }
  __builtin_unreachable();
}

void Call::absorb_ready(const std::byte* lanes) {
  // A broken switch may send any numbers. Too many unfinished calls only cost memory, and small chunks only
  // cost time.
  const auto own = static_cast<std::int32_t>(ready_.chunk_bytes);
  ready_.unfinished = static_cast<std::uint32_t>(std::clamp(load_maximum(lanes, 0), 0, kMostUnfinished));
  ready_.chunk_bytes = static_cast<std::uint32_t>(-std::clamp(load_maximum(lanes, 1), -own, -1));
}

void Call::absorb_classes(std::uint32_t chunk, const std::byte* lanes) {
  if (half_) widen(slice_.call.dtype, output(chunk), chunk_size(chunk), floats());
  apply_classes(lanes, chunk_size(chunk), results(chunk));
  put(chunk);
}

void Call::absorb_wide(std::uint32_t index, std::uint8_t flags, const std::byte* lanes) {
  const std::size_t bytes = lanes_ * kLaneBytes;
  std::copy_n(lanes, bytes, wide_.data() + index * bytes);
  overflow_ = overflow_ || (flags & flag::kOverflow) != 0;
  ++wide_absorbed_;
  if (!wide_holds()) return;
  const int mean_of = slice_.call.op == ReduceOp::kAvg ? slice_.world_size : 1;
  decode_wide(wide_.data(), length_, slice_.world_size, mean_of, half_, half_ ? floats() : slice_.output);
  if (half_) narrow(slice_.call.dtype, floats(), length_, slice_.output);
}

double Call::error_bound() const {
  if (wide_holds()) return slice_.world_size * wide_unit(slice_.world_size);
  return largest_exponent_ == 0 ? 0 : ina::error_bound(largest_exponent_, slice_.world_size);
}

void Call::absorb_exponents(std::uint32_t segment, std::uint8_t flags, const std::byte* lanes) {
  const std::uint32_t first = segment * lanes_, chunks = small_maxima({Phase::kExponents, segment});
  // A broken switch may send any lanes, so they are clamped to valid exponents.
  for (std::uint32_t i = 0; i < chunks; ++i) {
    const int exponent = std::clamp(load_maximum(lanes, i), kMinExponent, kMaxExponent);
    exponents_[first + i] = static_cast<std::uint8_t>(exponent);
    largest_exponent_ = std::max(largest_exponent_, exponent);
  }
  result_nonfinite_ = result_nonfinite_ || (flags & flag::kNonfinite) != 0;
}

bool Call::absorb_data(std::uint32_t chunk, std::uint8_t flags, const std::byte* lanes,
                       const Counts& counts) {
  const bool kept = keeps({Phase::kData, chunk});
  const bool nonfinite = (flags & flag::kNonfinite) != 0;
  const bool wraps = sealed_ && sums_integers() && (flags & flag::kOverflow) != 0;
  if (words_) {
    absorb_words(chunk, lanes);
  } else if (kept && wanted(chunk) && !wraps) {
    absorb_sums(chunk, lanes);
  }
  ++data_absorbed_;
  if ((result_nonfinite_ && nonfinite) || wraps) flagged_.push_back(chunk);
  if (data_absorbed_ == chunks_) add_items();
  // Exponents are maxima, so only the count of agreeing ranks proves them.
  return !sealed_ || !kept || !fixed_point() || (counts.agreeing > 0 && (result_nonfinite_ || !nonfinite));
}

/// Lists the items after the data, in the same order on all ranks.
void Call::add_items() {
  std::sort(flagged_.begin(), flagged_.end());
  for (const std::uint32_t chunk : flagged_) {
    if (sums_integers()) {
      added_.insert(added_.end(), {{Phase::kHalves, 2 * chunk}, {Phase::kHalves, 2 * chunk + 1}});
    } else {
      added_.push_back({Phase::kClasses, chunk});
    }
  }
  for (std::uint32_t index = 0; index < witnessed_.size(); ++index)
    added_.push_back({Phase::kWitness, index});
}

/// The sum of each half may exceed 16 bits. Both together wrap as the sum of whole values does.
void Call::absorb_halves(Item item, const std::byte* lanes) {
  const std::uint32_t chunk = chunk_of(item);
  const auto [first, is_first] = halves_.try_emplace(chunk, lanes, lanes + lanes_ * kLaneBytes);
  if (is_first) return;
  const bool low_is_first = item.index % 2 != 0;
  const std::byte* const low = low_is_first ? first->second.data() : lanes;
  const std::byte* const high = low_is_first ? lanes : first->second.data();
  std::vector<std::byte> whole(lanes_ * kLaneBytes);
  for (std::size_t i = 0; i < lanes_; ++i) {
    const auto upper = static_cast<std::uint32_t>(load_lane(high, i)) << kHalfBits;
    store_lane(whole.data(), i,
               static_cast<std::int32_t>(upper + static_cast<std::uint32_t>(load_lane(low, i))));
  }
  absorb_sums(chunk, whole.data());
  halves_.erase(first);
}

void Call::note_maxima(Item item, const std::byte* own, const std::byte* maxima, std::uint64_t digest) {
  if (item.phase != Phase::kData) return;
  const std::uint32_t index = item.index / witness_chunks_;
  const std::uint32_t shift = item.index % witness_chunks_ * witness_bits_;
  std::int32_t* const counts = witnesses_.data() + std::size_t{index} * lanes_;
  for (std::uint32_t i = 0; i < lanes_; ++i)
    counts[i] |= static_cast<std::int32_t>(load_lane(own, i) == load_lane(maxima, i)) << shift;
  witnessed_[index] ^= digest;
}

bool Call::absorb_witness(std::uint32_t index, const std::byte* lanes) const {
  const std::uint32_t first = index * witness_chunks_;
  const std::uint32_t end = std::min(first + witness_chunks_, chunks_);
  const std::uint32_t field = (1u << witness_bits_) - 1;
  bool all = true;
  for (std::uint32_t chunk = first; chunk < end; ++chunk)
    for (std::size_t i = 0; i < chunk_size(chunk); ++i)
      all &=
          (static_cast<std::uint32_t>(load_lane(lanes, i)) >> ((chunk - first) * witness_bits_) & field) > 0;
  return all;
}

void Call::absorb_words(std::uint32_t chunk, const std::byte* lanes) {
  const std::size_t bytes = word_bytes(chunk), whole = bytes / kWord;
  decode_integers(lanes, whole, Order::kMax, output(chunk));
  if (bytes % kWord == 0) return;
  std::array<std::byte, kWord> last;
  decode_integers(lanes + whole * kWord, 1, Order::kMax, last.data());
  std::copy_n(last.begin(), bytes % kWord, output(chunk) + whole * kWord);
}

void Call::absorb_sums(std::uint32_t chunk, const std::byte* lanes) {
  const std::size_t count = chunk_size(chunk);
  const ReduceOp op = slice_.call.op;
  std::byte* const to = results(chunk);
  const int mean_of = op == ReduceOp::kAvg ? slice_.world_size : 1;
  if (exact_) {
    decode_exact(lanes, count, slice_.world_size, mean_of, half_, to);
  } else if (fixed_point() && half_) {
    dequantise_to_odd(lanes, count, exponents_[chunk], headroom_, mean_of, to);
  } else if (fixed_point() && mean_of > 1) {
    dequantise_mean(lanes, count, exponents_[chunk], headroom_, mean_of, to);
  } else if (fixed_point()) {
    dequantise(lanes, count, exponents_[chunk], headroom_, to);
  } else if (slice_.call.dtype != DType::kInt32) {
    decode_ordered(lanes, count, order_of(op), to);
  } else if (mean_of > 1) {
    decode_integer_mean(lanes, count, mean_of, to);
  } else {
    decode_integers(lanes, count, order_of(op), to);
  }
  put(chunk);
}

}  // namespace railweave::ina
