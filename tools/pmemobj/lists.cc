// Lists that change atomically: circular, doubly linked, with a lock in their head. Each change is
// one step with three fences, and holds the lock of each list that it changes.
#include <cerrno>
#include <cstring>

#include "pm/plant.h"
#include "tools/pmemobj/blocks.h"
#include "tools/pmemobj/error.h"
#include "tools/pmemobj/step.h"

namespace TENUTO_NS::pmemobj {

namespace {

// As POBJ_LIST_ENTRY and POBJ_LIST_HEAD lay them out.
struct Entry {
  PMEMoid next;
  PMEMoid prev;
};
struct Head {
  PMEMoid first;
  PMEMmutex lock;
};

struct List {
  OpenPool* pool;
  std::size_t entry_offset;
  Head* head;

  Entry& entry(PMEMoid oid) const { return *static_cast<Entry*>(pool->at(oid.off + entry_offset)); }
};

struct Place {
  PMEMoid dest;
  bool before;
};

bool same(PMEMoid a, PMEMoid b) { return OID_EQUALS(a, b); }

// A change of a list has two parts: log() names the bytes that it will store to, and store() stores
// them, behind a fence. So one fence serves several changes.
class Unlink {
 public:
  Unlink(const List& list, PMEMoid oid)
      : list_(list),
        oid_(oid),
        was_(list.entry(oid)),
        only_(same(was_.next, oid)),
        first_(same(list.head->first, oid)) {}

  // invalid_argument: the object is in no list.
  Status log(tx::Txn& txn) const {
    if (was_.next.off == 0) return Status::invalid_argument;
    TENUTO_TRY(txn.add_later(&list_.entry(oid_), sizeof(Entry)));
    if (first_) TENUTO_TRY(txn.add_later(&list_.head->first, sizeof(PMEMoid)));
    if (only_) return Status::ok;
    if (!TENUTO_PLANT("pmemobj_list_neighbour_not_logged"))
      TENUTO_TRY(txn.add_later(&list_.entry(was_.prev).next, sizeof(PMEMoid)));
    return txn.add_later(&list_.entry(was_.next).prev, sizeof(PMEMoid));
  }
  void store() const {
    if (first_) store_oid(list_.head->first, only_ ? OID_NULL : was_.next);
    if (!only_) {
      store_oid(list_.entry(was_.prev).next, was_.next);
      store_oid(list_.entry(was_.next).prev, was_.prev);
    }
    list_.entry(oid_) = Entry{};
  }

 private:
  const List& list_;
  const PMEMoid oid_;
  const Entry was_;
  const bool only_;
  const bool first_;
};

class Link {
 public:
  Link(const List& list, Place place, PMEMoid oid) : list_(list), oid_(oid), now_{oid, oid} {
    const PMEMoid first = list.head->first;
    empty_ = first.off == 0;
    to_head_ = empty_ || (place.before && (place.dest.off == 0 || same(place.dest, first)));
    if (empty_) return;
    const PMEMoid beside = place.dest.off == 0 ? first : place.dest;
    const bool before = place.before || place.dest.off == 0;  // the tail is before the first
    now_ = before ? Entry{beside, list.entry(beside).prev} : Entry{list.entry(beside).next, beside};
  }

  Status log(tx::Txn& txn) const {
    TENUTO_TRY(txn.add_later(&list_.entry(oid_), sizeof(Entry)));
    if (to_head_) TENUTO_TRY(txn.add_later(&list_.head->first, sizeof(PMEMoid)));
    if (empty_) return Status::ok;
    TENUTO_TRY(txn.add_later(&list_.entry(now_.prev).next, sizeof(PMEMoid)));
    return txn.add_later(&list_.entry(now_.next).prev, sizeof(PMEMoid));
  }
  void store() const {
    list_.entry(oid_) = now_;
    if (!empty_) {
      store_oid(list_.entry(now_.prev).next, oid_);
      store_oid(list_.entry(now_.next).prev, oid_);
    }
    if (to_head_) store_oid(list_.head->first, oid_);
  }

 private:
  const List& list_;
  const PMEMoid oid_;
  Entry now_;
  bool empty_ = false;
  bool to_head_ = false;
};

template <class Change>
Status apply(tx::Txn& txn, const Change& change) {
  TENUTO_TRY(change.log(txn));
  TENUTO_TRY(txn.ready());
  change.store();
  return Status::ok;
}

// Where the object goes in its own list is known when it is out of it; in another list at once.
Status relink(const List& from, const List& to, tx::Txn& txn, Place place, PMEMoid oid) {
  const Unlink unlink(from, oid);
  if (from.head == to.head) {
    TENUTO_TRY(apply(txn, unlink));
    return apply(txn, Link(to, place, oid));
  }
  const Link link(to, place, oid);
  TENUTO_TRY(unlink.log(txn));
  TENUTO_TRY(link.log(txn));
  TENUTO_TRY(txn.ready());
  unlink.store();
  link.store();
  return Status::ok;
}

// The locks of one or two lists, always in the same order.
class Locked {
 public:
  Locked(const List& a, const List& b) : pool_(a.pool->handle()) {
    Head* const low = a.head < b.head ? a.head : b.head;
    Head* const high = a.head < b.head ? b.head : a.head;
    error_ = take(low);
    if (error_ == 0 && low != high) error_ = take(high);
  }
  ~Locked() {
    while (count_ > 0) pmemobj_mutex_unlock(pool_, &heads_[--count_]->lock);
  }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;
  int error() const { return error_; }

