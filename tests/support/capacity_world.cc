#include "support/capacity_world.h"

#include <functional>
#include <string>

#include "support/explored_medium.h"
#include "support/heap_worker.h"
#include "support/tx_parts.h"

namespace tenuto::test {

namespace {

constexpr std::size_t kWords = 1200;

struct Table {
  PtrWord word[kWords];
};

PoolOptions tiny() {
  PoolOptions o = PoolParts::small_options();
  o.size = o.size_max = kPoolBytesMin;
  return on_explored_medium(o);
}

using Work = std::function<void(TxParts&, Table&)>;

// Makes one block for each of the first `blocks` words, one by one. Neighbours are in different
// stripes, so their bits are in different lines. The first 60 blocks are of another size and so in
// another slab: no later call touches their lines.
void make_blocks(TxParts& p, Table& t, std::size_t blocks) {
  for (std::size_t i = 0; i < blocks; ++i) {
    ASSERT_EQ(p.heap->malloc_to(i < 60 ? 200 : 64, t.word[i]), Status::ok);
  }
}

// Checks that exactly the blocks that words name are allocated. After the close no word names one.
std::string check(const CrashImage& image, std::size_t before) {
  TxParts p;
  if (p.open(image.path(), tiny()) != Status::ok) return "open: " + p.report.text();
  const Table& t = p.get_root<Table>(0);
  std::size_t named = 0;
  for (const PtrWord& w : t.word) {
    const void* block = PtrWord::decode(&w, w.raw);
    if (block == nullptr) continue;
    named += 1;
    if (!p.file->contains(block)) return "a word leads out of the pool";
    if (!p.heap->find_allocated(p.file->offset_of(block))) return "a word names a free block";
  }
  if (p.allocated_blocks().size() != named + 1) return "a block leaked";
  if (named > before) return "more blocks than there were";
  if (image.acknowledged() > 0 && named != 0) return "acknowledged, and a block is there";
  if (p.heap->validate(&p.report) != Status::ok) return "heap: " + p.report.text();
  if (p.engine->validate(&p.report) != Status::ok) return "tx: " + p.report.text();
  return {};
}

CrashResult explore(std::size_t blocks, const Work& work, const CrashOptions& options) {
  return CrashRunner(options).run(
      [&](const std::string& path) {
        TxParts p;
        ASSERT_EQ(p.create(path, tiny()), Status::ok) << p.report.text();
        p.make_root<Table>(0);
        make_blocks(p, p.get_root<Table>(0), blocks);
        ASSERT_EQ(p.close(), Status::ok);
      },
      [&](CrashContext& c) {
        TxParts p;
        ASSERT_EQ(p.open(c.path(), tiny()), Status::ok) << p.report.text();
        Worker other;
        c.invoke();
        other.run([&] { work(p, p.get_root<Table>(0)); });
        ASSERT_EQ(p.close(), Status::ok);
        c.ack();
      },
      [&](const CrashImage& image) { return check(image, blocks); });
}

// A transaction that frees n blocks. The bits of consecutive blocks are in different lines.
Work frees(std::size_t n) {
  return [n](TxParts& p, Table& t) {
    const Status s = p.run([&](Transaction& tx) {
      TENUTO_TRY(tx.add_later(&t, n * sizeof(PtrWord)));
      TENUTO_TRY(tx.ready());
      for (std::size_t i = 0; i < n; ++i) {
        TENUTO_TRY(tx.free(PtrWord::decode(&t.word[i], t.word[i].raw)));
        t.word[i].raw = 0;
      }
      return Status::ok;
    });
    EXPECT_EQ(s, Status::ok);
  };
}

// Frees n neighbours as one batch, without a transaction.
Work frees_as_a_batch(std::size_t n) {
  return [n](TxParts& p, Table& t) {
    EXPECT_EQ(p.heap->free_from(Words<PtrWord>(std::span(t.word, n))), Status::ok);
  };
}

}  // namespace

CrashOptions capacity_options() {
  CrashOptions o;
  o.points_percent = 1;  // named fences are always tried
  o.product_max = 30;
  o.samples_max = 20;
  o.recovery_states_max = 2;
  return o;
}

CrashResult explore_frees(Frees how, std::size_t blocks, const CrashOptions& options) {
  const bool batch = how == Frees::batch;
  return explore(blocks, batch ? frees_as_a_batch(blocks) : frees(blocks), options);
}

}  // namespace tenuto::test
