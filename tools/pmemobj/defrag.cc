// pmemobj_defrag: moves objects out of sparse slabs, so that their memory is free for others.
//
// The heap chooses the slabs (heap/evacuate.cc). Each object in one of them that the caller names
// is copied to a new block, in one step: a crash leaves the object where it was, or where it is,
// and all OIDs that the caller named lead there. An OID may lie in an object that was moved before:
// then it is the copy's.
#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "pm/no_memory.h"
#include "pm/plant.h"
#include "tenuto/persist.h"
#include "tools/pmemobj/blocks.h"
#include "tools/pmemobj/error.h"
#include "tools/pmemobj/step.h"

namespace TENUTO_NS::pmemobj {

namespace {

constexpr double kSparse = 0.5;  // slabs of which less is in use, as in libpmemobj

class Defragmentation {
 public:
  explicit Defragmentation(OpenPool& pool) : pool_(pool) {}

  // 0, or errno with a message: an OID leads to no object of the pool.
  int name(PMEMoid** oids, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      if (oids[i] == nullptr) return refuse(EINVAL, "the address of an OID is null");
      const PMEMoid oid = *oids[i];
      if (oid.off == 0) continue;
      if (pool_.address(oid) == nullptr || usable_bytes(pool_, oid) == 0)
        return refuse(EINVAL, "an OID leads to no object of the pool");
      words_[oid.off].push_back(oids[i]);
    }
    return 0;
  }
  std::size_t objects() const { return words_.size(); }

  // How many were moved. Stops early when the pool has no room.
  Result<std::size_t> run() {
    std::size_t moved = 0;
    for (const auto& [offset, words] : words_) {
      const bool root = offset == __atomic_load_n(&pool_.directory->root, __ATOMIC_ACQUIRE);
      if (root || !pool_.heap().leaving({offset})) continue;
      const Status s = move(offset, words);
      if (s == Status::full) break;
      if (s != Status::ok) return s;
      moved += 1;
    }
    return moved;
  }

 private:
  struct Moved {
    std::uint64_t bytes;
    std::uint64_t to;
  };

  Status move(std::uint64_t from, const std::vector<PMEMoid*>& words) {
    const std::uint64_t bytes = usable_bytes(pool_, {pool_.uuid_lo, from});
    AllocOptions options;
    options.type = pool_.heap().type_of_taken({from});
    // What both the block and its size are multiples of.
    options.align = std::uint64_t{1} << std::countr_zero(from | bytes | kFrameBytes);
    const Result<heap::Block> block = reserve_block(pool_, bytes, options);
    if (!block) return block.error();
    ReservedBlock reserved(pool_, block->offset);
    std::memcpy(pool_.at(block->offset.value), pool_.at(from), bytes);
    if (!TENUTO_PLANT("pmemobj_moved_object_not_flushed"))
      flush_bytes(pool_.at(block->offset.value), bytes);
    moved_[from] = {bytes, block->offset.value};
    const Status s = one_step(pool_, [&](tx::Txn& txn) {
      TENUTO_TRY(txn.adopt(block->offset, 0));
      reserved.done();  // from here on the step gives it back
      for (PMEMoid* word : words) TENUTO_TRY(store(txn, *place_of(word), block->offset.value));
      return TENUTO_PLANT("pmemobj_moved_object_kept") ? Status::ok : txn.free(pool_.at(from));
    });
    if (s != Status::ok) moved_.erase(from);
    return s;
  }

  Status store(tx::Txn& txn, PMEMoid& word, std::uint64_t to) {
    const PMEMoid oid{pool_.uuid_lo, to};
    if (pool_.file().contains(&word) && !TENUTO_PLANT("pmemobj_moved_oid_not_logged"))
      return txn.set(&word, &oid, sizeof oid);
    store_oid(word, oid);
    return Status::ok;
  }

  PMEMoid* place_of(PMEMoid* word) const {
    if (!pool_.file().contains(word)) return word;
    const std::uint64_t at = pool_.file().offset_of(word).value;
    auto it = moved_.upper_bound(at);
    if (it == moved_.begin()) return word;
    --it;
    if (at - it->first >= it->second.bytes) return word;
    return static_cast<PMEMoid*>(pool_.at(it->second.to + (at - it->first)));
  }

  OpenPool& pool_;
  std::map<std::uint64_t, std::vector<PMEMoid*>> words_;  // by the object that they lead to
  std::map<std::uint64_t, Moved> moved_;                  // by the old offset
};

// The heap hands nothing out from the slabs that it chose, until this ends.
struct Evacuating {
  explicit Evacuating(OpenPool& p) : pool(p) {
    pool.heap().begin_evacuation(kSparse, 0, {}, heap::Evacuees::typed);
  }
  ~Evacuating() {
    tx::Engine& engine = *pool.impl->engine;
    static_cast<void>(pm::had_memory([&] {
      if (!engine.mine().active()) engine.reclaim(engine.mine());  // the last blocks become free
    }));
    pool.heap().end_evacuation();
  }
  Evacuating(const Evacuating&) = delete;
  Evacuating& operator=(const Evacuating&) = delete;
  OpenPool& pool;
};

int defragment(OpenPool& pool, PMEMoid** oids, std::size_t count, pobj_defrag_result* result) {
  if (const Status s = pool.file().writable(); s != Status::ok) return refuse(s, "pmemobj_defrag");
  const std::lock_guard lock(pool.defrag_mu);
  Defragmentation work(pool);
  if (const int error = work.name(oids, count); error != 0) return error;
  const Result<std::size_t> moved = [&] {
    const Evacuating slabs(pool);
    return work.run();
  }();
  if (!moved) return refuse(moved.error(), "pmemobj_defrag");
  if (result != nullptr) *result = {work.objects(), *moved};
  return 0;
}

}  // namespace
}  // namespace TENUTO_NS::pmemobj

using namespace tenuto::pmemobj;

int pmemobj_defrag(PMEMobjpool* pop, PMEMoid** oidv, size_t oidcnt,
                   struct pobj_defrag_result* result) {
  const int error = without_throwing(ENOMEM, [&] {
    OpenPool* const pool = pool_of(pop);
    return pool == nullptr ? errno : defragment(*pool, oidv, oidcnt, result);
  });
  if (error == 0) return 0;
  errno = error;
  return -1;
}
