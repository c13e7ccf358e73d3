// Store::backup: all collections at one moment into a new pool. The moment is a snapshot, taken
// while no collection can be made, dropped or renamed; then everything is read through it and
// written in batches to a pool under another name, which is closed, and so durable, before it gets
// its own.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "pm/plant.h"
#include "store/cursor.h"
#include "store/store_impl.h"

namespace tenuto::inline TENUTO_ABI {

namespace {

constexpr std::size_t kBatchOps = 1000;
constexpr std::uint64_t kBatchBytes = 4u << 20;

// As the records stand in their trees: no codec is needed, and lifetimes stay.
Status copy(store::Cursor& from, Store& to, const Collection& into, std::uint64_t& copied) {
  WriteBatch batch;
  std::uint64_t bytes = 0;
  for (from.seek({}); from.valid(); from.next()) {
    if (copied++ == 7 && TENUTO_PLANT("store_backup_loses_a_record")) continue;
    batch.put(into, from.key(), from.value());
    bytes += from.key().size() + from.value().size();
    if (batch.count() < kBatchOps && bytes < kBatchBytes) continue;
    TENUTO_TRY(to.write(batch, {Durability::buffered}));
    batch.clear();
    bytes = 0;
  }
  TENUTO_TRY(from.status());
  return to.write(batch, {Durability::buffered});
}

// What was read and what was written are as many as the source counts, where nobody wrote to it
// just when its moment was taken.
Status compare(const store::Collections::Held& source, const Collection& copy, std::uint64_t copied,
               const std::string& path, Report* report) {
  const std::uint64_t wanted = source.records.value_or(copied);
  const std::uint64_t written = copy.stats().records;
  if (copied == wanted && written == wanted) return Status::ok;
  const std::string what = source.name.empty() ? "the store" : "collection " + source.name;
  return fail(Status::corrupt, report, "the backup of " + what + " has another number of records",
              path, std::to_string(wanted), std::to_string(copied == wanted ? written : copied));
}

// The name is durable when this returns. exists: somebody else has taken it meanwhile.
Status rename_durably(const std::string& from, const std::string& to) {
  bool renamed = ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0;
  if (!renamed && errno == EEXIST) return Status::exists;
  // Some file systems do not know the flag.
  if (!renamed && errno == EINVAL) renamed = std::rename(from.c_str(), to.c_str()) == 0;
  if (!renamed) return Status::io;
  const std::size_t slash = to.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : to.substr(0, slash + 1);
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return Status::io;
  // Some file systems cannot sync a folder; the rename is as durable there as it gets.
  const bool synced = ::fsync(fd) == 0 || errno == EINVAL;
  ::close(fd);
  return synced ? Status::ok : Status::io;
}

}  // namespace

Status Store::backup(const std::string& path, Report* report) {
  return backup(path, PoolOptions{}, report);
}

Status Store::backup(const std::string& path, const PoolOptions& options, Report* told) {
  Report local;
  Report* const report = told != nullptr ? told : &local;
  *report = {};
  if (impl_ == nullptr || impl_->collections() == nullptr) return Status::closed;
  if (::access(path.c_str(), F_OK) == 0) {
    return fail(Status::exists, report, "there is a file already where the backup should be", path);
  }
  std::vector<store::Collections::Held> all;
  std::shared_ptr<store::SnapshotCore> moment;
  TENUTO_TRY(impl_->collections()->hold_all(all, moment, report));
  const std::string partial = path + ".partial";
  // Where it is by default, whatever the options say: they may name the journal of this store.
  const std::string journal = partial + ".journal";
  ::unlink(partial.c_str());
  ::unlink(journal.c_str());
  const auto write = [&]() -> Status {
    StoreOptions to;
    to.pool = options;
    to.pool.journal.path.clear();
    to.pool.journal.keep = false;  // it has done its work when the pool is closed
    to.error_if_exists = true;
    to.reclaim_every_ms = 0;
    to.key_kind = key_kind();
    Result<Store> store = Store::open(partial, to, report);
    if (!store) return store.error();
    store->impl_->collections()->set_forms(store::Forms::of_stored_keys());
    for (const store::Collections::Held& held : all) {
      Collection into = store->default_collection();
      if (!held.name.empty()) {
        Result<Collection> made =
            store->collection(held.name, options_of(held.state->form.spec()), report);
        if (!made) return made.error();
        into = std::move(*made);
      }
      store::Cursor from(held.state, {}, moment, nullptr, nullptr);
      from.verify_always();
      std::uint64_t copied = 0;
      const Status read = copy(from, *store, into, copied);
      if (read == Status::corrupt) {
        return fail(read, report, "the store is damaged, its log and validate() say where",
                    impl_->pool.info().path);
      }
      TENUTO_TRY(read);
      TENUTO_TRY(compare(held, into, copied, partial, report));
    }
    return store->close();
  };
  Status s = write();
  for (const store::Collections::Held& h : all) {
    h.state->held.fetch_sub(1, std::memory_order_relaxed);
  }
  if (s == Status::ok) s = rename_durably(partial, path);
  if (s == Status::ok) return s;
  ::unlink(partial.c_str());
  ::unlink(journal.c_str());
  if (!report->what.empty()) return s;
  return fail(s, report, "the backup cannot be written", path);
}

}  // namespace tenuto::inline TENUTO_ABI
