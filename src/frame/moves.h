// Decides when a search may return `full`. A free counter that moves between a tree and a core's
// slot is in neither for a short time, so a search can miss free frames.
//
// A thread that moves a counter counts the move on two shared words: `begun_` before and `ended_`
// after. A search that finds nothing is repeated if a move of another thread overlapped it. Moves
// are off the fast path: one for each reservation made, refilled, released or stolen, and one for
// each try to take a run or a given frame (get_huge, get_at).
//
// The claim of a get under way is not counted as a move. So a get of a larger order that will find
// no fit can make a get beside it return `full`, as if the larger one had succeeded.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <thread>

#include "tenuto/abi.h"
#include "tenuto/units.h"

namespace TENUTO_NS::frame {

class Moves {
 public:
  // A counter may be in transit while one of these lives.
  class Transit {
   public:
    // `own` counts the moves of the caller's own search.
    Transit(Moves& moves, unsigned& own) : moves_(moves) {
      ++own;
      moves_.begun_.fetch_add(1, std::memory_order_acq_rel);
    }
    Transit(const Transit&) = delete;
    Transit& operator=(const Transit&) = delete;
    ~Transit() { moves_.ended_.fetch_add(1, std::memory_order_release); }

   private:
    Moves& moves_;
  };

  // Repeats attempt(own) until it finds something, or until no other thread moved a counter
  // meanwhile, but at most kSearchesMax times.
  template <class Attempt>
  auto until_quiet(Attempt&& attempt) {
    for (unsigned i = 1;; ++i) {
      unsigned own = 0;
      const std::uint64_t ended = ended_.load(std::memory_order_acquire);
      auto found = attempt(own);
      // The attempt read its words with acquire. So a move whose effect it saw is counted here.
      const std::uint64_t others = begun_.load(std::memory_order_acquire) - own - ended;
      if (found || others == 0 || i == kSearchesMax) return found;
      let_others_finish();
    }
  }

 private:
  static constexpr unsigned kSearchesMax = 64;
  static constexpr unsigned kYieldsMax = 1000;  // enough for a thread that lost its core

  void let_others_finish() const {
    for (unsigned i = 0; i < kYieldsMax; ++i) {
      const std::uint64_t ended = ended_.load(std::memory_order_acquire);
      if (begun_.load(std::memory_order_acquire) == ended) return;
      std::this_thread::yield();
    }
  }

  alignas(kLineBytes) std::atomic<std::uint64_t> begun_ = 0;
  std::atomic<std::uint64_t> ended_ = 0;
};

}  // namespace TENUTO_NS::frame
