// One atomic step of a call that is no part of a transaction: pmemobj_alloc, a list's insert,
// pmemobj_publish. It is a small transaction of the engine.
//
// libpmemobj lets programs make such calls inside a transaction; they are not undone with it. A
// thread has one transaction in a pool here, so then another thread makes the step.
#pragma once

#include <cerrno>
#include <new>
#include <utility>

#include "tenuto/status.h"
#include "tools/pmemobj/error.h"
#include "tools/pmemobj/pools.h"
#include "tx/txn.h"

namespace TENUTO_NS::pmemobj {

// The last part of a call that wrote and fenced.
inline Status acknowledge(const OpenPool& pool) {
  return pool.impl->acknowledge(pool.impl->durability);
}

// Runs f() -> Status on another thread, which has no transaction open. io: there is no thread.
Status on_another_thread(Status (*call)(void*), void* argument);

// body(Txn&) -> Status; any other status than ok undoes what it did.
template <class Body>
Status one_step_here(OpenPool& pool, Body& body) {
  tx::Txn& txn = pool.impl->engine->mine();
  TENUTO_TRY(txn.begin());
  struct Undo {
    tx::Txn* txn;
    ~Undo() {
      if (txn != nullptr) txn->abort();
    }
  } undo{&txn};
  TENUTO_TRY(body(txn));
  undo.txn = nullptr;
  TENUTO_TRY(txn.commit());
  return acknowledge(pool);
}

template <class Body>
Status one_step(OpenPool& pool, Body&& body) {
  TENUTO_TRY(pool.impl->usable());
  if (!pool.impl->engine->mine().active()) [[likely]]
    return one_step_here(pool, body);
  struct Job {
    OpenPool& pool;
    Body& body;
  } job{pool, body};
  return on_another_thread(
      [](void* j) {
        Job& it = *static_cast<Job*>(j);
        return one_step_here(it.pool, it.body);
      },
      &job);
}

// No exception leaves a call.
template <class T, class F>
T without_throwing(T failed, F&& f) {
  try {
    return f();
  } catch (const std::bad_alloc&) {
    refuse(ENOMEM, "no memory");
    return failed;
  }
}

}  // namespace TENUTO_NS::pmemobj
