// Actions: what is reserved, to be freed or to be set, and then published in one step.
#include <cerrno>

#include "pm/plant.h"
#include "tools/pmemobj/blocks.h"
#include "tools/pmemobj/error.h"
#include "tools/pmemobj/step.h"
#include "tools/pmemobj/tx_state.h"

namespace TENUTO_NS::pmemobj {

namespace {

// pobj_action::data[0] of a heap action. A step or a transaction has `taken` a reservation: it
// belongs to that from then on, whatever becomes of it, and a cancel leaves it alone. A cancelled
// one belongs to nobody, and is `taken`, too.
enum class HeapAction : std::uint32_t { alloc = 1, free = 2, taken = 3 };

bool is(const pobj_action& a, HeapAction what) {
  return a.type == POBJ_ACTION_TYPE_HEAP && a.data[0] == static_cast<std::uint32_t>(what);
}
void become(pobj_action& a, HeapAction what) { a.data[0] = static_cast<std::uint32_t>(what); }

// The pool of a heap action, behind its offset and bytes. The same offset of another pool is
// another object, or none: a log that names it could not be replayed.
std::uint64_t& pool_of_action(pobj_action& a) { return a.data2[2]; }

PMEMoid reserve(PMEMobjpool* pop, pobj_action* act, Wanted wanted) {
  OpenPool* const pool = pool_of(pop);
  AllocOptions options;
  if (pool == nullptr ||
      options_for(*pool, wanted, POBJ_ACTION_XRESERVE_VALID_FLAGS, options) != 0) {
    return OID_NULL;
  }
  const Result<heap::Block> block = reserve_block(*pool, wanted.bytes, options);
  if (!block) {
    refuse(block.error(), "cannot reserve");
    return OID_NULL;
  }
  *act = {};
  act->type = POBJ_ACTION_TYPE_HEAP;
  become(*act, HeapAction::alloc);
  act->heap = {block->offset.value, pool->heap().usable(*block)};
  pool_of_action(*act) = pool->uuid_lo;
  return {pool->uuid_lo, block->offset.value};
}

// Makes the actions part of the transaction. What they set is logged; the caller stores it.
Status take_over(OpenPool& pool, tx::Txn& txn, pobj_action* actions, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    pobj_action& a = actions[i];
    if (a.type == POBJ_ACTION_TYPE_MEM) {
      if (TENUTO_PLANT("pmemobj_value_not_logged")) continue;
      TENUTO_TRY(txn.add_later(reinterpret_cast<const void*>(a.data2[0]), sizeof(std::uint64_t)));
    } else if (pool_of_action(a) != pool.uuid_lo) {
      return Status::invalid_argument;  // of another pool
    } else if (is(a, HeapAction::alloc)) {
      TENUTO_TRY(txn.adopt({a.heap.offset}, 0));
      become(a, HeapAction::taken);
    } else if (is(a, HeapAction::free)) {
      TENUTO_TRY(txn.free(pool.at(a.heap.offset)));
    } else {
      return Status::invalid_argument;  // published or cancelled before
    }
  }
  return Status::ok;
}

void set_values(const pobj_action* actions, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const pobj_action& a = actions[i];
    if (a.type != POBJ_ACTION_TYPE_MEM) continue;
    __atomic_store_n(reinterpret_cast<std::uint64_t*>(a.data2[0]), a.data2[1], __ATOMIC_RELEASE);
  }
}

int cannot_publish(Status s) {
  if (s != Status::invalid_argument) return refuse(s, "cannot publish");
  return refuse(EINVAL,
                "cannot publish: an action is of another pool, was published or cancelled before, "
                "or frees what is no object");
}

int publish(PMEMobjpool* pop, pobj_action* actions, std::size_t count) {
  OpenPool* const pool = pool_of(pop);
  if (pool == nullptr) return errno;
  const Status s = one_step(*pool, [&](tx::Txn& txn) {
    TENUTO_TRY(take_over(*pool, txn, actions, count));
    TENUTO_TRY(txn.ready());
    set_values(actions, count);
    return Status::ok;
  });
  return s == Status::ok ? 0 : cannot_publish(s);
}

