// Frees, publishes and cancels that are refused: twice, inside a block, of memory that is no
// object's. Each kind of block and each variant answers with a status and a report that names the
// pool, the offset, what is there, and what to do; and nothing is changed.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "pm/plant.h"
#include "support/pool_parts.h"
#include "tenuto/kv.h"
#include "tenuto/pool.h"

namespace tenuto {
namespace {

using test::TempPath;

struct Root {
  Ptr<char> slot[64];
  VPtr<char> versioned[64];
};

PoolOptions options(Consistency c) {
  PoolOptions o = test::PoolParts::small_options();
  o.consistency = c;
  return o;
}

class Refused : public testing::TestWithParam<Consistency> {
 protected:
  void SetUp() override {
    pool_ = Pool::create(path_.str(), options(GetParam()), &report_);
    ASSERT_TRUE(pool_) << report_.text();
    root_ = *pool_->root<Root>("root");
  }
  void TearDown() override {
    unplant_all();
    if (!pool_) return;
    EXPECT_EQ(pool_->health(&report_), Status::ok) << report_.text();
    EXPECT_EQ(pool_->validate(&report_), Status::ok) << report_.text();
    EXPECT_EQ(pool_->close(), Status::ok);
  }
  PtrWord& word(int i) { return root_->slot[i].word(); }
  VPtrWord& versioned(int i) { return root_->versioned[i].word(); }
  // Slot i points to the target, as a program that keeps a pointer would have it.
  void point(int i, const void* target) { word(i).raw = PtrWord::encode(&word(i), target); }
  void point_versioned(int i, const void* target) {
    versioned(i).raw = VPtrWord::encode(&versioned(i), target, 1);
  }

  // By a plain word, a versioned one, a batch, a transaction: refused, and the report says so.
  void expect_refused(const void* target, const std::string& why, const std::string& place) {
    SCOPED_TRACE(why + " / " + place);
    const auto told = [&](const char* how) {
      const std::string text = report_.text();
      EXPECT_NE(text.find(why), std::string::npos) << how << ": " << text;
      EXPECT_NE(text.find(place), std::string::npos) << how << ": " << text;
      EXPECT_NE(text.find(path_.str()), std::string::npos) << how << ": " << text;
      const std::string at = "offset " + std::to_string(pool_->offset_of(target).value);
      EXPECT_NE(text.find(at), std::string::npos) << how << ": " << text;
      report_ = {};
    };
    point(60, target);
    EXPECT_EQ(pool_->free_from(word(60), &report_), Status::invalid_argument);
    told("plain");
    if (reinterpret_cast<std::uintptr_t>(target) % VPtrWord::kUnit == 0) {
      point_versioned(60, target);
      EXPECT_EQ(pool_->free_from(versioned(60), &report_), Status::invalid_argument);
      told("versioned");
    }
    // Of a size that no test frees, so that it is not the block in question.
    ASSERT_EQ(pool_->malloc_to(320, word(61)), Status::ok);
    PtrWord* const both[] = {&word(61), &word(60)};
    EXPECT_EQ(pool_->free_from(std::span<PtrWord* const>(both), &report_),
              Status::invalid_argument);
    told("batch");
    EXPECT_EQ(pool_->free_from(word(61)), Status::ok) << "the batch freed nothing";
    EXPECT_EQ(pool_->run([&](Transaction& tx) { return tx.free(target); }),
              Status::invalid_argument);
    EXPECT_EQ(pool_->realloc_to(5000, word(60)), Status::invalid_argument);
    word(60) = {};
    versioned(60) = {};
  }

