// Stores of a program that run from the last block of a slab into the header, the bits and the
// blocks of the next one, and stray stores into bits and into the bookkeeping log. Each is found by
// the next call that looks at the slab, by validate, or by close; it is named and restored; and the
// next open finds every block.
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "heap/format.h"
#include "pm/plant.h"
#include "support/pool_parts.h"
#include "tenuto/kv.h"
#include "tenuto/pool.h"

namespace tenuto {
namespace {

using heap::kSlabBytes;
using test::TempPath;

constexpr std::size_t kWords = 6500;
struct Root {
  Ptr<char> first;  // an extent of words, which no overflow here meets
};

// What one run does: how blocks are made, how far the program writes, and what finds it.
struct Overrun {
  std::uint64_t bytes = 64;
  std::uint64_t type = 0;
  Consistency consistency = Consistency::log;
  Medium medium = Medium::cache;
  std::size_t over = 1;  // bytes behind the slab
  std::string found_by = "close";
};

class World {
 public:
  explicit World(Overrun run) : run_(std::move(run)) {
    options_ = test::PoolParts::small_options();
    options_.consistency = run_.consistency;
    options_.medium = run_.medium;
    options_.log = [this](std::string_view text) { log_ += text; };
  }

  // Empty: the overflow was found, named and mended.
  std::string go() {
    if (std::string e = fill(); !e.empty()) return e;
    overflow();
    Status s = find();
    if (s != Status::corrupt) return run_.found_by + " says " + status_name(s);
    if (run_.found_by == "validate") {
      s = pool_->close();  // it restores, and says so, too
    } else if (run_.found_by != "close") {
      if (std::string e = named(); !e.empty()) return e;
      PtrWord& w = words()[kWords - 1];
      if (pool_->malloc_to(64, w) != Status::corrupt) return "the pool is not read-only";
      s = pool_->close();
    }
    if (s != Status::corrupt) return std::string("close says ") + status_name(s);
    const std::string at = "offset " + std::to_string(slab_);
    if (log_.find(at) == std::string::npos) return "the log does not name it: " + log_;
    return reopen();
  }

 private:
  PtrWord* words() { return words_; }
  void find_words() {
    Root& r = **pool_->root<Root>("root");
    words_ = reinterpret_cast<PtrWord*>(r.first.get());
  }
  char* block(std::size_t i) {
    PtrWord& w = words()[i];
    return static_cast<char*>(PtrWord::decode(&w, w.raw));
  }

  std::string fill() {
    Result<Pool> made = Pool::create(path_.str(), options_, &report_);
    if (!made) return "create: " + report_.text();
    pool_ = std::move(made);
    Root& r = **pool_->root<Root>("root");
    if (pool_->malloc_to(8 * kWords, r.first.word(), {.zero = true}) != Status::ok) return "words";
    find_words();
    count_ = 4 * kSlabBytes / run_.bytes;
    for (std::size_t i = 0; i < count_; ++i) {
      if (pool_->malloc_to(run_.bytes, words()[i], {.type = run_.type}) != Status::ok)
        return "malloc_to";
    }
    // All slabs have free blocks. Sparse ones can be morphed.
    for (std::size_t i = 0; i < count_; ++i) {
      const bool freed = run_.found_by == "morph" ? i % 16 != 3 : i % 4 == 3;
      if (freed && pool_->free_from(words()[i]) != Status::ok) return "free_from";
    }
    if (run_.found_by != "close") static_cast<void>(pool_->trim());  // empties caches
    // Two neighbours: the last block of the first one, and the slab behind it.
    std::map<std::uint64_t, std::uint64_t> last;
    for (std::size_t i = 0; i < count_; ++i) {
      if (block(i) == nullptr) continue;
      const std::uint64_t o = pool_->offset_of(block(i)).value;
      blocks_[i] = o;
      std::uint64_t& end = last[o / kSlabBytes];
      end = std::max(end, o + pool_->usable_size(block(i)));
    }
    for (const auto& [unit, end] : last) {
      if (!last.contains(unit + 1)) continue;
      slab_ = (unit + 1) * kSlabBytes;
      from_ = end;
    }
    return slab_ == 0 ? "no slabs side by side" : "";
  }

