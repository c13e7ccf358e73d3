#include "store/tree/tree_end.h"

#include <bit>

#include "pm/assert.h"
#include "pm/no_memory.h"
#include "pm/plant.h"

namespace TENUTO_NS::store {

namespace {

// Whether the record fits the slot's 24 bits of hash. A flipped bit may have made the slot name a
// record of another tree, without a read that noticed it. Such a record is not freed with this
// tree. Cost: reads a line of each record.
bool is_own(const pm::PoolFile& file, const ShadowLeaf& shadow, unsigned slot) {
  const SlotWord word = shadow.word(slot);
  Record record;
  if (!read_record(file, word.record(), record)) return false;
  const KeyHash hash = hash_key(record.key);
  return hash.slot == word.hash() &&
         hash.fingerprint == shadow.fingerprint[slot].load(std::memory_order_relaxed);
}

}  // namespace

// What was not given back is left to the next recovery.
Tree::End::~End() {
  while (OldVersion* v = forgotten_) {
    forgotten_ = v->after;
    OldVersion::destroy(v);
  }
}

bool Tree::End::try_end() {
  if (step_ == Step::callers) {
    if (!epoch_is_over(epoch_) || !forget_versions()) return false;
    epoch_ = advance_epoch();
    step_ = Step::lookers;
  }
  if (step_ == Step::lookers) {
    if (!epoch_is_over(epoch_)) return false;
    // give_all_back() must not stop half-way, so what it needs is made first. If it cannot be,
    // later.
    if (!pm::had_memory([this] { prepare(); })) return false;
    give_all_back();
  }
  return true;
}

void Tree::End::end_now() {
  prepare();  // may throw; then nothing is done
  if (step_ < Step::lookers) {
    const bool forgotten = forget_versions();
    TENUTO_ASSERT(forgotten);  // no sweep is under way
  }
  if (step_ != Step::over) give_all_back();
}

// The leaves that no thread has come to are read now, to give their records back.
void Tree::End::prepare() {
  tree_.heap_.prepare_thread();
  const EpochGuard guard;
  tree_.index_.for_each([](ShadowLeaf*, std::string_view) {});
}

// Pinned, because a sweep may still unlink leaves. These have no list, and no list is made any
// more.
bool Tree::End::forget_versions() {
  const EpochGuard guard;
  bool free = true;
  tree_.index_.each_made([&](ShadowLeaf* shadow) {
    if (!free || ShadowLeaf::version_list(shadow->version.load(std::memory_order_acquire)) == 0)
      return;
    free = tree_.versions_.forget(tree_, *shadow);
  });
  return free && tree_.versions_.take_condemned(tree_, forgotten_);
}

void Tree::End::give_all_back() {
  tree_.garbage_.drain();
  if (tree_.garbage_.lost()) tree_.file_.leave_to_recovery(pm::Unknown::no_memory);
  while (OldVersion* v = forgotten_) {
    forgotten_ = v->after;
    if (v->record) tree_.heap_.release(v->record);
    OldVersion::destroy(v);
  }
  tree_.index_.each_made([this](ShadowLeaf* shadow) {
    if (ShadowLeaf::damaged(shadow->version.load(std::memory_order_relaxed))) {
      tree_.file_.leave_to_recovery(pm::Unknown::damage);  // which records it had is not known
      return;
    }
    const std::uint64_t all = shadow->used_slots();
    for (std::uint64_t used = all; used != 0; used &= used - 1) {
      tree_.leaves_.prefetch(shadow->word(static_cast<unsigned>(std::countr_zero(used))));
    }
    for (std::uint64_t used = all; used != 0; used &= used - 1) {
      const auto slot = static_cast<unsigned>(std::countr_zero(used));
      const PoolOffset record = shadow->word(slot).record();
      if (is_own(tree_.file_, *shadow, slot) ||
          TENUTO_PLANT("store_drop_frees_what_is_not_its_own")) {
        tree_.heap_.release(record);
      } else {
        static_cast<void>(pm::had_memory([&] {
          static_cast<void>(
              tree_.leaves_.damaged(record, "record of a collection that was dropped"));
        }));
      }
    }
    if (const PoolOffset block = low_block(*shadow->leaf)) tree_.heap_.release(block);
    tree_.heap_.release(tree_.file_.offset_of(shadow->leaf));
  });
  step_ = Step::over;
}

void Tree::End::note(Reached& reached) const {
  note_dropped(tree_, reached);
  for (const OldVersion* v = forgotten_; v != nullptr; v = v->after) {
    if (v->record) reached.note(v->record);
  }
}

}  // namespace TENUTO_NS::store
