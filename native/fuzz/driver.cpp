// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target without libFuzzer, first on the named files, then on mutations of these files (or of an
// empty input). RAILWEAVE_FUZZ_ROUNDS sets the number of mutations (default 10,000), RAILWEAVE_FUZZ_SEED the
// seed.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using Input = std::vector<std::uint8_t>;

unsigned long number_from(const char* name, unsigned long fallback) {
  const char* text = std::getenv(name);
  return text ? std::strtoul(text, nullptr, 10) : fallback;
}

void mutate(Input& input, std::mt19937_64& random) {
  for (auto edits = random() % 8; edits-- > 0;) {
    const auto kind = random() % 4;
    if (kind == 0 || input.empty()) {
      input.insert(input.begin() + static_cast<std::ptrdiff_t>(random() % (input.size() + 1)),
                   1 + random() % 16, static_cast<std::uint8_t>(random()));
    } else if (kind == 1) {
      input.resize(random() % (input.size() + 1));
    } else {
      static constexpr std::uint8_t kEdges[] = {0, 1, 0x7f, 0x80, 0xff};
      const auto value = static_cast<std::uint8_t>(kind == 2 ? kEdges[random() % 5] : random());
      input[random() % input.size()] = value;
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<Input> corpus;
  for (int i = 1; i < argc; ++i) {
    std::ifstream file(argv[i], std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    LLVMFuzzerTestOneInput(corpus.back().data(), corpus.back().size());
  }
  if (corpus.empty()) corpus.emplace_back();
  std::mt19937_64 random(number_from("RAILWEAVE_FUZZ_SEED", 1));
  const auto rounds = number_from("RAILWEAVE_FUZZ_ROUNDS", 10'000);
  for (unsigned long round = 0; round < rounds; ++round) {
    Input input = corpus[random() % corpus.size()];
    mutate(input, random);
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
  std::printf("%d files, %lu rounds\n", argc - 1, rounds);
  return 0;
}
