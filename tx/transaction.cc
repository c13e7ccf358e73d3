// The public Transaction: a guard over the lane's Txn. The constructor that takes a Pool is in
// store/pool/pool.cc, because it needs the parts of a Pool.
#include "tenuto/tx.h"

#include <cstring>
#include <utility>

#include "pm/no_memory.h"
#include "tx/txn.h"

namespace TENUTO_NS {

Transaction::Transaction(tx::Txn& txn, const char* file, int line) {
  begin(txn, nullptr, file, line);
}

void Transaction::begin(tx::Txn& txn, tx::Txn* first, const char* file, int line) {
  begin_status_ = first == nullptr ? txn.begin() : txn.begin_with(*first, durability_);
  if (begin_status_ != Status::ok) return;
  txn.began_at(file, line);
  txn_ = &txn;
  turn_ = txn.turn();
  outer_ = std::exchange(innermost_, this);
}

constinit thread_local Transaction* Transaction::innermost_ = nullptr;

// Guards may end in any order.
void Transaction::leave() {
  Transaction** at = &innermost_;
  while (*at != nullptr && *at != this) at = &(*at)->outer_;
  if (*at == this) *at = outer_;
}

void Transaction::lose(const tx::Txn& txn) noexcept {
  for (Transaction* t = innermost_; t != nullptr; t = t->outer_) {
    if (t->txn_ != &txn) continue;
    t->begin_status_ = t->open() != nullptr ? Status::closed : Status::aborted;
    t->txn_ = nullptr;
  }
}

// False: no transaction of this thread is on the pool. A transaction that ended takes nothing.
bool Transaction::take_field(void* at, const void* value, std::size_t bytes, const void* target) {
  for (Transaction* t = this; t != nullptr; t = t->outer_) {
    tx::Txn* const txn = t->open();
    if (txn != nullptr && txn->takes_fields() && txn->holds(at)) {
      txn->store_field(at, value, bytes, target);
      return true;
    }
  }
  return false;
}

bool Transaction::find_field(const void* at, void* value, std::size_t bytes) const {
  for (const Transaction* t = this; t != nullptr; t = t->outer_) {
    const tx::Txn* const txn = t->open();
    if (txn != nullptr && txn->takes_fields() && txn->holds(at))
      return txn->load_field(at, value, bytes);
  }
  return false;
}

tx::Txn* Transaction::open() const {
  return txn_ != nullptr && txn_->turn() == turn_ ? txn_ : nullptr;
}

Status Transaction::why_not() const { return txn_ == nullptr ? begin_status_ : Status::aborted; }

Transaction::~Transaction() {
  leave();
  if (tx::Txn* txn = open()) txn->abort();
}

Status Transaction::status() const {
  const tx::Txn* txn = open();
  return txn == nullptr ? why_not() : txn->status();
}

Status Transaction::add(const void* p, std::size_t bytes) {
  tx::Txn* const txn = open();
  return txn == nullptr ? why_not() : txn->add(p, bytes);
}

Status Transaction::add_later(const void* p, std::size_t bytes) {
  tx::Txn* const txn = open();
  return txn == nullptr ? why_not() : txn->add_later(p, bytes);
}

Status Transaction::set(void* at, const void* value, std::size_t bytes) {
  tx::Txn* const txn = open();
  return txn == nullptr ? why_not() : txn->set(at, value, bytes);
}

void Transaction::get(const void* at, void* value, std::size_t bytes) const {
  const tx::Txn* const txn = open();
  if (txn == nullptr)
    std::memcpy(value, at, bytes);
  else
    txn->get(at, value, bytes);
}

Status Transaction::overwrite(const void* p, std::size_t bytes) {
  tx::Txn* const txn = open();
  return txn == nullptr ? why_not() : txn->overwrite(p, bytes);
}

Status Transaction::ready() {
  tx::Txn* const txn = open();
  return txn == nullptr ? why_not() : txn->ready();
}

Result<void*> Transaction::alloc(std::uint64_t bytes, const AllocOptions& options) {
  tx::Txn* const txn = open();
  if (txn == nullptr) return why_not();
  return txn->alloc(bytes, options);
}

Status Transaction::adopt(PoolOffset block, std::uint64_t bytes) {
  tx::Txn* const txn = open();
  return txn == nullptr ? why_not() : txn->adopt(block, bytes);
}

Status Transaction::free(const void* p) {
  tx::Txn* const txn = open();
  return txn == nullptr ? why_not() : txn->free(p);
}

Status Transaction::lock(std::mutex& m) {
  tx::Txn* const txn = open();
  return txn == nullptr ? why_not() : txn->lock(m);
}

Status Transaction::lock(std::shared_mutex& m) {
  tx::Txn* const txn = open();
  return txn == nullptr ? why_not() : txn->lock(m);
}
Status Transaction::lock(pthread_mutex_t& m) {
  tx::Txn* const txn = open();
  return txn == nullptr ? why_not() : txn->lock(m);
}

Status Transaction::on_commit(std::function<void()> f) {
  tx::Txn* const txn = open();
  return txn == nullptr ? why_not() : txn->on_commit(std::move(f));
}

Status Transaction::on_abort(std::function<void()> f) {
  tx::Txn* const txn = open();
  return txn == nullptr ? why_not() : txn->on_abort(std::move(f));
}

Status Transaction::on_end(std::function<void(bool committed)> f) {
  tx::Txn* const txn = open();
  return txn == nullptr ? why_not() : txn->on_end(std::move(f));
}

Result<Transaction::Savepoint> Transaction::savepoint() {
  tx::Txn* const txn = open();
  if (txn == nullptr) return why_not();
  const Result<std::uint64_t> number = txn->savepoint();
  if (!number) return number.error();
  return Savepoint{*number};
}

Status Transaction::rollback_to(Savepoint point) {
  tx::Txn* const txn = open();
  if (txn == nullptr) return why_not();
  TENUTO_TRY(txn->rollback_to(point.number));
  return status();  // a callback may have aborted
}

void Transaction::forget(Savepoint point) noexcept {
  if (tx::Txn* const txn = open()) txn->release_savepoint(point.number);
}

void Transaction::undo(Savepoint point) noexcept {
  if (!pm::had_memory([&] { static_cast<void>(rollback_to(point)); })) abort();
}

Status Transaction::commit() {
  const tx::Txn* const txn = open();
  return txn == nullptr ? why_not() : commit_open(txn->strictest(durability_));
}

Status Transaction::commit(Durability durability) {
  return open() == nullptr ? why_not() : commit_open(durability);
}

Status Transaction::commit_open(Durability durability) {
  leave();
  tx::Txn& txn = *std::exchange(txn_, nullptr);
  begin_status_ = Status::closed;  // also if a callback throws
  Status s = txn.commit();
  // An inner transaction becomes durable with the outermost one.
  if (s == Status::ok && !txn.active()) s = txn.acknowledge(durability);
  if (s != Status::ok) begin_status_ = s;
  return s;
}

void Transaction::abort() {
  if (open() == nullptr) return;
  leave();
  begin_status_ = Status::aborted;  // also if a callback throws
  std::exchange(txn_, nullptr)->abort();
}

}  // namespace TENUTO_NS
