// SPDX-License-Identifier: Apache-2.0
// railweave._rigs.spread: a rank's side of multicast broadcast and allgather, for tests and tools.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>

#include <map>
#include <tuple>
#include <utility>

#include "bindings/values.hpp"
#include "ina/call.hpp"
#include "rigs/arrays.hpp"
#include "rigs/rig.hpp"
#include "spread/spreader.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace railweave {
namespace {

/// A spreader. It keeps its arrays alive while it uses them.
class PySpreader : public spread::Spreader {
 public:
  explicit PySpreader(const spread::SpreaderOptions& options) : Spreader(options), options_(options) {}

  void start(std::uint64_t task, std::uint64_t slice_id, Collective collective, std::uint16_t root,
             ConstArray input, Array output, std::size_t count, std::size_t stride, std::size_t chunk_bytes,
             std::size_t unfinished, Time now) {
    Spreader::start(task,
                    {.id = slice_id,
                     .call = {.op_index = 0,
                              .collective = collective,
                              .dtype = carried_dtype(input),
                              .op = ReduceOp::kSum,
                              .root = root,
                              .count = count},
                     .input = bytes_of(input),
                     .output = bytes_of(output),
                     .count = count,
                     .stride = stride,
                     .rank = options_.rank,
                     .world_size = options_.world_size},
                    chunk_bytes, unfinished, now);
    held_.insert_or_assign(slice_id, std::pair(input, output));
  }

  void receive(const nb::bytes& datagram, Time now, std::uint64_t near) {
    Spreader::receive(view(datagram), now, near);
  }

  std::optional<std::tuple<nb::bytes, int>> transmit(Time now) {
    const spread::Packet packet = Spreader::transmit(now);
    if (packet.bytes.empty()) return std::nullopt;
    return std::tuple(to_python(packet.bytes), packet.to);
  }

  std::optional<std::uint64_t> poll() {
    const auto done = Spreader::poll();
    if (!done) return std::nullopt;
    held_.erase(done->slice_id);
    return done->slice_id;
  }

  /// Also releases the arrays.
  void halt() {
    Spreader::halt();
    held_.clear();
  }

  nb::dict stats() const {
    static constexpr const char* kRefused[] = {"short", "version", "group",  "kind", "source",
                                               "chunk", "length",  "origin", "code", "replay"};
    static_assert(std::size(kRefused) == spread::kRefusals);
    const spread::SpreaderStats& stats = Spreader::stats();
    nb::dict refused;
    for (std::size_t i = 0; i < spread::kRefusals; ++i) refused[kRefused[i]] = stats.refused[i];
    nb::dict all = RAILWEAVE_DICT(stats, tasks, sent, sent_bytes, received, received_bytes, fetched,
                                  fetched_bytes, duplicates, stale, fetches_sent, fetches_taken,
                                  fetches_passed, fetches_dropped, answered, answered_bytes, silences);
    all["refused"] = refused;
    all["rate_bps"] = rate_bps();
    return all;
  }

 private:
  spread::SpreaderOptions options_;
  std::map<std::uint64_t, std::pair<ConstArray, Array>> held_;
};

}  // namespace

void bind_spread(nb::module_& m) {
  nb::module_ spread = rig_submodule(m, "spread", "Multicast broadcast and allgather: a rank's side.");
  spread.attr("TREE") = spread::Packet::kTree;
  spread.attr("CODE_BYTES") = spread::kCodeBytes;
  spread.attr("KIND_SPREAD") = static_cast<int>(ina::Kind::kSpread);
  spread.attr("KIND_FETCH") = static_cast<int>(ina::Kind::kFetch);
  nb::class_<PySpreader>(spread, "Spreader")
      .def(
          "__init__",
          [](PySpreader* self, std::uint16_t group, std::uint8_t child, int rank, int world_size,
             std::uint64_t rate_bps, int roots, const std::optional<nb::bytes>& secret) {
            new (self) PySpreader(
                {.group = group,
                 .child = child,
                 .rank = rank,
                 .world_size = world_size,
                 .rate_bps = rate_bps,
                 .roots = roots,
                 .keys = secret ? std::optional(spread::Keys::of(secret_of(*secret), 0)) : std::nullopt});
          },
          nb::kw_only(), "group"_a, "child"_a, "rank"_a, "world_size"_a, "rate_bps"_a = 0, "roots"_a = 65535,
          "secret"_a = nb::none(), "Without a secret packets have no codes.")
      .def("start", &PySpreader::start, nb::kw_only(), "task"_a, "slice_id"_a, "collective"_a, "root"_a = 0,
           "input"_a, "output"_a, "count"_a, "stride"_a = 0, "chunk_bytes"_a, "unfinished"_a, "now"_a)
      .def("receive", &PySpreader::receive, "datagram"_a, "now"_a, "near"_a = 0)
      .def("transmit", &PySpreader::transmit, "now"_a,
           "The next datagram to send now and the rank that it goes to (TREE: all of them), or None.")
      .def(
          "deadline", [](const PySpreader& self) { return or_none(self.deadline()); },
          "When `expire` wants to be called, or None.")
      .def("expire", &PySpreader::expire, "now"_a)
      .def("poll", &PySpreader::poll, "The id of a slice that is done, or None.")
      .def("set_reducing", &PySpreader::set_reducing, "round_trip"_a,
           "Reductions use the same links, and their chunks' round trip is so many ns; 0: none do.")
      .def("halt", &PySpreader::halt, "Drop all tasks.")
      .def("pause", &PySpreader::pause, "Send nothing until `resume`.")
      .def("resume", &PySpreader::resume, "group"_a, "child"_a, "now"_a, "Go on in this group.")
      .def_prop_ro("group", &PySpreader::group)
      .def_prop_ro("idle", &PySpreader::idle)
      .def_prop_ro("tasks", &PySpreader::tasks, "How many are kept for peers, or not done.")
      .def("stats", &PySpreader::stats);
}

}  // namespace railweave
