// A tiny persistent memory for models of protocols: explicit stores, flushes and fences over small
// lines, with the guarantees of tenuto/persist.h. A line becomes durable as a prefix of its stores,
// and lines are independent. A flushed prefix is durable once the flushing thread has fenced.
// Models of this folder run a protocol on it and look at every image that a crash could leave. A
// file is such a memory, too: its lines are sectors, and a sync flushes and fences all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

namespace tenuto_model {

using Word = std::uint64_t;
using Rng = std::mt19937_64;

inline constexpr std::size_t kLineWords = 4;

inline std::uint64_t mix(std::uint64_t x) {
  x = (x ^ x >> 31) * 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
  return x ^ x >> 32;
}

template <class Content, std::size_t kLineSize>
class Lines {
 public:
  using Image = std::vector<Content>;

  Lines(const Image& image, std::size_t threads) { reset(image, threads); }

  void reset(const Image& image, std::size_t threads) {
    durable_ = now_ = image;
    const std::size_t lines = image.size() / kLineSize;
    pending_.resize(lines);
    for (auto& stores : pending_) stores.clear();
    flushed_.assign(threads, std::vector<std::size_t>(lines, 0));
  }

  const Content& load(std::size_t word) const { return now_[word]; }
  void store(std::size_t word, const Content& value) {
    now_[word] = value;
    pending_[word / kLineSize].push_back({word, value});
  }
  void flush(std::size_t thread, std::size_t word) {
    const std::size_t line = word / kLineSize;
    flushed_[thread][line] = pending_[line].size();
  }
  void store_and_flush(std::size_t thread, std::size_t word, const Content& value) {
    store(word, value);
    flush(thread, word);
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

  void sync() {  // of a file, with one thread
    for (std::size_t line = 0; line < pending_.size(); ++line) flush(0, line * kLineSize);
    fence(0);
  }

  // Called before each fence. The possible states only grow until then, so this is the time to
  // look.
  std::function<void()> before_fence;

  const Image& now() const { return now_; }
  bool all_durable() const { return durable_ == now_; }

  // An image that a crash could leave. `choose(n)` chooses below n. `damaged` is what the crash may
  // also leave of a line that was being written, or null.
  template <class Choose>
  Image crash(const Choose& choose, const Content* damaged = nullptr) const {
    Image image = durable_;
    for (const auto& stores : pending_) {
      const bool may_damage = damaged != nullptr && !stores.empty();
      const std::size_t count = choose(stores.size() + (may_damage ? 2 : 1));
      if (count > stores.size()) image[stores[0].word] = *damaged;
      if (count > stores.size()) continue;
      for (std::size_t i = 0; i < count; ++i) image[stores[i].word] = stores[i].value;
    }
    return image;
  }
  Image random_crash(Rng& rng) const {
    return crash([&](std::size_t n) { return rng() % n; });
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
    const auto set = [&](std::size_t word, const Content& value) {
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
    Content value;
  };
  static std::uint64_t hash_word(std::size_t word, const Content& value) {
    return mix(mix(value + 1) + word * 0x9e3779b97f4a7c15u);
  }

  Image durable_;                                  // what survives every crash
  Image now_;                                      // what loads see
  std::vector<std::vector<Store>> pending_;        // per line, in program order
  std::vector<std::vector<std::size_t>> flushed_;  // per thread and line: how many of them
};

using Memory = Lines<Word, kLineWords>;
using Image = Memory::Image;

inline std::size_t pick(Rng& rng, std::size_t n) { return n <= 1 ? 0 : rng() % n; }

// Records every decision of a run, so that all runs can be visited in turn.
class Choices {
 public:
  // Returns a number below n: in exhaustive mode the next one to try, otherwise a random one.
  std::size_t pick(std::size_t n, Rng& rng) {
    if (n <= 1 || !exhaustive_) return tenuto_model::pick(rng, n);
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