  // As a program does that fills a block and goes on.
  void overflow() {
    auto* const from = static_cast<char*>(pool_->at({from_}));
    std::memset(from, 0xee, slab_ + run_.over - from_);
    flush_bytes(from, slab_ + run_.over - from_);
  }

  Status find() {
    if (run_.found_by == "close") return pool_->close();
    if (run_.found_by == "validate") {
      const Status s = pool_->validate(&report_);
      const bool named = report_.text().find(std::to_string(slab_)) != std::string::npos;
      return named ? s : Status::aborted;
    }
    if (run_.found_by == "free") {
      for (const bool here : {true, false}) {
        for (const auto& [i, o] : blocks_) {
          if ((o / kSlabBytes == slab_ / kSlabBytes) != here) continue;
          if (const Status s = pool_->free_from(words()[i]); s != Status::ok) return s;
          gone_.push_back(i);
        }
      }
      return Status::ok;
    }
    if (run_.found_by == "trim") {
      for (const auto& [i, o] : blocks_) {
        if (o < slab_ || o >= slab_ + kSlabBytes) continue;
        if (const Status s = pool_->free_from(words()[i]); s != Status::ok) return s;
        gone_.push_back(i);
      }
      return pool_->trim();
    }
    const std::uint64_t bytes = run_.found_by == "morph" ? 4 * run_.bytes : run_.bytes;
    for (std::size_t i = count_; i < kWords - 1; ++i) {
      const Status s = pool_->malloc_to(bytes, words()[i], {.type = run_.type});
      if (s != Status::ok) return s;
    }
    return Status::ok;
  }

  std::string named() {
    report_ = {};
    if (pool_->health(&report_) != Status::corrupt) return "health is not corrupt";
    const std::string text = report_.text();
    for (const std::string& part :
         {path_.str(), "offset " + std::to_string(slab_), std::string("header of the slab of"),
          std::string("mend the program")}) {
      if (text.find(part) == std::string::npos) return "the report has no " + part + ": " + text;
    }
    return {};
  }

  std::string reopen() {
    pool_ = Status::closed;
    Result<Pool> opened = Pool::open(path_.str(), options_, &report_);
    if (!opened) return "open: " + report_.text();
    pool_ = std::move(opened);
    find_words();
    if (pool_->validate(&report_) != Status::ok) return "validate: " + report_.text();
    for (const std::size_t i : gone_) blocks_.erase(i);
    for (const auto& [i, o] : blocks_) {
      const void* const p = block(i);
      if (p == nullptr || pool_->offset_of(p).value != o) return "a word changed";
      if (pool_->usable_size(p) < run_.bytes) return "block " + std::to_string(o) + " is lost";
      if (pool_->free_from(words()[i], &report_) != Status::ok) return "free: " + report_.text();
    }
    if (pool_->validate(&report_) != Status::ok) return "validate: " + report_.text();
    return pool_->close() == Status::ok ? "" : "the last close fails";
  }

