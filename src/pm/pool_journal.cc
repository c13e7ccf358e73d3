// A pool file and its journal: made with it, opened and replayed before the pool is mapped, asked
// at the end of each operation.
#include <sys/mman.h>
#include <unistd.h>

#include "pm/crc32c.h"
#include "pm/journal.h"
#include "pm/os.h"
#include "pm/plant.h"
#include "pm/pool_file.h"

namespace tenuto::inline TENUTO_ABI::pm {

namespace {
std::string journal_path(const PoolOptions& options, const std::string& pool) {
  return options.journal.path.empty() ? pool + ".journal" : options.journal.path;
}
}  // namespace

// Before the pool has its name: where there is no room for a journal no pool is left without one.
Status PoolFile::make_journal(const PoolOptions& options, Report* report) {
  auto made = JournalFile::open(journal_path(options, path_), options.journal.bytes,
                                {super_.pool_id, 0, false}, report);
  if (!made) return made.error();
  new_journal_ = std::move(*made);
  return new_journal_->claim(report);
}

Status PoolFile::open_journal(const PoolOptions& options, Report* report) {
  const std::string path = journal_path(options, path_);
  JournalFile::Expected expected{super_.pool_id, was_clean_ ? 0 : super_.journal, false};
  // What the lost superblock said may have been that a journal is in use. One that was emptied by a
  // clean close has nothing to be replayed.
  const bool there = copy_damaged_ && ::access(path.c_str(), F_OK) == 0;
  expected.unsure = there && !TENUTO_PLANT("journal_of_a_lost_superblock_ignored");
  if (medium_ != Medium::journal && !expected.to_be_read()) return Status::ok;
  if (options.read_only) return Status::ok;  // refused as unclean, or nothing to write
  const ReplayOptions how{options.recovery_threads, [this](std::string_view s) { log(s); }};
  auto journal = Journal::open(options.journal, path, fd_, expected, how, report);
  if (!journal) return journal.error();
  if (medium_ != Medium::journal) return Status::ok;
  journal_ = std::move(*journal);
  if (!expected.to_be_read()) return Status::ok;
  // Blocks of the new life count from its first one on, so the pool must name it before.
  return set_state(PoolState::running, report);
}

Status PoolFile::sync() {
  if (journal_ == nullptr) return Status::ok;
  return journal_->sync();
}

Status PoolFile::settle(Durability d) {
  if (journal_ == nullptr) return Status::ok;
  if (d == Durability::sync) return journal_->sync();
  if (TENUTO_PLANT("journal_buffered_write_of_a_failed_one_said_ok")) return Status::ok;
  return journal_->status();
}

}  // namespace tenuto::inline TENUTO_ABI::pm
