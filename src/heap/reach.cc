// What pointers lead to: a parallel mark over the logged blocks of a quiescent pool. Nothing here
// changes the pool.
//
// A thread has a stack of what it has not read yet: marked blocks, and objects in them. The next
// ones wait in a short queue, so that their lines are on the way. While another thread waits, a
// thread gives it the older half of its stack.
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
#include <iterator>
#include <mutex>
#include <utility>

#include "heap/heap_paths.h"
#include "heap/morph.h"
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
  // What is to be read.
  struct Task {
    const void* at = nullptr;
    std::uint64_t bytes = 0;
    References::Reader reader = nullptr;
    bool whole = true;  // a block, and not an object in one
    bool fixed = false;
  };
  struct Large {
    Block block;
    bool typed = false;
  };
  std::vector<Large> extents = {};  // that are allocated, by offset

  std::atomic<int> wanted = 0;  // threads that wait, less the stacks that are given
  std::mutex mu = {};
  std::condition_variable given_or_done = {};
  // By mu.
  std::vector<std::vector<Task>> given = {};
  unsigned working = 0;
  bool done = false;    // nobody works and nothing is given
  bool failed = false;  // an allocation: a thread gave up
  std::uint64_t blocks = 0;
  std::uint64_t bytes = 0;

  static constexpr std::size_t kAhead = 8;  // blocks whose lines are on the way

  void find_extents() {
    if (after_crash) {
      s.extents.for_each_recovered([this](const BookRecord& r) {
        if (!is_logged(r.kind)) return;
        const bool typed = r.kind == Kind::typed;
        const std::uint64_t usable = r.frames * kFrameBytes - (typed ? kTypeBytes : 0);
        if (typed && *s.file.at<std::uint64_t>(r.offset + usable) == 0) return;
        extents.push_back({{r.offset, usable}, typed});
      });
      return;
    }
    s.extents.for_each(Kind::logged, [this](PoolOffset o, std::uint64_t n) {
      if (!s.extents.find(o, Kind::logged, Wanted::in_use)) return;
      extents.push_back({{o, n}, s.extents.is_typed(o)});
    });
    std::sort(extents.begin(), extents.end(),
              [](const Large& a, const Large& b) { return a.block.offset < b.block.offset; });
  }

  // The allocated or reserved logged block that contains o. No offset: there is none.
  Block containing(PoolOffset o) const {
    const PageTable::Entry e = s.pages.find(o);
    if (e.owner == PageOwner::none) return extent_containing(o);
    const Slab& slab = *e.slab();
    if (const Block b = block_of(slab, o); b.offset) return b;
    const OldPart* old = slab.old.load(std::memory_order_relaxed);
    return old == nullptr ? Block{} : block_of(*old->slab, o);
  }
  Block block_of(const Slab& part, PoolOffset o) const {
    if (!is_logged(part.kind) || o < part.offset + part.data_offset) return {};
    const auto i =
        static_cast<unsigned>((o.value - part.offset.value - part.data_offset) / part.block_bytes);
    if (i >= part.blocks) return {};
    // The type of an allocated block is durable, and not 0.
    const bool can_be = part.kind != Kind::typed || part.type_word(i) != 0;
    if (!(after_crash ? can_be : part.live(i) || part.reserved(i))) return {};
    return {part.block_offset(i), part.block_bytes};
  }
  // Null: none contains it.
  const Large* large_containing(PoolOffset o) const {
    const auto after =
        std::upper_bound(extents.begin(), extents.end(), o,
                         [](PoolOffset at, const Large& l) { return at < l.block.offset; });
    if (after == extents.begin()) return nullptr;
    const Large& l = *std::prev(after);
    return o < l.block.offset + l.block.bytes ? &l : nullptr;
  }
  Block extent_containing(PoolOffset o) const {
    const Large* const l = large_containing(o);
    return l == nullptr ? Block{} : l->block;
  }
  // 0: none.
  std::uint64_t type_of(const Block& b) const {
    const PageTable::Entry e = s.pages.find(b.offset);
    if (e.owner == PageOwner::typed) return e.slab()->type_word(e.slab()->index_of(b.offset));
    const Large* const l = e.owner == PageOwner::none ? large_containing(b.offset) : nullptr;
    return l != nullptr && l->typed ? *s.file.at<std::uint64_t>(b.offset + b.bytes) : 0;
  }

  // One thread's work.
  struct Walk final : References::Marker {
    Tracer& tracer;
    const References visit{*this};
    std::vector<Task> stack = {};
    std::array<Task, kAhead> ahead = {};
    std::size_t next = 0;     // of `ahead`, a ring
    std::size_t waiting = 0;  // in it
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

    // Something leads to the block. word: null, or where that is.
    void link(const Block& b, const PtrWord* word) {
      if (tracer.links == nullptr || !tracer.links->sparse.has(slab_at(b.offset))) return;
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
      if (reader == nullptr) return (was & Was::kRead) == 0;
      ReadBy& last = read_by[std::hash<References::Reader>()(reader) / 16 % read_by.size()];
      if (last.blocks == nullptr || last.reader != reader) {
        last = {reader, &tracer.readings.by(reader)};
      }
      return last.blocks->set(b.offset);
    }
    void found(const Block& b, References::Reader reader = nullptr) {
      if (mark(b, reader)) stack.push_back({tracer.s.file.at<void>(b.offset), b.bytes, reader});
    }
    // Stands for a container, which reads its blocks itself.
    static void owner(const void*, std::uint64_t, const References&) {}
    // A word may point into a block if it is a Ptr, or to its begin.
    void target(const void* p, bool inside, References::Reader reader = nullptr,
                const PtrWord* word = nullptr) {
      if (!tracer.s.file.contains(p)) return;
      const PoolOffset o = tracer.s.file.offset_of(p);
      const Block b = tracer.containing(o);
      if (!b.offset || (!inside && b.offset != o)) return;
      link(b, word);
      found(b, b.offset == o ? reader : nullptr);
    }
    // The block of at least so many usable bytes that begins there. No offset: there is none.
    Block begins_at(const void* p, std::uint64_t n) const {
      if (!tracer.s.file.contains(p)) return {};
      const PoolOffset o = tracer.s.file.offset_of(p);
      const Block b = tracer.containing(o);
      return b.offset == o && b.bytes - tracer.s.canary_bytes >= n ? b : Block{};
    }

    void lead_to(const void* to, References::Reader reader, const PtrWord* word) override {
      if (TENUTO_PLANT("heap_reach_passes_typed_pointers_over")) return;
      target(to, true, reader, word);
    }
    void read_words(const void* at, std::uint64_t n) override {
      const auto begin = round_up(reinterpret_cast<std::uintptr_t>(at), sizeof(std::uint64_t));
      const std::uint64_t end = reinterpret_cast<std::uintptr_t>(at) + n;
      const auto* const first = reinterpret_cast<const std::uint64_t*>(begin);
      for (std::size_t i = 0; begin + (i + 1) * sizeof(std::uint64_t) <= end; ++i) word(first[i]);
    }
    void read_later(const void* at, std::uint64_t n, References::Reader reader) override {
      if (TENUTO_PLANT("heap_reach_forgets_what_is_deep")) return;
      stack.push_back({at, n, reader, false, fixed});
    }
    bool is_block(const void* at, std::uint64_t n) const override {
      return static_cast<bool>(begins_at(at, n).offset);
    }
    bool take(const void* block, std::uint64_t n, const PtrWord* word,
              References::Reader reader) override {
      const Block b = begins_at(block, n);
      if (!b.offset) return false;
      link(b, word);
      return mark(b, reader == nullptr ? &owner : reader);
    }

    void word(const std::uint64_t& at) {
      const std::uint64_t raw = __atomic_load_n(&at, __ATOMIC_RELAXED);
      if (raw == 0) return;
      if ((raw & 1) != 0) target(PtrWord::decode(&at, raw), true);
      if (TENUTO_PLANT("heap_reach_passes_versioned_words_over")) return;
      if (const void* p = VPtrWord::decode(&at, raw)) target(p, false);
    }
    // Null: none is registered.
    const PointerFilter* filter_of(const Task& block) const {
      const GarbageOptions& o = tracer.options;
      if (block.at == tracer.root && o.root_filter) return &o.root_filter;
      if (o.filters.empty()) return nullptr;
      const PoolOffset offset = tracer.s.file.offset_of(block.at);
      const auto filter = o.filters.find(tracer.type_of({offset, block.bytes}));
      return filter == o.filters.end() || !filter->second ? nullptr : &filter->second;
    }
    void read(const Task& task) {
      const pm::MetadataClosed closed;
      depth = 0;
      fixed = task.fixed;
      if (!task.whole) return task.reader(task.at, task.bytes, visit);
      const std::uint64_t usable = task.bytes - tracer.s.canary_bytes;
      if (const PointerFilter* const filter = filter_of(task)) {
        return (*filter)(task.at, usable, visit);
      }
      if (task.reader != nullptr) return task.reader(task.at, usable, visit);
      const auto* const at = static_cast<const std::uint64_t*>(task.at);
      const std::size_t words = usable / sizeof(std::uint64_t);
      const std::size_t end = TENUTO_PLANT("heap_reach_reads_half_a_block") ? words / 2 : words;
      for (std::size_t i = 0; i < end; ++i) word(at[i]);
    }
    // The one whose line was asked for longest ago. Null: there is none left.
    Task next_task() {
      for (; waiting < kAhead && !stack.empty(); ++waiting) {
        const Task& task = ahead[(next + waiting) % kAhead] = stack.back();
        __builtin_prefetch(task.at);
        stack.pop_back();
      }
      if (waiting == 0) return {};
      waiting -= 1;
      const Task due = ahead[next];
      next = (next + 1) % kAhead;
      return due;
    }
    void run() {
      for (Task task = next_task(); task.at != nullptr; task = next_task()) {
        read(task);
        if (stack.size() > 1 && tracer.wanted.load(std::memory_order_relaxed) > 0) {
          tracer.share(stack);
        }
      }
    }
  };

  // The older half: it leads to more.
  void share(std::vector<Task>& stack) {
    const auto half = stack.begin() + static_cast<std::ptrdiff_t>(stack.size() / 2);
    std::vector<Task> older(stack.begin(), half);
    stack.erase(stack.begin(), half);
    if (TENUTO_PLANT("heap_reach_loses_what_it_shares")) return;
    const std::lock_guard lock(mu);
    give(std::move(older));
  }
  // REQUIRES: mu.
  void give(std::vector<Task> stack) {
    given.push_back(std::move(stack));
    wanted.fetch_sub(1, std::memory_order_relaxed);
    given_or_done.notify_one();
  }
  // False: there is nothing left to do.
  bool wait_for(std::vector<Task>& stack) {
    std::unique_lock lock(mu);
    wanted.fetch_add(1, std::memory_order_relaxed);
    if (given.empty() && working == 0) finish();
    const pm::NotCancelled whole;
    given_or_done.wait(lock, [this] { return done || !given.empty(); });
    if (given.empty() || failed) return false;
    stack = std::move(given.back());
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
    while (wait_for(w.stack)) {
      const bool had = pm::had_memory([&] {
        w.run();
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
  tracer.find_extents();
  State::Tracer::Walk first(tracer);
  for (const PoolOffset o : from) {
    if (const Block b = tracer.containing(o); b.offset) first.found(b);
  }
  tracer.give(std::move(first.stack));
  const unsigned threads = options.threads == 0 ? pm::cores() : options.threads;
  pm::waiting_each(threads, threads, [&](std::size_t) { tracer.work(); });
  if (tracer.failed) pm::throw_bad_alloc();
  reached.blocks += first.blocks + tracer.blocks;
  reached.bytes += first.bytes + tracer.bytes;
}

}  // namespace TENUTO_NS::heap
