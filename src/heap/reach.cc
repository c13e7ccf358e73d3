// What pointers lead to: a parallel mark over the logged blocks of a quiescent pool. Nothing here
// changes the pool.
//
// A thread collects the places that words lead to by slab (candidates.h). It takes those of one
// slab, marks the blocks that contain them, and then reads the blocks that were new. While another
// thread waits, a thread gives it half of these blocks, or of its places.
//
// A block is read by the filter of its type, or of the root; else as the pointers say that lead to
// it (References::Reader), once for each reader (readings.h); else word by word. A container takes
// its blocks and reads them in its own call.
//
// Who moves blocks asks for the words that lead to them (Links). A word is known if its owner
// passed it itself (References). Whatever else leads to a block fixes it: a container that owns it,
// a word of a block that is read word by word, a VPtr.
#include <algorithm>
#include <array>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <utility>

#include "heap/block_lookup.h"
#include "heap/candidates.h"
#include "heap/heap_paths.h"
#include "heap/readings.h"
#include "pm/metadata_key.h"
#include "pm/not_cancelled.h"
#include "pm/parallel.h"
#include "pm/plant.h"
#include "tenuto/ptr.h"
#include "tenuto/vptr.h"

namespace TENUTO_NS::heap {

struct Heap::State::Tracer {
  const State& s;
  const GarbageOptions& options;
  const void* const root;
  Readings& readings;
  // Any block may be allocated: after a crash of a pool with Consistency::gc.
  const bool after_crash;
  Links* const links;  // null: nobody asked for them
  // VPtrs of pools that version 0.1 made may have every version (VPtrWord::next).
  const bool any_version = s.file.superblock().born_version == pm::kLayoutVersionOld &&
                           !TENUTO_PLANT("heap_reach_forgets_old_versions");
  // What is to be read.
  struct Task {
    const void* at = nullptr;
    std::uint64_t bytes = 0;
    References::Reader reader = nullptr;
    bool whole = true;  // a block, and not an object in one
    bool fixed = false;
  };
  struct Share {
    std::vector<Candidate> places = {};
    std::vector<Task> unread = {};
  };
  BlockLookup blocks_at{s, after_crash};

  std::atomic<int> wanted = 0;  // threads that wait, less the shares that are given
  std::mutex mu = {};
  std::condition_variable given_or_done = {};
  // By mu.
  std::vector<Share> given = {};
  unsigned working = 0;
  bool done = false;    // nobody works and nothing is given
  bool failed = false;  // an allocation: a thread gave up
  std::uint64_t blocks = 0;
  std::uint64_t bytes = 0;

  // One thread's work.
  struct Walk final : References::Marker {
    Tracer& tracer;
    // Of the pool.
    const std::uintptr_t base = reinterpret_cast<std::uintptr_t>(tracer.s.file.base());
    const std::uint64_t bytes_mapped = tracer.s.file.bytes();
    const References visit{*this};
    Candidates candidates = {};
    std::vector<Candidate> here = {};  // in one slab
    std::vector<Task> unread = {};     // blocks of that slab, and objects in what was read
    std::uint64_t blocks = 0;
    std::uint64_t bytes = 0;
    std::vector<Links::Link> links = {};
    // Of the readers that were met last.
    struct ReadBy {
      References::Reader reader = nullptr;
      BlockMarks* blocks = nullptr;
    };
    std::array<ReadBy, 16> read_by = {};

    explicit Walk(Tracer& t) : tracer(t) {}

    // Something leads to the block. word: null, or where that is. REQUIRES: links.
    void link(const Block& b, const PtrWord* word) {
      if (!tracer.links->sparse.has(slab_at(b.offset))) return;
      const bool known =
          word != nullptr && !fixed && !tracer.links->all_fixed && tracer.s.file.contains(word);
      if (known) {
        links.push_back({tracer.s.file.offset_of(word), b.offset});
      } else if (!TENUTO_PLANT("heap_reach_fixes_nothing")) {
        tracer.links->fixed.set(b.offset);
      }
    }

