// The public Store: each call finds the tree of its pool.
#include <algorithm>
#include <utility>

#include "store/store_impl.h"

namespace tenuto::inline TENUTO_ABI {

// --- WriteBatch ---------------------------------------------------------------------------------

void WriteBatch::put(std::string_view key, std::string_view value) {
  Op op;
  op.key_at = bytes_.size();
  op.key_bytes = key.size();
  bytes_.append(key);
  op.value_at = bytes_.size();
  op.value_bytes = value.size();
  bytes_.append(value);
  ops_.push_back(op);
}

void WriteBatch::erase(std::string_view key) {
  Op op;
  op.key_at = bytes_.size();
  op.key_bytes = key.size();
  op.erase = true;
  bytes_.append(key);
  ops_.push_back(op);
}

void WriteBatch::clear() {
  ops_.clear();
  bytes_.clear();
}

void StoreImpl::append(const WriteBatch& batch, std::vector<store::BatchOp>& ops) {
  const std::string_view bytes = batch.bytes_;
  for (const WriteBatch::Op& op : batch.ops_) {
    ops.push_back({bytes.substr(op.key_at, op.key_bytes), bytes.substr(op.value_at, op.value_bytes),
                   op.erase});
  }
}

// --- View ---------------------------------------------------------------------------------------

View::View(View&& o) noexcept
    : guard_(std::exchange(o.guard_, nullptr)), value_(std::exchange(o.value_, {})) {}

View& View::operator=(View&& o) noexcept {
  std::swap(guard_, o.guard_);
  std::swap(value_, o.value_);
  return *this;
}

View::~View() {
  if (guard_ != nullptr) static_cast<store::EpochSlot*>(guard_)->leave();
}

// --- Store --------------------------------------------------------------------------------------

Status StoreImpl::attach(const StoreOptions& options, bool fresh, Report* report) {
  PoolImpl& p = *pool.impl_;
  TENUTO_TRY(p.open_tree(report));
  if (p.tree == nullptr) {
    if (!fresh && !options.create_if_missing) {
      return fail(Status::not_found, report, "the pool holds no store", p.file->path());
    }
    TENUTO_TRY(p.file->writable());
    auto made = store::Tree::create(*p.file, *p.heap, *p.engine, options.key_kind, report);
    if (!made) return made.error();
    p.tree = std::move(*made);
  }
  p.tree->set_verify_reads(options.verify_reads);
  if (options.check_key_kind && p.tree->kind() != options.key_kind) {
    return fail(Status::invalid_argument, report, "the store has keys of another kind",
                p.file->path());
  }
  return Status::ok;
}

Result<Store> Store::open(std::string_view path, const StoreOptions& options, Report* report) {
  Report local;
  Report* r = report != nullptr ? report : &local;
  if (options.key_kind != KeyKind::bytes && options.key_kind != KeyKind::u64) {
    return fail(Status::invalid_argument, r, "there is no such kind of keys", std::string(path));
  }
  bool fresh = false;
  Result<Pool> pool = Pool::open(path, options.pool, r);
  if (pool && options.error_if_exists) {
    return fail(Status::exists, r, "there is a pool already", std::string(path));
  }
  if (!pool && pool.error() == Status::not_found && options.create_if_missing &&
      !options.pool.read_only) {
    fresh = true;
    pool = Pool::create(path, options.pool, r);
    // Somebody else was quicker: his is as good.
    if (!pool && pool.error() == Status::exists && !options.error_if_exists) {
      fresh = false;
      pool = Pool::open(path, options.pool, r);
    }
  }
  if (!pool) return pool.error();
  auto impl = std::make_unique<StoreImpl>(std::move(*pool));
  TENUTO_TRY(impl->attach(options, fresh, r));
  return Store(std::move(impl));
}

Store::Store(std::unique_ptr<StoreImpl> impl) : impl_(std::move(impl)) {}
Store::Store(Store&&) noexcept = default;
Store& Store::operator=(Store&&) noexcept = default;
Store::~Store() = default;  // the pool's destructor closes

Status Store::close() {
  if (impl_ == nullptr) return Status::closed;
  const Status s = impl_->pool.close();
  if (s != Status::busy) impl_.reset();
  return s;
}

namespace {
store::Tree* tree_of(const std::unique_ptr<StoreImpl>& impl) {
  return impl == nullptr ? nullptr : impl->tree();
}
}  // namespace

Status Store::get(std::string_view key, std::string& value) const {
  const store::Tree* tree = tree_of(impl_);
  return tree == nullptr ? Status::closed : tree->get(key, value);
}

Result<std::string> Store::get(std::string_view key) const {
  std::string value;
  const Status s = get(key, value);
  if (s != Status::ok) return s;
  return value;
}

Result<View> Store::view(std::string_view key) const {
  const store::Tree* tree = tree_of(impl_);
  if (tree == nullptr) return Status::closed;
  View v;
  store::EpochSlot& slot = store::my_epoch_slot();
  slot.enter();
  v.guard_ = &slot;
  store::Record record;
  TENUTO_TRY(tree->lookup(key, record));
  v.value_ = record.value;
  return v;
}

Status Store::contains(std::string_view key) const {
  const store::Tree* tree = tree_of(impl_);
  if (tree == nullptr) return Status::closed;
  const store::EpochGuard guard;
  store::Record record;
  return tree->lookup(key, record, false);
}

Status Store::put(std::string_view key, std::string_view value, WriteOptions options) {
  store::Tree* tree = tree_of(impl_);
  if (tree == nullptr) return Status::closed;
  TENUTO_TRY(tree->put(key, value));
  return impl_->pool.impl_->settle(options.durability);
}

Status Store::erase(std::string_view key, WriteOptions options) {
  store::Tree* tree = tree_of(impl_);
  if (tree == nullptr) return Status::closed;
  TENUTO_TRY(tree->erase(key));
  return impl_->pool.impl_->settle(options.durability);
}

Status Store::write(const WriteBatch& batch, WriteOptions options) {
  store::Tree* tree = tree_of(impl_);
  if (tree == nullptr) return Status::closed;
  std::vector<store::BatchOp> ops;
  StoreImpl::append(batch, ops);
  TENUTO_TRY(tree->write(std::move(ops)));
  return impl_->pool.impl_->settle(options.durability);
}

Status Store::bulk_load(std::span<const KeyValue> sorted, WriteOptions options) {
  store::Tree* tree = tree_of(impl_);
  if (tree == nullptr) return Status::closed;
  PoolImpl& pool = *impl_->pool.impl_;
  TENUTO_TRY(tree->bulk_load(sorted, pool.recovery_threads));
  return pool.settle(options.durability);
}

Status Store::multi_get(std::span<const std::string_view> keys, const EachValue& each) const {
  constexpr std::size_t kAtOnce = 64;
  const store::Tree* tree = tree_of(impl_);
  if (tree == nullptr) return Status::closed;
  for (std::size_t from = 0; from < keys.size(); from += kAtOnce) {
    const std::size_t n = std::min(kAtOnce, keys.size() - from);
    store::Looked found[kAtOnce];
    const store::EpochGuard guard;
    tree->multi_lookup(keys.subspan(from, n), {found, n});
    for (std::size_t i = 0; i < n; ++i) each(from + i, found[i].status, found[i].record.value);
  }
  return Status::ok;
}

Status Store::sync() { return tree_of(impl_) == nullptr ? Status::closed : impl_->pool.sync(); }

Status Store::validate(Report* report) const {
  const store::Tree* tree = tree_of(impl_);
  if (tree == nullptr) return Status::closed;
  TENUTO_TRY(tree->validate(report));
  return impl_->pool.validate(report);
}

KeyKind Store::key_kind() const {
  const store::Tree* tree = tree_of(impl_);
  return tree == nullptr ? KeyKind::bytes : tree->kind();
}

StoreStats Store::stats() const {
  StoreStats s;
  const store::Tree* tree = tree_of(impl_);
  if (tree == nullptr) return s;
  tree->stats(s);
  s.pool = impl_->pool.stats();
  return s;
}

Pool& Store::pool() { return impl_->pool; }
const Pool& Store::pool() const { return impl_->pool; }

}  // namespace tenuto::inline TENUTO_ABI
