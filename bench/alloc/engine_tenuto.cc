// Tenuto behind the adapter, using only the public header. It has six variants. One uses malloc_to
// and free_from on plain destinations in the pool. One uses them on versioned destinations. Two
// use pools with Consistency::gc and internal. One uses reserve and cancel: only this process knows
// those blocks, so nothing is flushed for them. One gives its blocks a type and compacts the pool
// when that is too large.
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "bench/alloc/allocator.h"
#include "bench/support/tenuto_medium.h"
#include "tenuto/persist.h"
#include "tenuto/pool.h"

namespace bench {
namespace {

using tenuto::Consistency;
using tenuto::Pool;
using tenuto::PtrWord;
using tenuto::Status;
using tenuto::VPtrWord;

class TenutoAllocator : public Allocator {
 public:
  explicit TenutoAllocator(Consistency c = Consistency::log) : consistency_(c) {}
  bool open(const AllocatorOptions& options) override {
    options_ = options;
    const std::optional<tenuto::Medium> medium = medium_of(options.medium);
    if (!medium) return refuse("no medium is called " + options.medium);
    tenuto::PoolOptions how;
    how.medium = *medium;
    how.durability = tenuto::Durability::buffered;  // same as sync on media other than journal
    how.consistency = consistency_;
    options.ablation.apply(how);
    const std::string path = options.dir + "/heap.tnt";
    tenuto::Report report;
    tenuto::Result<Pool> pool = Pool::open(path, how, &report);
    if (!pool && pool.error() == Status::not_found) pool = Pool::create(path, how, &report);
    if (!pool) return fail(pool.error(), report);
    pool_.emplace(std::move(*pool));
    return true;
  }
  bool close() override {
    const Status s = pool_->close();
    pool_.reset();
    return s == Status::ok || refuse(std::string("close: ") + tenuto::status_name(s));
  }

  std::byte* root() override {
    tenuto::Report report;
    const tenuto::Result<void*> root = pool_->root("alloc_bench", options_.root_bytes, &report);
    if (!root) {
      fail(root.error(), report);
      return nullptr;
    }
    return static_cast<std::byte*>(*root);
  }
  std::uint64_t heap_bytes() override { return pool_->used_bytes(); }
  double file_bytes() override {
    struct stat st {};
    return ::stat(pool_->info().path.c_str(), &st) == 0 ? static_cast<double>(st.st_blocks) * 512
                                                        : -1;
  }
  EngineCounters counters() override {
    if (pool_->info().medium != tenuto::Medium::model) return {};
    const tenuto::PoolStats s = pool_->stats();
    return {static_cast<double>(s.lines_flushed), static_cast<double>(s.fences),
            static_cast<double>(s.reflushes)};
  }
  HeapShape shape() override {
    const tenuto::PoolStats s = pool_->stats();
    HeapShape shape;
    shape.book_bytes = static_cast<double>(s.book_list_bytes);
    shape.book_fast_gcs = static_cast<double>(s.book_fast_gcs);
    shape.book_slow_gcs = static_cast<double>(s.book_slow_gcs);
    shape.morphed_slabs = static_cast<double>(s.morphed_slabs);
    shape.has_slabs = true;
    std::copy(s.slabs_by_tenth.begin(), s.slabs_by_tenth.end(), shape.slabs_by_tenth);
    return shape;
  }
  void flush(const void* p, std::uint64_t bytes) override { tenuto::flush_bytes(p, bytes); }
  bool sync() override {
    tenuto::fence("contents of the benchmark", "the crash");
    return pool_->sync() == Status::ok;
  }
  double recovery_ms() override { return pool_->info().recovery_ms; }
  bool validate() override {
    tenuto::Report report;
    const Status s = pool_->validate(&report);
    return s == Status::ok || fail(s, report);
  }
  std::string medium() override { return tenuto::medium_name(pool_->info().medium); }

 protected:
  Pool& pool() { return *pool_; }
  const AllocatorOptions& options() const { return options_; }

 private:
  bool fail(Status s, const tenuto::Report& report) {
    return refuse(std::string(tenuto::status_name(s)) + ": " + report.text());
  }

  const Consistency consistency_;
  AllocatorOptions options_;
  std::optional<Pool> pool_;
};

template <class Word>
class TenutoLogged final : public TenutoAllocator {
 public:
  using TenutoAllocator::TenutoAllocator;
  std::size_t word_bytes() const override { return sizeof(Word); }
  void* malloc_to(std::uint64_t bytes, void* dest) override {
    Word& word = *static_cast<Word*>(dest);
    return pool().malloc_to(bytes, word) == Status::ok ? Word::decode(&word, word.raw) : nullptr;
  }
  bool free_from(void* dest) override {
    return pool().free_from(*static_cast<Word*>(dest)) == Status::ok;
  }
  void* follow(const void* dest) override {
    return Word::decode(dest, static_cast<const Word*>(dest)->raw);
  }
  bool malloc_group(std::span<void* const> dests, std::span<const std::uint64_t> bytes) override {
    return pool().malloc_to(bytes, words(dests)) == Status::ok;
  }
  bool free_group(std::span<void* const> dests) override {
    return pool().free_from(words(dests)) == Status::ok;
  }

