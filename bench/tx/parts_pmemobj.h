// libpmemobj for its rows and structures: the functions in use, and a transaction around a body.
// The library is loaded at run time, as it reads its environment when it is loaded.
#pragma once

#include <libpmemobj.h>

#include <memory>
#include <new>
#include <utility>

#include "bench/alloc/library.h"
#include "bench/tx/engine.h"

namespace bench {

struct PmemobjFunctions {
  decltype(::pmemobj_create)* create;
  decltype(::pmemobj_close)* close;
  decltype(::pmemobj_errormsg)* errormsg;
  decltype(::pmemobj_root)* root;
  decltype(::pmemobj_flush)* flush;
  decltype(::pmemobj_tx_begin)* tx_begin;
  decltype(::pmemobj_tx_commit)* tx_commit;
  decltype(::pmemobj_tx_end)* tx_end;
  decltype(::pmemobj_tx_abort)* tx_abort;
  decltype(::pmemobj_tx_add_range_direct)* tx_add_range_direct;
  decltype(::pmemobj_tx_xadd_range_direct)* tx_xadd_range_direct;
  decltype(::pmemobj_tx_alloc)* tx_alloc;
  decltype(::pmemobj_tx_free)* tx_free;
  decltype(::pmemobj_reserve)* reserve;
  decltype(::pmemobj_defer_free)* defer_free;
  decltype(::pmemobj_set_value)* set_value;
  decltype(::pmemobj_publish)* publish;

  bool load(Library& library, const char* path);
};

// One open pool. A body works through it.
class PmemobjPool {
 public:
  PmemobjPool(const PmemobjFunctions& functions, PMEMobjpool* pool)
      : f_(functions), pool_(pool), base_(reinterpret_cast<std::byte*>(pool)) {}

  // body() -> bool. It ends a transaction that a failed call has aborted, and one of its own abort.
  // The transaction has no jump buffer: a C++ program looks at results, and saves the setjmp.
  template <class Body>
  bool run(Body&& body) const {
    if (f_.tx_begin(pool_, nullptr, TX_PARAM_NONE) == 0 && body()) f_.tx_commit();
    return f_.tx_end() == 0;
  }
  template <class T>
  bool add(T& object) const {
    return f_.tx_add_range_direct(&object, sizeof object) == 0;
  }
  // A T in a new object, with its contents, at `to`.
  template <class T, class... Args>
  bool make(PMEMoid& to, Args&&... args) const {
    to = f_.tx_alloc(sizeof(T), kType);
    if (OID_IS_NULL(to)) return false;
    new (at<T>(to)) T(std::forward<Args>(args)...);
    return true;
  }
  bool free(PMEMoid oid) const { return f_.tx_free(oid) == 0; }
  // As pmemobj_direct computes it, for the only open pool, and without its look at a cache.
  template <class T>
  T* at(PMEMoid oid) const {
    return oid.off == 0 ? nullptr : reinterpret_cast<T*>(base_ + oid.off);
  }
  const PmemobjFunctions& f() const { return f_; }
  PMEMobjpool* pool() const { return pool_; }

 private:
  static constexpr std::uint64_t kType = 1;

  PmemobjFunctions f_;
  PMEMobjpool* pool_;
  std::byte* base_;
};

// `area` is this thread's part of the root object.
std::unique_ptr<Work> make_pmemobj_row(std::string_view name, const PmemobjPool& pool, void* area,
                                       const WorkSize& size);
std::unique_ptr<Work> make_pmemobj_chain(const TxCase& what, const PmemobjPool& pool, void* area,
                                         const WorkSize& size);
std::unique_ptr<Work> make_pmemobj_tree(const TxCase& what, const PmemobjPool& pool, void* area,
                                        const WorkSize& size);

}  // namespace bench
