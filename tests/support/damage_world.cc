#include "support/damage_world.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "store/tree/format.h"
#include "support/kv_world.h"
#include "support/raw_pool.h"
#include "support/tx_parts.h"
#include "tenuto/persist.h"

namespace tenuto::test {

namespace {

constexpr unsigned kBits[] = {0, 3, 9, 21, 34, 47, 60};  // the bits that are tried in each word

// Flips bits of the words in [at, at + bytes), one at a time.
void flip_bits(CrashContext& c, RawPool& pool, std::uint64_t at, std::uint64_t bytes) {
  for (std::uint64_t w = round_down(at, 8); w < at + bytes; w += 8) {
    auto& word = pool.at<std::uint64_t>(w);
    const std::uint64_t sound = word;
    for (const unsigned bit : kBits) {
      publish(word, sound ^ std::uint64_t{1} << bit);
      c.crash_point("a flipped bit");
      publish(word, sound);
      fence("bit restored", "next bit");
    }
  }
}

// --- the log -------------------------------------------------------------------------------------

struct Words {
  alignas(kLineBytes) std::uint64_t word[8];
};

PoolOptions tiny() {
  PoolOptions o = PoolParts::small_options();
  o.size = o.size_max = kPoolBytesMin;
  return o;
}

// The offsets of the log of the open transaction.
struct LogPlace {
  std::uint64_t header = 0;
  std::uint64_t entries = 0;
};

void stop_in_a_transaction(const std::string& path, LogPlace& place) {
  TxParts p;
  ASSERT_EQ(p.create(path, tiny()), Status::ok);
  p.make_root<Words>(0);
  ASSERT_EQ(p.close(), Status::ok);
  ASSERT_EQ(p.open(path, tiny()), Status::ok);
  Words& w = p.get_root<Words>(0);
  const auto set = [&](tx::Txn& txn, std::uint64_t to) {
    ASSERT_EQ(txn.begin(), Status::ok);
    ASSERT_EQ(txn.add_later(w.word, sizeof w.word), Status::ok);
    ASSERT_EQ(txn.ready(), Status::ok);
    for (std::uint64_t& word : w.word) word = to;
  };
  tx::Txn& txn = p.engine->mine();
  set(txn, 7);
  ASSERT_EQ(txn.commit(), Status::ok);
  set(txn, 8);
  flush(w);
  fence("half a transaction", "the process dies");
  const pm::Lane& lane = p.lanes->mine();
  const std::uint64_t area = (tx::tx_line(lane).committed.number() + 1) % tx::kAreas;
  place.header = p.file->offset_of(&lane.lines[pm::kLaneTxLine]).value;
  place.entries =
      p.file->offset_of(&lane.lines[pm::kLaneUndoLine + area * pm::kLaneUndoLines]).value;
  p.crash();
}

std::string check_words(const CrashImage& image) {
  TxParts p;
  p.recovers_clean_pools = false;  // a wrong superblock has to show
  if (p.open(image.path(), tiny()) != Status::ok) {
    return p.report.what.empty() ? "an error without a report" : "";
  }
  for (const std::uint64_t word : p.get_root<Words>(0).word) {
    if (word != 7) return "the transaction before the crash is not what the words show";
  }
  return p.engine->validate(&p.report) == Status::ok ? "" : p.report.text();
}

// --- the store -----------------------------------------------------------------------------------

const store::Leaf& second_leaf(const RawPool& pool) {
  const auto& head = pool.at<pm::HeadPage>(pm::kHeadPageOffset);
  const auto& first = pool.at<store::Leaf>(head.store[store::kHeadFirstLeaf]);
  return pool.at<store::Leaf>(first.head.next.value());
}

std::uint64_t low_offset(const RawPool& pool) {
  const auto* low = reinterpret_cast<const std::byte*>(&second_leaf(pool).low);
  return static_cast<std::uint64_t>(low - &pool.at<std::byte>(0));
}

// A process opens the store and is killed. The next open finds the separators in the leaves, not in
// the image of a clean close.
void open_and_die(const std::string& path) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto store = Store::open(path, kv_world_options());
    ::_exit(store ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
}

}  // namespace

CrashResult explore_damaged_log(const CrashOptions& options) {
  LogPlace place;
  return CrashRunner(options).run(
      [&](const std::string& path) { stop_in_a_transaction(path, place); },
      [&](CrashContext& c) {
        RawPool pool(c.path());
        flip_bits(c, pool, place.entries, 2 * kLineBytes);
        flip_bits(c, pool, place.header, 2 * sizeof(std::uint64_t));
        flip_bits(c, pool, 0, sizeof(pm::Superblock));
        flip_bits(c, pool, kFrameBytes, sizeof(pm::Superblock));
      },
      check_words);
}

CrashResult explore_damaged_separator(const CrashOptions& options) {
  KvCrash kv = kv_many_leaves();
  return CrashRunner(options).run(
      [&](const std::string& path) {
        kv.setup(path);
        open_and_die(path);
      },
      [&](CrashContext& c) {
        kv.start_model();
        RawPool pool(c.path());
        flip_bits(c, pool, low_offset(pool), 16);
      },
      [&](const CrashImage& image) -> std::string {
        if (!Store::open(image.path(), kv_world_options())) return "";
        return kv.check(image);
      });
}

CrashResult explore_damaged_record(const CrashOptions& options) {
  KvCrash kv = kv_many_leaves();
  return CrashRunner(options).run([&](const std::string& path) { kv.setup(path); },
                                  [&](CrashContext& c) {
                                    kv.start_model();
                                    RawPool pool(c.path());
                                    flip_bits(c, pool, second_leaf(pool).slot[0].record().value,
                                              24);
                                  },
                                  [&](const CrashImage& image) -> std::string {
                                    {
                                      auto store = Store::open(image.path(), kv_world_options());
                                      if (!store || store->validate() != Status::ok) return "";
                                    }
                                    return kv.check(image);
                                  });
}

}  // namespace tenuto::test
