// A pool file and its journal. The journal is made with the pool, opened and replayed before the
// pool is mapped, and asked at the end of each operation.
#include <sys/mman.h>
#include <unistd.h>

#include "file/pool_file.h"
#include "journal/journal.h"
#include "journal/page.h"
#include "pm/os.h"
#include "pm/plant.h"

namespace TENUTO_NS::pm {

// The default is beside the pool's real path, so that a symbolic link to the pool finds the same
// journal. A given path may be a link to another device. The default name is never a link.
std::string PoolFile::journal_path(const JournalOptions& options) const {
  if (options.path.empty()) return real_path_ + ".journal";
  return real_path(options.path);
}

JournalExpected PoolFile::expect_journal() const {
  JournalExpected e;
  e.pool_id = super_.pool_id;
  e.journal_id = super_.journal_id;
  e.life = super_.journal_life;
  e.life_before = super_.journal_life_before;
  const bool running = super_.state == static_cast<std::uint32_t>(PoolState::running);
  e.in_use = !was_clean_ && running && super_.journal_id != 0 && super_.journal_life == super_.life;
  e.pool_path = real_path_;
  e.place = read_journal_place(fd_);
  e.mode = mode_;
  return e;
}

// Called before the pool has its name, so that no pool is left without a journal when there is no
// room for one.
Status PoolFile::make_journal(const PoolOptions& options, Report* report) {
  JournalExpected e = expect_journal();
  e.temporary = !options.journal.keep;
  const std::uint64_t ring_bytes = JournalFile::ring_bytes_for(options.journal, fd_);
  auto made = JournalFile::open(journal_path(options.journal), ring_bytes, e, report);
  if (!made) return made.error();
  // It may be left by a maker who came to no pool, and is taken over then. Or a pool at this path
  // has been made and given up since the name was looked at, and needs it. From now on the lock of
  // the journal keeps other makers from giving the name.
  if (!TENUTO_PLANT("journal_of_a_new_pool_taken")) TENUTO_TRY(name_is_free(report));
  new_journal_ = std::move(*made);
  TENUTO_TRY(new_journal_->claim(e, report));
  super_.journal_id = new_journal_->journal_id();
  super_.journal_life = new_journal_->life();
  return Status::ok;
}

std::string PoolFile::journal_last_place() const { return read_journal_place(fd_); }

JournalFound PoolFile::journal_found() const {
  if (journal_ != nullptr) return JournalFound::in_use;
  const auto there = JournalFile::open_to_read(journal_place_, expect_journal(), nullptr);
  if (there) return JournalFound::fits;
  if (there.error() != Status::not_found) return JournalFound::foreign;
  return super_.journal_id == 0 ? JournalFound::none : JournalFound::gone;
}

// Version 0.1 numbered lives with small counters, so its journals cannot be matched for certain.
Status PoolFile::check_old_journal(const std::string& path, Report* report) const {
  const bool there =
      copy_damaged_ && super_.version == kLayoutVersionOld && ::access(path.c_str(), F_OK) == 0;
  if (!old_journal_ && !there) return Status::ok;
  return fail(Status::wrong_version, report,
              "the pool was not closed cleanly by version 0.1 and needs its journal of that "
              "version; open and close it once with version 0.1.0",
              path_);
}

// For a clean pool that is opened without its journal, to read or on another medium. That journal
// may still show that the pool is an older copy. Files of others do not matter, nor does a journal
// that is open elsewhere.
Status PoolFile::check_unneeded_journal(const JournalExpected& expected, Report* report) const {
  if (super_.journal_id == 0) return Status::ok;
  Report why;
  const auto there = JournalFile::open_to_read(journal_place_, expected, &why);
  const bool believed = TENUTO_PLANT("journal_unneeded_not_looked_at");
  if (believed) return Status::ok;
  if (there.error() == Status::corrupt) {
    if (report != nullptr) *report = std::move(why);
    return Status::corrupt;
  }
  // With a damaged superblock copy the journal's contents may count.
  if (there && expected.unsure && (*there)->use() != JournalUse::begin) {
    return fail(Status::read_only, report,
                "half of the superblock is damaged and the journal may hold writes that the pool "
                "needs; open it once for writing",
                path_);
  }
  return Status::ok;
}

Status PoolFile::open_journal(const PoolOptions& options, Report* report) {
  const std::string& path = journal_place_;
  JournalExpected expected = expect_journal();
  expected.temporary = !options.journal.keep;
  // The damaged superblock copy may have said that a journal is in use.
  const bool there = copy_damaged_ && ::access(path.c_str(), F_OK) == 0;
  expected.unsure = there && !TENUTO_PLANT("journal_of_a_lost_superblock_ignored");
  // An unclean pool is not opened to read.
  const bool unneeded = medium_ != Medium::journal && !expected.to_be_read();
  if (unneeded || options.read_only) TENUTO_TRY(check_unneeded_journal(expected, report));
  if (options.read_only) return Status::ok;
  super_.life = random_id();
  if (unneeded) return Status::ok;
  const ReplayOptions how{
      .threads = options.recovery_threads,
      .log = [this](std::string_view s) { log(s); },
  };
  auto journal = Journal::open(options.journal, path, fd_, expected, how, report);
  if (!journal) return journal.error();
  if (medium_ == Medium::journal) {
    journal_ = std::move(*journal);
    return Status::ok;
  }
  // All of it is in the pool file. From now on the pool's lives use no journal.
  TENUTO_TRY(set_state(PoolState::running, report));
  (*journal)->let_go();
  return Status::ok;
}

// journal/match.h has the states of both files at each step.
Status PoolFile::begin_life(Report* report) {
  // Recovery stores formats of this layout, so a pool of layout 4 is upgraded first. And a torn
  // copy beside one that says `clean` is no safe sign that recovery has begun: a later write of it
  // that is torn, too, may leave what it was before.
  const bool old = super_.version != kLayoutVersion && !was_clean_ && !opened_to_read_;
  const bool torn = copy_torn_ && !opened_to_read_ && !TENUTO_PLANT("pm_torn_copy_is_a_sign");
  if (journal_ == nullptr) return old || torn ? set_state(PoolState::running, report) : Status::ok;
  const auto announce = [&] {
    if (!write_journal_place(fd_, journal_->path())) {
      return fail_errno(errno, "cannot write the journal's place to the pool", path_, report);
    }
    super_.journal_id = journal_->journal_id();
    super_.journal_life_before = journal_->life();
    super_.journal_life = super_.life;
    if (TENUTO_PLANT("journal_life_forgets_the_last_close")) super_.closed = 0;
    return put_superblock(report);
  };
  Report why;
  if (journal_->grow(&why) != Status::ok) {
    log("the pool's journal stays small, and commits wait more often: " + why.text());
  }
  const bool late = TENUTO_PLANT("journal_begun_before_its_pool_names_it");
  if (!late) TENUTO_TRY(announce());
  TENUTO_TRY(journal_->begin(expect_journal(), super_.life, report));
  if (late) TENUTO_TRY(announce());
  // Recovery stores next, so blocks of this life must count from the first one on.
  return was_clean_ ? Status::ok : set_state(PoolState::running, report);
}

Status PoolFile::sync() {
  if (journal_ == nullptr) return Status::ok;
  return journal_->sync();
}

Status PoolFile::acknowledge_journal(Durability d) {
  if (d == Durability::sync) return journal_->sync();
  if (TENUTO_PLANT("journal_buffered_write_of_a_failed_one_said_ok")) return Status::ok;
  return journal_->status();
}

}  // namespace TENUTO_NS::pm