 private:
  int take(Head* head) {
    const int error = pmemobj_mutex_lock(pool_, &head->lock);
    if (error != 0) return refuse(error, "the list's lock cannot be taken");
    heads_[count_++] = head;
    return 0;
  }
  PMEMobjpool* pool_;
  Head* heads_[2] = {};
  std::size_t count_ = 0;
  int error_ = 0;
};

// False, with errno: an argument is wrong.
bool fits(const List& list, PMEMoid oid, Place place) {
  if (list.pool == nullptr) return false;
  const bool known = list.pool->address(oid) != nullptr && list.pool->file().contains(list.head);
  const bool dest = place.dest.off == 0 || list.pool->address(place.dest) != nullptr;
  if (known && dest) return true;
  refuse(EINVAL, "an object or the list's head is not in this pool");
  return false;
}

int told(Status s) { return s == Status::ok ? 0 : refuse(s, "cannot change the list"); }

int insert(const List& list, Place place, PMEMoid oid) {
  if (!fits(list, oid, place)) return errno;
  const Locked locked(list, list);
  if (locked.error() != 0) return locked.error();
  return told(
      one_step(*list.pool, [&](tx::Txn& txn) { return apply(txn, Link(list, place, oid)); }));
}

int insert_new(const List& list, Place place, Wanted wanted, pmemobj_constr constructor, void* arg,
               PMEMoid& made) {
  if (list.pool == nullptr) return errno;
  OpenPool& pool = *list.pool;
  AllocOptions options;
  if (const int error = options_for(pool, wanted, 0, options); error != 0) return error;
  const Result<heap::Block> block = reserve_block(pool, wanted.bytes, options);
  if (!block) return refuse(block.error(), "cannot allocate");
  ReservedBlock reserved(pool, block->offset);
  const PMEMoid oid{pool.uuid_lo, block->offset.value};
  if (!fits(list, oid, place)) return errno;
  if (constructor != nullptr && constructor(pool.handle(), pool.at(oid.off), arg) != 0) {
    return refuse(ECANCELED, "the constructor refused the object");
  }
  const Locked locked(list, list);
  if (locked.error() != 0) return locked.error();
  const Status s = one_step(pool, [&](tx::Txn& txn) {
    TENUTO_TRY(txn.adopt(block->offset, 0));
    reserved.done();  // from here on the step gives it back
    return apply(txn, Link(list, place, oid));
  });
  if (s == Status::ok) made = oid;
  return told(s);
}

int remove(const List& list, PMEMoid oid, bool frees) {
  if (!fits(list, oid, {OID_NULL, false})) return errno;
  const Locked locked(list, list);
  if (locked.error() != 0) return locked.error();
  return told(one_step(*list.pool, [&](tx::Txn& txn) {
    TENUTO_TRY(apply(txn, Unlink(list, oid)));
    return frees ? txn.free(list.pool->at(oid.off)) : Status::ok;
  }));
}

int move(const List& from, const List& to, Place place, PMEMoid oid) {
  if (!fits(from, oid, place) || !fits(to, oid, place)) return errno;
  const Locked locked(from, to);
  if (locked.error() != 0) return locked.error();
  if (same(place.dest, oid)) return refuse(EINVAL, "the object cannot be beside itself");
  return told(
      one_step(*from.pool, [&](tx::Txn& txn) { return relink(from, to, txn, place, oid); }));
}

List list_of(PMEMobjpool* pop, std::size_t entry_offset, void* head) {
  return {pool_of(pop), entry_offset, static_cast<Head*>(head)};
}

}  // namespace
}  // namespace TENUTO_NS::pmemobj

using namespace tenuto::pmemobj;

int pmemobj_list_insert(PMEMobjpool* pop, size_t pe_offset, void* head, PMEMoid dest, int before,
                        PMEMoid oid) {
  const List list = list_of(pop, pe_offset, head);
  return without_throwing(ENOMEM,
                          [&] {
                            return insert(list, {dest, before != 0}, oid);
                          }) == 0
             ? 0
             : -1;
}

PMEMoid pmemobj_list_insert_new(PMEMobjpool* pop, size_t pe_offset, void* head, PMEMoid dest,
                                int before, size_t size, uint64_t type_num,
                                pmemobj_constr constructor, void* arg) {
  const List list = list_of(pop, pe_offset, head);
  PMEMoid made = OID_NULL;
  without_throwing(ENOMEM, [&] {
    return insert_new(list, {dest, before != 0}, {size, type_num, 0}, constructor, arg, made);
  });
  return made;
}

int pmemobj_list_remove(PMEMobjpool* pop, size_t pe_offset, void* head, PMEMoid oid, int free) {
  const List list = list_of(pop, pe_offset, head);
  return without_throwing(ENOMEM, [&] { return remove(list, oid, free != 0); }) == 0 ? 0 : -1;
}

int pmemobj_list_move(PMEMobjpool* pop, size_t pe_old_offset, void* head_old, size_t pe_new_offset,
                      void* head_new, PMEMoid dest, int before, PMEMoid oid) {
  const List from = list_of(pop, pe_old_offset, head_old);
  const List to = list_of(pop, pe_new_offset, head_new);
  return without_throwing(ENOMEM,
                          [&] {
                            return move(from, to, {dest, before != 0}, oid);
                          }) == 0
             ? 0
             : -1;
}