  const Overrun run_;
  TempPath path_{"guard"};
  PoolOptions options_;
  std::string log_;
  Report report_;
  Result<Pool> pool_ = Status::closed;
  PtrWord* words_ = nullptr;
  std::size_t count_ = 0;
  std::map<std::size_t, std::uint64_t> blocks_;  // by word
  std::vector<std::size_t> gone_;                // freed since
  std::uint64_t slab_ = 0;                       // that is overwritten
  std::uint64_t from_ = 0;
};

std::string name_of(const Overrun& r) {
  return std::to_string(r.bytes) + " bytes, type " + std::to_string(r.type) + ", " +
         consistency_name(r.consistency) + ", " + medium_name(r.medium) + ", " +
         std::to_string(r.over) + " over, " + r.found_by;
}

void expect_found(const Overrun& r) { EXPECT_EQ(World(r).go(), "") << name_of(r); }

constexpr std::size_t kOver[] = {1, 8, 64, 4096};

TEST(Guard, overflows_are_found_at_a_close) {
  for (const std::size_t over : kOver) {
    for (const Consistency c : {Consistency::log, Consistency::internal}) {
      expect_found({.consistency = c, .over = over});
      expect_found({.bytes = 400, .consistency = c, .over = over});
    }
  }
  expect_found({.medium = Medium::journal, .over = 64});
  expect_found({.medium = Medium::line, .over = 64});
}

TEST(Guard, overflows_are_found_when_blocks_are_taken_and_given_back) {
  for (const char* by : {"malloc", "free", "trim", "morph", "validate"}) {
    for (const std::size_t over : kOver) {
      // A page of stray bytes is in the bits, too; validate names them first or the header.
      expect_found({.over = over, .found_by = by});
      expect_found({.consistency = Consistency::internal, .over = over, .found_by = by});
    }
    expect_found({.medium = Medium::journal, .over = 8, .found_by = by});
  }
}

// A page would reach the table of types, which DRAM does not have.
TEST(Guard, slabs_of_types_are_guarded) {
  for (const char* by : {"close", "malloc", "free", "validate"}) {
    for (const std::size_t over : {1u, 8u, 64u}) {
      expect_found({.type = 7, .over = over, .found_by = by});
    }
  }
}

// After the kill of a recovery only what the root leads to is kept: here that is every block.
TEST(Guard, a_pool_with_gc_is_guarded) {
  for (const char* by : {"close", "malloc", "free", "validate"}) {
    for (const std::size_t over : {1u, 8u, 64u}) {
      expect_found({.consistency = Consistency::gc, .over = over, .found_by = by});
    }
  }
}

// --- other places --------------------------------------------------------------------------------

class GuardPool : public testing::Test {
 protected:
  void SetUp() override {
    PoolOptions o = test::PoolParts::small_options();
    pool_ = Pool::create(path_.str(), o, &report_);
    ASSERT_TRUE(pool_) << report_.text();
    root_ = *pool_->root<Words>("words");
    for (int i = 0; i < 300; ++i) ASSERT_EQ(pool_->malloc_to(200, root_->slot[i]), Status::ok);
    for (int i = 0; i < 300; i += 3) ASSERT_EQ(pool_->free_from(root_->slot[i]), Status::ok);
    ASSERT_EQ(pool_->malloc_to(30'000, root_->slot[300]), Status::ok);
  }
  void reopen() {
    pool_ = Pool::open(path_.str(), test::PoolParts::small_options(), &report_);
    ASSERT_TRUE(pool_) << report_.text();
    root_ = *pool_->root<Words>("words");
  }
  void expect_all() {
    EXPECT_EQ(pool_->validate(&report_), Status::ok) << report_.text();
    for (int i = 0; i < 301; ++i) {
      const char* const p = root_->slot[i].get();
      EXPECT_EQ(p == nullptr, i % 3 == 0 && i < 300) << i;
      EXPECT_TRUE(p == nullptr || pool_->usable_size(p) >= 200) << i;
    }
  }
  struct Words {
    Ptr<char> slot[301];
  };
  TempPath path_{"guard-pool"};
  Report report_;
  Result<Pool> pool_ = Status::closed;
  Words* root_ = nullptr;
};

// Bits that say "free" of blocks in use, and "in use" of free ones: the seal of a close would make
// them believed.
TEST_F(GuardPool, bits_that_a_stray_store_changed_are_not_sealed) {
  for (const int value : {0, 0xff}) {
    const std::uint64_t o = pool_->offset_of(root_->slot[1].get()).value;
    auto* const bits = static_cast<char*>(pool_->at({o / kSlabBytes * kSlabBytes + kLineBytes}));
    std::memset(bits, value, 2 * kLineBytes);
    EXPECT_EQ(pool_->validate(&report_), Status::corrupt);
    EXPECT_EQ(pool_->close(), Status::corrupt);
    reopen();
    expect_all();
  }
}

TEST_F(GuardPool, headers_of_the_bookkeeping_log_are_restored) {
  std::uint64_t segment = 0;
  for (std::uint64_t o = kSlabBytes; o < pool_->stats().file_bytes; o += kSlabBytes) {
    if (*static_cast<std::uint64_t*>(pool_->at({o})) == heap::kBookSegmentMagic) segment = o;
  }
  ASSERT_NE(segment, 0u);
  for (const std::uint64_t at : {segment, segment + heap::kBookChunkBytes}) {
    for (const std::size_t bytes : {1u, 8u, 24u}) {
      std::memset(pool_->at({at}), 0xee, bytes);
      EXPECT_EQ(pool_->validate(&report_), Status::corrupt) << at << ", " << bytes;
      EXPECT_EQ(pool_->close(), Status::corrupt) << at << ", " << bytes;
      reopen();
      expect_all();
    }
  }
}

// Frees of an open transaction are undone by recovery. Their bits are not those of DRAM.
TEST_F(GuardPool, a_damaged_pool_with_an_open_transaction_keeps_what_it_frees) {
  ASSERT_EQ(pool_->close(), Status::ok);
  const pid_t child = ::fork();
  if (child == 0) {
    reopen();
    Transaction tx(*pool_);
    if (tx.free(root_->slot[1].get()) != Status::ok) ::_exit(1);
    const std::uint64_t o = pool_->offset_of(root_->slot[1].get()).value;
    std::memset(pool_->at({o / kSlabBytes * kSlabBytes}), 0xee, 8);
    for (int i = 2; i < 300 && pool_->health() == Status::ok; ++i) {
      if (i % 3 != 0) static_cast<void>(pool_->free_from(root_->slot[i]));
    }
    if (pool_->health() != Status::corrupt) ::_exit(2);
    if (pool_->close() != Status::busy) ::_exit(3);
    pool_ = Status::closed;  // the pool goes away under the transaction
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  reopen();
  EXPECT_EQ(pool_->validate(&report_), Status::ok) << report_.text();
  EXPECT_EQ(pool_->usable_size(root_->slot[1].get()), 224u);
}

// Objects in front of slabs of the store, which a close would not look at: nothing changed in them.
TEST(GuardStore, records_behind_objects_are_not_lost) {
  TempPath path("guard-store");
  Report report;
  StoreOptions o;
  o.pool = test::PoolParts::small_options();
  std::uint64_t slab = 0;
  for (int round = 0; round < 3; ++round) {
    Result<Store> store = Store::open(path.str(), o, &report);
    ASSERT_TRUE(store) << report.text();
    Pool& pool = store->pool();
    if (round == 0) {
      struct Words {
        Ptr<char> slot[2000];
      };
      Words& w = **pool.root<Words>("words");
      for (int i = 0; i < 2000; ++i) {
        ASSERT_EQ(pool.malloc_to(100, w.slot[i]), Status::ok);
        ASSERT_EQ(store->put("key" + std::to_string(i), std::string(90, 'v')), Status::ok);
      }
    } else if (round == 1) {
      for (slab = 2 * kSlabBytes; slab < pool.stats().file_bytes; slab += kSlabBytes) {
        const std::string here = pool.describe(pool.at({slab}));
        const std::string inside = pool.describe(pool.at({slab + kSlabBytes / 2}));
        const std::string below = pool.describe(pool.at({slab - kSlabBytes / 2}));
        if (here.find("header of the slab") == std::string::npos) continue;
        if (inside.find("of the store") == std::string::npos) continue;
        if (below.find("block of 112 bytes") == std::string::npos) continue;
        if (below.find("of the store") == std::string::npos) break;
      }
      ASSERT_LT(slab, pool.stats().file_bytes) << "no slab of the store behind one of objects";
      std::memset(pool.at({slab}), 0xee, 8);
      EXPECT_EQ(store->close(), Status::corrupt);
      continue;
    } else {
      std::string value;
      for (int i = 0; i < 2000; ++i) {
        EXPECT_EQ(store->get("key" + std::to_string(i), value), Status::ok) << i;
      }
      EXPECT_EQ(store->validate(&report), Status::ok) << report.text();
    }
    EXPECT_EQ(store->close(), Status::ok);
  }
}

// --- planted mistakes ----------------------------------------------------------------------------

TEST(GuardPlanted, mistakes_are_found) {
  const auto finds = [](const char* mistake, const Overrun& r) {
    plant(mistake);
    const std::string e = World(r).go();
    unplant_all();
    EXPECT_NE(e, "") << mistake;
    std::printf("%s: %s\n", mistake, e.c_str());
  };
  finds("heap_header_believed", {.over = 8});
  finds("heap_header_not_restored", {.over = 8});
  finds("heap_close_seals_any_bits", {.over = 4096});
}

}  // namespace
}  // namespace tenuto