    // It is reached, and to be read by the reader. False: that has read it already.
    bool mark(const Block& b, References::Reader reader) {
      using Was = ReachedMarks;
      const std::uint64_t bits = Was::kReached | (reader == nullptr ? Was::kRead : 0);
      const std::uint64_t was = tracer.readings.reached.add(b.offset, bits);
      const bool fresh = (was & Was::kReached) == 0;
      if (fresh) {
        blocks += 1;
        bytes += b.bytes;
      }
      if (TENUTO_PLANT("heap_reach_reads_as_the_first_says")) return fresh;
      return reader == nullptr ? (was & Was::kRead) == 0 : mark_read_by(b, reader);
    }
    [[gnu::noinline]] bool mark_read_by(const Block& b, References::Reader reader) {
      ReadBy& last = read_by[std::hash<References::Reader>()(reader) / 16 % read_by.size()];
      if (last.blocks == nullptr || last.reader != reader) {
        last = {reader, &tracer.readings.by(reader)};
      }
      return last.blocks->set(b.offset);
    }
    // Stands for a container, which reads its blocks itself.
    static void owner(const void*, std::uint64_t, const References&) {}
    void add(const Candidate& c, const PtrWord* word) {
      if (tracer.links != nullptr) [[unlikely]]
        link_place(c, word);
      candidates.add(c);
    }
    [[gnu::noinline]] void link_place(const Candidate& c, const PtrWord* word) {
      const Block b = tracer.blocks_at.containing(c.at());
      if (b.offset && (b.offset == c.at() || !c.only_begin())) link(b, word);
    }
    // The block of at least so many usable bytes that begins there. No offset: there is none.
    Block begins_at(const void* p, std::uint64_t n) const {
      if (!tracer.s.file.contains(p)) return {};
      const PoolOffset o = tracer.s.file.offset_of(p);
      const Block b = tracer.blocks_at.containing(o);
      return b.offset == o && b.bytes - tracer.s.canary_bytes >= n ? b : Block{};
    }

    void lead_to(const void* to, References::Reader reader, const PtrWord* word) override {
      if (TENUTO_PLANT("heap_reach_passes_typed_pointers_over")) return;
      const std::uint64_t o = reinterpret_cast<std::uintptr_t>(to) - base;
      if (o < bytes_mapped) add({o, reader}, word);
    }
    void read_words(const void* at, std::uint64_t n) override {
      const auto begin = round_up(reinterpret_cast<std::uintptr_t>(at), sizeof(std::uint64_t));
      const std::uint64_t end = reinterpret_cast<std::uintptr_t>(at) + n;
      if (begin < end) read_whole_words(reinterpret_cast<const std::uint64_t*>(begin), end - begin);
    }
    // A Ptr may lead into a block, a VPtr leads to its begin.
    void read_whole_words(const std::uint64_t* word, std::uint64_t n) {
      const std::uintptr_t from = base;
      const std::uint64_t most = bytes_mapped;
      const std::uint32_t first = tracer.any_version ? 0 : 1;
      const std::uint32_t versions = VPtrWord::kVersions - 2 * first;
      for (const std::uint64_t* const end = word + n / sizeof *word; word != end; ++word) {
        const std::uint64_t raw = __atomic_load_n(word, __ATOMIC_RELAXED);
        if ((raw & 1) != 0) {
          const std::uint64_t o =
              reinterpret_cast<std::uintptr_t>(PtrWord::decode(word, raw)) - from;
          if (o < most) add({o}, nullptr);
        }
        if (VPtrWord::version(raw) - first < versions) {
          if (TENUTO_PLANT("heap_reach_passes_versioned_words_over")) continue;
          const std::uint64_t o =
              reinterpret_cast<std::uintptr_t>(VPtrWord::decode(word, raw)) - from;
          if (o < most) add({o | Candidate::kBegin}, nullptr);
        }
      }
    }
    void read_later(const void* at, std::uint64_t n, References::Reader reader) override {
      if (TENUTO_PLANT("heap_reach_forgets_what_is_deep")) return;
      unread.push_back({at, n, reader, false, fixed});
    }
    bool is_block(const void* at, std::uint64_t n) const override {
      return static_cast<bool>(begins_at(at, n).offset);
    }
    bool take(const void* block, std::uint64_t n, const PtrWord* word,
              References::Reader reader) override {
      const Block b = begins_at(block, n);
      if (!b.offset) return false;
      if (tracer.links != nullptr) link(b, word);
      return mark(b, reader == nullptr ? &owner : reader);
    }