int publish_in_tx(TxState& state, pobj_action* actions, std::size_t count) {
  return without_throwing(ENOMEM, [&] {
    state.values.reserve(state.values.size() + count);
    const Status s = take_over(*state.pool, *state.txn, actions, count);
    if (s != Status::ok) return cannot_publish(s);
    for (std::size_t i = 0; i < count; ++i) {
      const pobj_action& a = actions[i];
      if (a.type != POBJ_ACTION_TYPE_MEM) continue;
      state.values.push_back({reinterpret_cast<std::uint64_t*>(a.data2[0]), a.data2[1]});
    }
    return 0;
  });
}

}  // namespace
}  // namespace TENUTO_NS::pmemobj

using namespace tenuto::pmemobj;

PMEMoid pmemobj_reserve(PMEMobjpool* pop, struct pobj_action* act, size_t size, uint64_t type_num) {
  return pmemobj_xreserve(pop, act, size, type_num, 0);
}

PMEMoid pmemobj_xreserve(PMEMobjpool* pop, struct pobj_action* act, size_t size, uint64_t type_num,
                         uint64_t flags) {
  return without_throwing(OID_NULL, [&] { return reserve(pop, act, {size, type_num, flags}); });
}

void pmemobj_set_value(PMEMobjpool*, struct pobj_action* act, uint64_t* ptr, uint64_t value) {
  *act = {};
  act->type = POBJ_ACTION_TYPE_MEM;
  act->data2[0] = reinterpret_cast<uint64_t>(ptr);
  act->data2[1] = value;
}

// libpmemobj looks at the offset alone. So programs may have set only that word of an OID.
void pmemobj_defer_free(PMEMobjpool* pop, PMEMoid oid, struct pobj_action* act) {
  const OpenPool* const pool = pool_of(pop);
  if (oid.pool_uuid_lo == 0 && pool != nullptr) oid.pool_uuid_lo = pool->uuid_lo;
  *act = {};
  act->type = POBJ_ACTION_TYPE_HEAP;
  become(*act, HeapAction::free);
  act->heap.offset = oid.off;
  pool_of_action(*act) = oid.pool_uuid_lo;
}

int pmemobj_publish(PMEMobjpool* pop, struct pobj_action* actv, size_t actvcnt) {
  return without_throwing(ENOMEM, [&] { return publish(pop, actv, actvcnt); }) == 0 ? 0 : -1;
}

int pmemobj_tx_xpublish(struct pobj_action* actv, size_t actvcnt, uint64_t flags) {
  TxState& state = tx_in_work("pmemobj_tx_xpublish");
  int error = (flags & ~POBJ_XPUBLISH_VALID_FLAGS) == 0 ? 0 : refuse(EINVAL, "unknown flags");
  if (error == 0) error = publish_in_tx(state, actv, actvcnt);
  return error == 0 ? 0 : fail_in_tx(state, error, flags);
}

int pmemobj_tx_publish(struct pobj_action* actv, size_t actvcnt) {
  return pmemobj_tx_xpublish(actv, actvcnt, 0);
}

void pmemobj_cancel(PMEMobjpool* pop, struct pobj_action* actv, size_t actvcnt) {
  OpenPool* const pool = pool_of(pop);
  if (pool == nullptr || pool->impl->usable() != tenuto::Status::ok) return;
  for (size_t i = 0; i < actvcnt; ++i) {
    if (!is(actv[i], HeapAction::alloc)) continue;
    if (pool_of_action(actv[i]) != pool->uuid_lo) {
      refuse(EINVAL, "cannot cancel a reservation: it is of another pool");
      continue;
    }
    const tenuto::Status s = without_throwing(
        tenuto::Status::ok, [&] { return pool->heap().cancel({actv[i].heap.offset}); });
    if (s != tenuto::Status::ok) {
      refuse(s, "cannot cancel a reservation");
    } else {
      become(actv[i], HeapAction::taken);
    }
  }
}
