// The public Transaction: a guard over the lane's Txn. The constructor that takes a Pool is in
// store/pool.cc, which knows what a Pool is made of.
#include "tenuto/tx.h"

#include <utility>

#include "tx/txn.h"

namespace tenuto::inline TENUTO_ABI {

Transaction::Transaction(tx::Txn& txn) : begin_status_(txn.begin()) {
  if (begin_status_ == Status::ok) txn_ = &txn;
}

Transaction::~Transaction() {
  if (txn_ != nullptr) txn_->abort();
}

Status Transaction::status() const { return txn_ == nullptr ? begin_status_ : txn_->status(); }

Status Transaction::add(const void* p, std::size_t bytes) {
  return txn_ == nullptr ? begin_status_ : txn_->add(p, bytes);
}

Status Transaction::add_later(const void* p, std::size_t bytes) {
  return txn_ == nullptr ? begin_status_ : txn_->add_later(p, bytes);
}

Status Transaction::ready() { return txn_ == nullptr ? begin_status_ : txn_->ready(); }

Result<void*> Transaction::alloc(std::uint64_t bytes, const AllocOptions& options) {
  if (txn_ == nullptr) return begin_status_;
  return txn_->alloc(bytes, options);
}

Status Transaction::free(const void* p) { return txn_ == nullptr ? begin_status_ : txn_->free(p); }

Status Transaction::lock(std::mutex& m) { return txn_ == nullptr ? begin_status_ : txn_->lock(m); }

Status Transaction::on_commit(std::function<void()> f) {
  return txn_ == nullptr ? begin_status_ : txn_->on_commit(std::move(f));
}

Status Transaction::on_abort(std::function<void()> f) {
  return txn_ == nullptr ? begin_status_ : txn_->on_abort(std::move(f));
}

Status Transaction::commit() { return commit(durability_); }

Status Transaction::commit(Durability durability) {
  if (txn_ == nullptr) return begin_status_;
  tx::Txn& txn = *std::exchange(txn_, nullptr);
  Status s = txn.commit();
  // A transaction that joined another one is durable with that.
  if (s == Status::ok && !txn.active()) s = txn.settle(durability);
  begin_status_ = s == Status::ok ? Status::closed : s;
  return s;
}

void Transaction::abort() {
  if (txn_ == nullptr) return;
  std::exchange(txn_, nullptr)->abort();
  begin_status_ = Status::aborted;
}

}  // namespace tenuto::inline TENUTO_ABI
