// Lists that change atomically: circular, doubly linked, with a lock in their head. Each change is
// one step with three or four fences, and holds the lock of each list that it changes.
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

Status unlink(const List& list, tx::Txn& txn, PMEMoid oid) {
  Entry& e = list.entry(oid);
  const Entry was = e;
  if (was.next.off == 0) return Status::invalid_argument;  // it is in no list
  const bool only = same(was.next, oid);
  const bool first = same(list.head->first, oid);
  TENUTO_TRY(txn.add_later(&e, sizeof e));
  if (first) TENUTO_TRY(txn.add_later(&list.head->first, sizeof(PMEMoid)));
  if (!only) {
    if (!TENUTO_PLANT("pmemobj_list_neighbour_not_logged"))
      TENUTO_TRY(txn.add_later(&list.entry(was.prev).next, sizeof(PMEMoid)));
    TENUTO_TRY(txn.add_later(&list.entry(was.next).prev, sizeof(PMEMoid)));
  }
  TENUTO_TRY(txn.ready());
  if (first) store_oid(list.head->first, only ? OID_NULL : was.next);
  if (!only) {
    store_oid(list.entry(was.prev).next, was.next);
    store_oid(list.entry(was.next).prev, was.prev);
  }
  e = Entry{};
  return Status::ok;
}

Status link(const List& list, tx::Txn& txn, Place place, PMEMoid oid) {
  Entry& e = list.entry(oid);
  const PMEMoid first = list.head->first;
  const bool to_head =
      first.off == 0 || (place.before && (place.dest.off == 0 || same(place.dest, first)));
  Entry now{oid, oid};
  if (first.off != 0) {
    const PMEMoid beside = place.dest.off == 0 ? first : place.dest;
    const bool before = place.before || place.dest.off == 0;  // the tail is before the first
    now = before ? Entry{beside, list.entry(beside).prev} : Entry{list.entry(beside).next, beside};
    TENUTO_TRY(txn.add_later(&list.entry(now.prev).next, sizeof(PMEMoid)));
    TENUTO_TRY(txn.add_later(&list.entry(now.next).prev, sizeof(PMEMoid)));
  }
  TENUTO_TRY(txn.add_later(&e, sizeof e));
  if (to_head) TENUTO_TRY(txn.add_later(&list.head->first, sizeof(PMEMoid)));
  TENUTO_TRY(txn.ready());
  e = now;
  if (first.off != 0) {
    store_oid(list.entry(now.prev).next, oid);
    store_oid(list.entry(now.next).prev, oid);
  }
  if (to_head) store_oid(list.head->first, oid);
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
  return told(one_step(*list.pool, [&](tx::Txn& txn) { return link(list, txn, place, oid); }));
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
  bool adopted = false;
  const Status s = one_step(pool, [&](tx::Txn& txn) {
    TENUTO_TRY(txn.adopt(block->offset, 0));
    adopted = true;
    return link(list, txn, place, oid);
  });
  if (adopted) reserved.done();
  if (s == Status::ok) made = oid;
  return told(s);
}

int remove(const List& list, PMEMoid oid, bool frees) {
  if (!fits(list, oid, {OID_NULL, false})) return errno;
  const Locked locked(list, list);
  if (locked.error() != 0) return locked.error();
  return told(one_step(*list.pool, [&](tx::Txn& txn) {
    TENUTO_TRY(unlink(list, txn, oid));
    return frees ? txn.free(list.pool->at(oid.off)) : Status::ok;
  }));
}

int move(const List& from, const List& to, Place place, PMEMoid oid) {
  if (!fits(from, oid, place) || !fits(to, oid, place)) return errno;
  const Locked locked(from, to);
  if (locked.error() != 0) return locked.error();
  if (same(place.dest, oid)) return refuse(EINVAL, "the object cannot be beside itself");
  return told(one_step(*from.pool, [&](tx::Txn& txn) {
    TENUTO_TRY(unlink(from, txn, oid));
    return link(to, txn, place, oid);
  }));
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
