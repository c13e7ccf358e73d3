// put_when: writes that depend on the key's record. put_if_absent, compare-and-swap and merge use
// it (collection_write.cc). The record is read without a lock, and the caller decides. Then the
// leaf is locked only if it has not changed since. So no user's code runs under a lock, and no
// other thread writes the key in between. The fences are those of a put or an erase.
#include <optional>

#include "store/tree/tree.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::store {

// One try, in one epoch. While the record's offset is the same, so is the record. So a change of
// other keys in the leaf needs no new decision.
struct Tree::Conditional {
  Tree& tree;
  const std::string_view key;
  const Decide& decide;
  bool decided = false;
  PoolOffset seen{};  // the record that `decision` is about
  Decision decision{};
  Pending pending{key, hash_key(key), {}, 0, false};

  ~Conditional() { drop(); }

  void drop() {
    if (pending.record) tree.heap_.release(pending.record);
    pending.record = {};
    pending.fenced = false;
  }

  Status look(const Found& old) {
    const PoolOffset at = old.found ? old.word.record() : PoolOffset{};
    if (decided && at == seen) return Status::ok;
    if (old.found && tree.leaves_.verifies() && !record_sound(tree.file_, at, old.record)) {
      return tree.leaves_.damaged(at, "record's checksum");
    }
    drop();
    decision = decide(old.found ? &old.record : nullptr);
    decided = true;
    seen = at;
    if (decision.what != Decision::What::put) return Status::ok;
    const Result<heap::Block> block = tree.reserve_record(key, decision.value);
    if (!block) return block.error();
    pending.record = block->offset;
    pending.bytes = bytes_of({key, decision.value});
    write_record(tree.file_, block->offset, key, decision.value);
    return Status::ok;
  }

  Status step() {
    const Place place = tree.index_.locate(key);
    Found old;
    TENUTO_TRY(tree.leaves_.search(place, key, pending.hash, old));
    TENUTO_TRY(look(old));
    switch (decision.what) {
      case Decision::What::leave:
        return decision.status;
      case Decision::What::erase:
        return old.found ? tree.unlink_record(place, key, old) : Status::not_found;
      case Decision::What::put:
        break;
    }
    TENUTO_TRY(tree.link_record(place, pending, old));
    pending.record = {};  // it belongs to the leaf now
    return Status::ok;
  }

  Status run() {
    const EpochGuard guard;
    for (;;) {
      const Status s = step();
      const bool left = decided && decision.what == Decision::What::leave;
      if (s != Status::conflict || left) return s;
    }
  }
};

Status Tree::put_when(std::string_view key, const Decide& decide) {
  TENUTO_TRY(check_key(key));
  TENUTO_TRY(file_.writable());
  Status s = Conditional{*this, key, decide}.run();
  if (s == Status::full) {  // what waits for readers, this thread's call among them, may make room
    garbage_.collect_all_at_rest();
    s = Conditional{*this, key, decide}.run();
  }
  return s == Status::ok ? file_.bad_pages() : s;
}

}  // namespace TENUTO_NS::store