    // Null: none is registered.
    const PointerFilter* filter_of(const Task& block) const {
      const GarbageOptions& o = tracer.options;
      if (block.at == tracer.root && o.root_filter) return &o.root_filter;
      if (o.filters.empty()) return nullptr;
      const PoolOffset offset = tracer.s.file.offset_of(block.at);
      const auto filter = o.filters.find(tracer.blocks_at.type_of({offset, block.bytes}));
      return filter == o.filters.end() || !filter->second ? nullptr : &filter->second;
    }
    void call(const auto& reader, const Task& task, std::uint64_t usable) {
      const pm::MetadataClosed closed;
      depth = 0;
      fixed = task.fixed;
      reader(task.at, usable, visit);
    }
    void read(const Task& task) {
      if (!task.whole) return call(task.reader, task, task.bytes);
      const std::uint64_t usable = task.bytes - tracer.s.canary_bytes;
      const PointerFilter* const filter = filter_of(task);
      if (filter != nullptr) return call(*filter, task, usable);
      if (task.reader != nullptr) return call(task.reader, task, usable);
      fixed = false;
      const bool half = TENUTO_PLANT("heap_reach_reads_half_a_block");
      read_whole_words(static_cast<const std::uint64_t*>(task.at), half ? usable / 2 : usable);
    }
    void look_at(const Candidate& c) {
      const Block b = tracer.blocks_at.containing(c.at());
      if (!b.offset) return;
      const bool begins = b.offset == c.at();
      if (!begins && c.only_begin()) return;
      const References::Reader reader = begins ? c.reader : nullptr;
      if (!mark(b, reader)) return;
      unread.push_back({tracer.s.file.at<void>(b.offset), b.bytes, reader});
      const auto* const at = static_cast<const char*>(unread.back().at);
      __builtin_prefetch(at);
      __builtin_prefetch(at + std::min<std::uint64_t>(b.bytes, 2 * kLineBytes) - 1);
    }
    bool is_wanted() const { return tracer.wanted.load(std::memory_order_relaxed) > 0; }
    // Reads what is not read yet, also what that adds.
    void read_all() {
      for (std::size_t i = 0; i < unread.size(); ++i) {
        const Task task = unread[i];
        read(task);
        if (is_wanted() && unread.size() - i > 2) {
          const auto half = unread.end() - static_cast<std::ptrdiff_t>((unread.size() - i) / 2);
          tracer.share({.unread = {half, unread.end()}});
          unread.erase(half, unread.end());
        }
      }
      unread.clear();
    }
    void run(const Share& share) {
      unread = share.unread;
      for (const Candidate& c : share.places) candidates.add(c);
      read_all();
      for (candidates.take(here); !here.empty(); candidates.take(here)) {
        for (const Candidate& c : here) look_at(c);
        read_all();
        if (is_wanted()) tracer.share({.places = candidates.half()});
      }
    }
  };

  void share(Share some) {
    if (some.places.empty() && some.unread.empty()) return;
    if (TENUTO_PLANT("heap_reach_loses_what_it_shares")) return;
    const std::lock_guard lock(mu);
    give(std::move(some));
  }
  // REQUIRES: mu.
  void give(Share some) {
    given.push_back(std::move(some));
    wanted.fetch_sub(1, std::memory_order_relaxed);
    given_or_done.notify_one();
  }
  // False: there is nothing left to do.
  bool wait_for(Share& some) {
    std::unique_lock lock(mu);
    wanted.fetch_add(1, std::memory_order_relaxed);
    if (given.empty() && working == 0) finish();
    const pm::NotCancelled whole;
    given_or_done.wait(lock, [this] { return done || !given.empty(); });
    if (given.empty() || failed) return false;
    some = std::move(given.back());
    given.pop_back();
    working += 1;
    return true;
  }
  // REQUIRES: mu.
  void finish() {
    done = true;
    given_or_done.notify_all();
  }

  void hand_over(std::vector<Links::Link>& words) {
    if (words.empty()) return;
    const std::lock_guard lock(mu);
    links->words.insert(links->words.end(), words.begin(), words.end());
    words.clear();
  }

  // What each thread does.
  void work() {
    Walk w(*this);
    Share some;
    while (wait_for(some)) {
      const bool had = pm::had_memory([&] {
        w.run(some);
        hand_over(w.links);
      });
      const std::lock_guard lock(mu);
      working -= 1;
      blocks += std::exchange(w.blocks, 0);
      bytes += std::exchange(w.bytes, 0);
      if (had) continue;
      failed = true;
      return finish();
    }
  }
};

void Heap::reach(std::span<const PoolOffset> from, const GarbageOptions& options,
                 Readings& readings, Reached& reached, Links* links) {
  state_->collect_all_recorded();
  trace(from, options, false, readings, reached, links);
}

void Heap::reach_after_crash(std::span<const PoolOffset> from, const GarbageOptions& options,
                             Readings& readings, Reached& reached) {
  trace(from, options, true, readings, reached, nullptr);
}

void Heap::trace(std::span<const PoolOffset> from, const GarbageOptions& options, bool after_crash,
                 Readings& readings, Reached& reached, Links* links) {
  const pm::MetadataOpen rights;
  const auto& word = reinterpret_cast<const PtrWord&>(state_->file.head().roots[pm::kRootUser]);
  const void* const root = PtrWord::decode(&word, word.raw);
  State::Tracer tracer{*state_, options, root, readings, after_crash, links};
  State::Tracer::Share first;
  for (const PoolOffset o : from) first.places.push_back({o.value});
  tracer.give(std::move(first));
  state_->for_each_slab([&](Slab& slab) {
    if (is_logged(slab.kind)) readings.reached.prepare(slab.offset, kSlabBytes);
  });
  const unsigned threads = threads_of(options);
  pm::waiting_each(threads, threads, [&](std::size_t) { tracer.work(); });
  if (tracer.failed) pm::throw_bad_alloc();
  reached.blocks += tracer.blocks;
  reached.bytes += tracer.bytes;
}

}  // namespace TENUTO_NS::heap