  TempPath path_{"refused"};
  Report report_;
  Result<Pool> pool_ = Status::closed;
  Root* root_ = nullptr;
};
INSTANTIATE_TEST_SUITE_P(All, Refused,
                         testing::Values(Consistency::log, Consistency::gc, Consistency::internal),
                         [](const auto& c) { return consistency_name(c.param); });

struct Kind {
  const char* name;
  std::uint64_t bytes;
  std::uint64_t type;
};
constexpr Kind kKinds[] = {
    {"small", 64, 0},      {"the smallest", 1, 0},      {"the largest small", 16'000, 0},
    {"typed", 64, 7},      {"extent", 20'000, 0},       {"typed extent", 20'000, 7},
    {"huge", 3u << 20, 0}, {"typed huge", 3u << 20, 7},
};

// How a block comes into being and goes.
struct Way {
  const char* name;
  std::function<Status(Pool&, PtrWord&, VPtrWord&, const Kind&)> make;
};
const Way kWays[] = {
    {"malloc_to", [](Pool& p, PtrWord& w, VPtrWord&,
                     const Kind& k) { return p.malloc_to(k.bytes, w, {.type = k.type}); }},
    {"versioned malloc_to",
     [](Pool& p, PtrWord& w, VPtrWord& v, const Kind& k) {
       TENUTO_TRY(p.malloc_to(k.bytes, v, {.type = k.type}));
       w.raw = PtrWord::encode(&w, VPtrWord::decode(&v, v.raw));
       return Status::ok;
     }},
    {"batch",
     [](Pool& p, PtrWord& w, VPtrWord&, const Kind& k) {
       return p.malloc_to(k.bytes, std::span<PtrWord>(&w, 1), {.type = k.type});
     }},
    {"publish",
     [](Pool& p, PtrWord& w, VPtrWord&, const Kind& k) {
       const Result<Reserved> block = p.reserve(k.bytes, {.type = k.type});
       return block ? p.publish(*block, w) : block.error();
     }},
    {"transaction",
     [](Pool& p, PtrWord& w, VPtrWord&, const Kind& k) {
       return p.run([&](Transaction& tx) {
         const Result<void*> block = tx.alloc(k.bytes, {.type = k.type});
         if (!block) return block.error();
         TENUTO_TRY(tx.add(w));
         w.raw = PtrWord::encode(&w, *block);
         return Status::ok;
       });
     }},
};

TEST_P(Refused, twice_and_inside_a_block_of_every_kind) {
  for (const Kind& k : kKinds) {
    for (const Way& way : kWays) {
      SCOPED_TRACE(std::string(k.name) + ", " + way.name);
      ASSERT_EQ(way.make(*pool_, word(0), versioned(0), k), Status::ok);
      char* const block = root_->slot[0].get();
      const std::uint64_t usable = pool_->usable_size(block);
      const std::string size = "block of " + std::to_string(usable) + " bytes";
      for (const std::uint64_t inside : {usable / 2, usable - 1}) {
        expect_refused(block + inside, "interior pointer", size);
      }
      const bool in_versioned = versioned(0).raw << 24 != 0 && root_->versioned[0].get() == block;
      ASSERT_EQ(in_versioned ? pool_->free_from(versioned(0)) : pool_->free_from(word(0)),
                Status::ok);
      EXPECT_EQ(pool_->usable_size(block), 0u);
      if (k.bytes <= 16'000) expect_refused(block, "freed before", size);
      word(0) = {};
    }
  }
}

// The frames of an extent may be free, or part of a larger free extent.
TEST_P(Refused, large_blocks_twice) {
  for (const Kind& k : kKinds) {
    if (k.bytes <= 16'000) continue;
    ASSERT_EQ(pool_->malloc_to(k.bytes, word(0), {.type = k.type}), Status::ok);
    char* const block = root_->slot[0].get();
    ASSERT_EQ(pool_->free_from(word(0)), Status::ok);
    point(0, block);
    EXPECT_EQ(pool_->free_from(word(0), &report_), Status::invalid_argument);
    EXPECT_NE(report_.text().find("no allocated object"), std::string::npos) << report_.text();
    EXPECT_EQ(pool_->run([&](Transaction& tx) { return tx.free(block); }),
              Status::invalid_argument);
    word(0) = {};
  }
}

TEST_P(Refused, twice_in_a_batch_and_in_a_transaction) {
  ASSERT_EQ(pool_->malloc_to(64, word(0)), Status::ok);
  char* const block = root_->slot[0].get();
  point(1, block);
  EXPECT_EQ(pool_->free_from(std::span<PtrWord>(&word(0), 2), &report_), Status::invalid_argument);
  EXPECT_NE(report_.text().find("occurs twice"), std::string::npos) << report_.text();
  {
    Transaction tx(*pool_);
    EXPECT_EQ(tx.free(block), Status::ok);
    EXPECT_EQ(tx.free(block), Status::invalid_argument);
    EXPECT_EQ(pool_->free_from(word(0), &report_), Status::invalid_argument);
    tx.abort();
  }
  EXPECT_EQ(pool_->usable_size(block), 64u) << "the abort kept it";
  EXPECT_EQ(pool_->free_from(word(0)), Status::ok);
  point(1, block);
  EXPECT_EQ(pool_->free_from(word(1)), Status::invalid_argument);
  word(1) = {};
}

TEST_P(Refused, blocks_of_an_old_part) {
  // Slabs of 112 bytes become sparse; then 800 bytes are asked for.
  std::vector<Ptr<char>*> kept;
  ASSERT_EQ(pool_->malloc_to(8 * 3000, word(0)), Status::ok);
  auto* const many = reinterpret_cast<Ptr<char>*>(root_->slot[0].get());
  zero_flush(many, 8 * 3000);
  for (int i = 0; i < 2000; ++i) ASSERT_EQ(pool_->malloc_to(112, many[i].word()), Status::ok);
  for (int i = 0; i < 2000; ++i) {
    if (i % 40 == 20) {
      kept.push_back(&many[i]);
    } else {
      ASSERT_EQ(pool_->free_from(many[i].word()), Status::ok);
    }
  }
  ASSERT_EQ(pool_->trim(), Status::ok);
  for (int i = 2000; i < 2200; ++i) ASSERT_EQ(pool_->malloc_to(800, many[i].word()), Status::ok);
  if (GetParam() != Consistency::gc) {
    EXPECT_GT(pool_->stats().morphed_slabs, 0u);
  }
  for (Ptr<char>* p : kept) {
    char* const block = p->get();
    expect_refused(block + 16, "interior pointer", "block of 112 bytes");
    ASSERT_EQ(pool_->free_from(p->word()), Status::ok);
    point(1, block);
    EXPECT_EQ(pool_->free_from(word(1)), Status::invalid_argument);
    word(1) = {};
  }
}

TEST_P(Refused, what_is_no_object) {
  ASSERT_EQ(pool_->malloc_to(64, word(0)), Status::ok);
  char* const block = root_->slot[0].get();
  char* const slab =
      static_cast<char*>(pool_->at({pool_->offset_of(block).value / (64u << 10) * (64u << 10)}));
  expect_refused(slab, "overwritten", "header of the slab of 64-byte blocks");
  expect_refused(slab + 64, "overwritten", "header of the slab");
  expect_refused(static_cast<char*>(pool_->at({4096})), "overwritten", "the head of the pool");
  const std::uint64_t end = pool_->stats().file_bytes;
  expect_refused(static_cast<char*>(pool_->at({end - 4096})), "never allocated", "free memory");
  // Words that are not in the pool, and words that lead out of it.
  PtrWord outside{};
  EXPECT_EQ(pool_->free_from(outside, &report_), Status::invalid_argument);
  EXPECT_NE(report_.text().find("not in this pool"), std::string::npos) << report_.text();
  EXPECT_EQ(pool_->free_from(word(5), &report_), Status::invalid_argument);
  EXPECT_NE(report_.text().find("word is null"), std::string::npos) << report_.text();
  TempPath other_path("refused-other");
  Result<Pool> other = Pool::create(other_path.str(), options(GetParam()), &report_);
  ASSERT_TRUE(other) << report_.text();
  point(5, other->at({1u << 20}));
  EXPECT_EQ(pool_->free_from(word(5), &report_), Status::invalid_argument);
  EXPECT_NE(report_.text().find("out of the pool"), std::string::npos) << report_.text();
  word(5) = {};
}

TEST_P(Refused, reserved_blocks) {
  for (const Kind& k : kKinds) {
    SCOPED_TRACE(k.name);
    const Result<Reserved> block = pool_->reserve(k.bytes, {.type = k.type});
    ASSERT_TRUE(block);
    expect_refused(block->data, "only reserved", "reserved");
    Reserved inside = *block;
    inside.offset = inside.offset + 16;
    EXPECT_EQ(pool_->cancel(inside, &report_), Status::invalid_argument);
    EXPECT_NE(report_.text().find("not reserved"), std::string::npos) << report_.text();
    EXPECT_EQ(pool_->publish(inside, word(0), &report_), Status::invalid_argument);
    EXPECT_EQ(pool_->cancel(*block), Status::ok);
    EXPECT_EQ(pool_->cancel(*block, &report_), Status::invalid_argument) << "twice";
    EXPECT_NE(report_.text().find("not reserved"), std::string::npos) << report_.text();
    EXPECT_EQ(pool_->publish(*block, word(0), &report_), Status::invalid_argument);
    const Result<Reserved> other = pool_->reserve(k.bytes, {.type = k.type});
    ASSERT_TRUE(other);
    EXPECT_EQ(pool_->publish(*other, word(0)), Status::ok);
    EXPECT_EQ(pool_->publish(*other, word(1)), Status::invalid_argument) << "twice";
    EXPECT_EQ(pool_->cancel(*other, &report_), Status::invalid_argument);
    EXPECT_NE(report_.text().find("allocated"), std::string::npos) << report_.text();
    EXPECT_EQ(pool_->free_from(word(0)), Status::ok);
  }
}

TEST_P(Refused, blocks_of_an_open_transaction) {
  Transaction tx(*pool_);
  const Result<void*> block = tx.alloc(64);
  ASSERT_TRUE(block);
  const Reserved as_reserved{pool_->offset_of(*block), *block, 64};
  EXPECT_EQ(pool_->cancel(as_reserved, &report_), Status::invalid_argument);
  EXPECT_NE(report_.text().find("a transaction allocated it"), std::string::npos);
  EXPECT_EQ(pool_->publish(as_reserved, word(0)), Status::invalid_argument);
  point(0, *block);
  EXPECT_EQ(pool_->free_from(word(0), &report_), Status::invalid_argument);
  EXPECT_NE(report_.text().find("end the transaction"), std::string::npos) << report_.text();
  word(0) = {};
  EXPECT_EQ(tx.free(*block), Status::ok);
  EXPECT_EQ(tx.free(*block), Status::invalid_argument);
  EXPECT_EQ(tx.commit(), Status::ok);
}

TEST(RefusedStore, blocks_of_the_store_belong_to_it) {
  TempPath path("refused-store");
  Report report;
  StoreOptions o;
  o.pool = options(Consistency::log);
  Result<Store> store = Store::open(path.str(), o, &report);
  ASSERT_TRUE(store) << report.text();
  const std::string large(40'000, 'v');
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(store->put("key" + std::to_string(i), i % 10 == 0 ? large : "value"), Status::ok);
  }
  Pool& pool = store->pool();
  ASSERT_TRUE(pool.root("root", sizeof(Root)));
  auto* const root = static_cast<Root*>(*pool.root("root", sizeof(Root)));
  unsigned refused = 0;
  const std::uint64_t end = pool.stats().file_bytes;
  std::uint64_t next = 0;
  for (std::uint64_t at = 4096; at < end; at = next) {
    const std::string there = pool.describe(pool.at({at}));
    const bool block = there.starts_with("block of ");
    const std::uint64_t bytes = block ? std::stoull(there.substr(9)) : 0;
    const bool inside = there.find("inside") != std::string::npos;
    // To the next block, or a little on where none is; a slab's first block is anywhere.
    const bool slab = there.find("slab") != std::string::npos;
    next = block && !inside ? at + bytes : block || slab ? at + 16 : at / 4096 * 4096 + 4096;
    if (there.find("of the store, allocated") == std::string::npos || inside) continue;
    PtrWord& word = root->slot[0].word();
    word.raw = PtrWord::encode(&word, pool.at({at}));
    EXPECT_EQ(pool.free_from(word, &report), Status::invalid_argument);
    EXPECT_NE(report.text().find("belongs to the store"), std::string::npos) << report.text();
    EXPECT_EQ(pool.run([&](Transaction& tx) { return tx.free(pool.at({at})); }),
              Status::invalid_argument);
    word = {};
    refused += 1;
  }
  EXPECT_GE(refused, 100u) << "records, large ones, leaves";
  std::string value;
  EXPECT_EQ(store->get("key50", value), Status::ok);
  EXPECT_EQ(value, large);
  EXPECT_EQ(store->validate(&report), Status::ok) << report.text();
}

// --- planted mistakes ----------------------------------------------------------------------------

TEST(RefusedPlanted, a_cancel_that_does_not_claim_the_block_is_found) {
  plant("heap_cancelled_by_two_threads");
  TempPath path("refused-planted");
  Result<Pool> pool = Pool::create(path.str(), options(Consistency::log));
  ASSERT_TRUE(pool);
  const Result<Reserved> block = pool->reserve(64);
  ASSERT_TRUE(block);
  EXPECT_EQ(pool->cancel(*block), Status::ok);
  EXPECT_EQ(pool->cancel(*block), Status::ok) << "the test above would fail";
  unplant_all();
}

}  // namespace
}  // namespace tenuto
