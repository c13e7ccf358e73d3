// A tiny persistent memory for models of protocols: explicit stores, flushes and fences over small
// lines, with the guarantees of tenuto/persist.h. A line becomes durable as a prefix of its stores,
// and lines are independent. A flushed prefix is durable once the flushing thread has fenced.
// Models of this folder run a protocol on it and look at every image that a crash could leave.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

namespace tenuto_model {

using Word = std::uint64_t;
using Image = std::vector<Word>;
using Rng = std::mt19937_64;

inline constexpr std::size_t kLineWords = 4;

inline std::uint64_t mix(std::uint64_t x) {
  x = (x ^ x >> 31) * 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
  return x ^ x >> 32;
}

class Memory {
 public:
  Memory(const Image& image, std::size_t threads) { reset(image, threads); }

  void reset(const Image& image, std::size_t threads) {
    durable_ = now_ = image;
    const std::size_t lines = image.size() / kLineWords;
    pending_.resize(lines);
    for (auto& stores : pending_) stores.clear();
    flushed_.assign(threads, std::vector<std::size_t>(lines, 0));
  }

  Word load(std::size_t word) const { return now_[word]; }
  void store(std::size_t word, Word value) {
    now_[word] = value;
    pending_[word / kLineWords].push_back({word, value});
  }
  void flush(std::size_t thread, std::size_t word) {
    const std::size_t line = word / kLineWords;
    flushed_[thread][line] = pending_[line].size();
  }
  void fence(std::size_t thread) {
    if (before_fence) before_fence();
    for (std::size_t line = 0; line < pending_.size(); ++line) {
      const std::size_t count = flushed_[thread][line];
      if (count == 0) continue;
      for (std::size_t i = 0; i < count; ++i) {
        durable_[pending_[line][i].word] = pending_[line][i].value;
      }
      const auto end = pending_[line].begin() + static_cast<std::ptrdiff_t>(count);
      pending_[line].erase(pending_[line].begin(), end);
      for (auto& marks : flushed_) marks[line] -= marks[line] < count ? marks[line] : count;
    }
  }

  // Called before each fence. The possible states only grow until then, so this is the time to
  // look.
  std::function<void()> before_fence;

  const Image& now() const { return now_; }
  bool all_durable() const { return durable_ == now_; }

  Image random_crash(Rng& rng) const {
    Image image = durable_;
    for (const auto& stores : pending_) {
      const std::size_t count = rng() % (stores.size() + 1);
      for (std::size_t i = 0; i < count; ++i) image[stores[i].word] = stores[i].value;
    }
    return image;
  }

  // Calls f(image, hash) for every image that a crash could leave now. If there are more than
  // `limit`, it takes the oldest, the newest, and `limit` random ones. The hash is the image's
  // Zobrist hash.
  template <class F>
  void each_crash(std::size_t limit, Rng& rng, F f) const {
    std::vector<std::size_t> dirty;
    std::size_t count = 1;
    for (std::size_t line = 0; line < pending_.size(); ++line) {
      if (pending_[line].empty()) continue;
      dirty.push_back(line);
      count = count > limit ? count : count * (pending_[line].size() + 1);
    }
    if (count > limit) {
      f(durable_, hash_of(durable_));
      f(now_, hash_of(now_));
      for (std::size_t i = 0; i < limit; ++i) {
        const Image image = random_crash(rng);
        f(image, hash_of(image));
      }
      return;
    }
    Image image = durable_;
    std::uint64_t hash = hash_of(image);
    const auto set = [&](std::size_t word, Word value) {
      hash ^= hash_word(word, image[word]) ^ hash_word(word, value);
      image[word] = value;
    };
    std::vector<std::size_t> taken(dirty.size(), 0);
    for (;;) {
      f(image, hash);
      std::size_t i = 0;
      for (; i < dirty.size(); ++i) {
        const auto& stores = pending_[dirty[i]];
        if (taken[i] < stores.size()) {
          set(stores[taken[i]].word, stores[taken[i]].value);
          taken[i] += 1;
          break;
        }
        for (const Store& s : stores) set(s.word, durable_[s.word]);
        taken[i] = 0;
      }
      if (i == dirty.size()) return;
    }
  }

  static std::uint64_t hash_of(const Image& image) {
    std::uint64_t h = 0;
    for (std::size_t w = 0; w < image.size(); ++w) h ^= hash_word(w, image[w]);
    return h;
  }

 private:
  struct Store {
    std::size_t word;
    Word value;
  };
  static std::uint64_t hash_word(std::size_t word, Word value) {
    return mix(mix(value + 1) + word * 0x9e3779b97f4a7c15u);
  }

  Image durable_;                                  // what survives every crash
  Image now_;                                      // what loads see
  std::vector<std::vector<Store>> pending_;        // per line, in program order
  std::vector<std::vector<std::size_t>> flushed_;  // per thread and line: how many of them
};

// Records every decision of a run, so that all runs can be visited in turn.
class Choices {
 public:
  // Returns a number below n: in exhaustive mode the next one to try, otherwise a random one.
  std::size_t pick(std::size_t n, Rng& rng) {
    if (n <= 1) return 0;
    if (!exhaustive_) return rng() % n;
    if (at_ == made_.size()) {
      made_.push_back(0);
      limits_.push_back(n);
    }
    return made_[at_++];
  }
  void start(bool exhaustive) {
    exhaustive_ = exhaustive;
    at_ = 0;
  }
  // Moves on to the next run. Returns false after the last.
  bool next() {
    while (!made_.empty() && made_.back() + 1 >= limits_.back()) {
      made_.pop_back();
      limits_.pop_back();
    }
    if (made_.empty()) return false;
    made_.back() += 1;
    return true;
  }

 private:
  bool exhaustive_ = false;
  std::size_t at_ = 0;
  std::vector<std::size_t> made_, limits_;
};

}  // namespace tenuto_model