 private:
  std::span<Word* const> words(std::span<void* const> dests) {
    words_.clear();
    for (void* dest : dests) words_.push_back(static_cast<Word*>(dest));
    return words_;
  }
  static thread_local std::vector<Word*> words_;
};
template <class Word>
thread_local std::vector<Word*> TenutoLogged<Word>::words_;

// A program that holds its pool to a size: when it takes kBudget times what may live, and something
// was allocated since, it is compacted. The objects hold no pointers.
class TenutoCompacted final : public TenutoAllocator {
 public:
  bool open(const AllocatorOptions& options) override {
    if (options.threads > 1 || options.verify || options.linked) {
      return refuse("its blocks move: one thread, no --verify, and no list or tree of blocks");
    }
    compaction_.root_filter = [this](const void* root, std::uint64_t bytes,
                                     const tenuto::References& visit) {
      const auto* const words = static_cast<const tenuto::Ptr<void>*>(root);
      const std::uint64_t count = std::min(bytes, this->options().root_bytes) / sizeof *words;
      for (std::uint64_t i = 0; i < count; ++i) visit(words[i]);
    };
    compaction_.types[kType] = {
        [](const void*, std::uint64_t, const tenuto::References&) {},
        [](void* to, void* from, std::uint64_t bytes) { std::memcpy(to, from, bytes); }};
    return TenutoAllocator::open(options);
  }
  std::size_t word_bytes() const override { return sizeof(PtrWord); }
  void* malloc_to(std::uint64_t bytes, void* dest) override {
    PtrWord& word = *static_cast<PtrWord*>(dest);
    since_ += bytes;
    if (since_ > options().live_bytes / kTurns) hold_to_budget();
    const bool there = pool().malloc_to(bytes, word, {.type = kType}) == Status::ok;
    return there ? PtrWord::decode(&word, word.raw) : nullptr;
  }
  bool free_from(void* dest) override {
    return pool().free_from(*static_cast<PtrWord*>(dest)) == Status::ok;
  }
  void* follow(const void* dest) override {
    return PtrWord::decode(dest, static_cast<const PtrWord*>(dest)->raw);
  }

 private:
  static constexpr std::uint64_t kType = 1;
  static constexpr double kBudget = 1.25;
  static constexpr std::uint64_t kTurns = 32;

  void hold_to_budget() {
    since_ = 0;
    const double budget = kBudget * static_cast<double>(options().live_bytes);
    if (static_cast<double>(pool().used_bytes()) > budget) {
      static_cast<void>(pool().compact(compaction_));
    }
  }

  tenuto::CompactObjectsOptions compaction_;
  std::uint64_t since_ = 0;  // bytes allocated since it was looked at
};

// Destinations are in DRAM, so only this process finds such a block.
class TenutoReserved final : public TenutoAllocator {
 public:
  std::byte* root() override {
    root_.assign(options().root_bytes, std::byte{0});
    return root_.data();
  }
  std::size_t word_bytes() const override { return sizeof(tenuto::Reserved); }
  void* malloc_to(std::uint64_t bytes, void* dest) override {
    const tenuto::Result<tenuto::Reserved> block = pool().reserve(bytes);
    if (!block) return nullptr;
    *static_cast<tenuto::Reserved*>(dest) = *block;
    return block->data;
  }
  bool free_from(void* dest) override {
    tenuto::Reserved& block = *static_cast<tenuto::Reserved*>(dest);
    const bool freed = pool().cancel(block) == Status::ok;
    block = {};
    return freed;
  }
  void* follow(const void* dest) override {
    return static_cast<const tenuto::Reserved*>(dest)->data;
  }

 private:
  std::vector<std::byte> root_;
};

std::string words_of(const std::string& medium) {
  std::string what = "medium " + medium + ", ";
  if (medium == "line" || medium == "model") return what + "every line flushed";
  if (medium == "cache") return what + "no flush: survives kill -9";
  if (medium == "journal") return what + "buffered: a power cut loses at most the last 100 ms";
  return what + "line on persistent memory, in memory cache, elsewhere a buffered journal";
}

}  // namespace

std::unique_ptr<Allocator> make_tenuto_logged() {
  return std::make_unique<TenutoLogged<PtrWord>>();
}
std::unique_ptr<Allocator> make_tenuto_versioned() {
  return std::make_unique<TenutoLogged<VPtrWord>>();
}
std::unique_ptr<Allocator> make_tenuto_gc() {
  return std::make_unique<TenutoLogged<PtrWord>>(Consistency::gc);
}
std::unique_ptr<Allocator> make_tenuto_internal() {
  return std::make_unique<TenutoLogged<PtrWord>>(Consistency::internal);
}
std::unique_ptr<Allocator> make_tenuto_compacted() { return std::make_unique<TenutoCompacted>(); }
std::unique_ptr<Allocator> make_tenuto_reserved() { return std::make_unique<TenutoReserved>(); }

std::string tenuto_logged_settings(const std::string& medium) {
  return "malloc_to and free_from, " + words_of(medium) + "; the pool grows from its default size";
}
std::string tenuto_versioned_settings(const std::string& medium) {
  return "the same on versioned destinations, " + words_of(medium);
}
std::string tenuto_gc_settings(const std::string& medium) {
  return "the same on a pool with Consistency::gc, " + words_of(medium) +
         ", up to 64 calls together; after a crash a collection";
}
std::string tenuto_internal_settings(const std::string& medium) {
  return "the same on a pool with Consistency::internal, " + words_of(medium) +
         "; after a crash the application mends its words";
}
std::string tenuto_compacted_settings(const std::string& medium) {
  return "malloc_to with a type, " + words_of(medium) +
         "; Pool::compact when the pool takes 1.25 times what may live";
}
std::string tenuto_reserved_settings(const std::string& medium) {
  return "reserve and cancel: a crash frees the blocks, " + words_of(medium) +
         "; the pool grows from its default size";
}

}  // namespace bench
