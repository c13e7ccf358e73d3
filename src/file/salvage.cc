// Opens a damaged pool file to read what is left of it. Nothing in it is trusted. The whole file is
// mapped, the contents of its journal are copied over it, and the layers above check each thing
// before they use it.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "file/pool_file.h"
#include "file/regular.h"
#include "journal/file.h"
#include "pm/os.h"
#include "pm/plant.h"

namespace TENUTO_NS::pm {

Result<std::unique_ptr<PoolFile>> PoolFile::open_damaged(
    std::string_view path, const std::string& journal, unsigned threads, std::vector<Report>& notes,
    std::vector<Report>& losses, Report* report) {
  std::unique_ptr<PoolFile> f(new PoolFile);
  f->path_ = path;
  f->real_path_ = real_path(f->path_);
  TENUTO_TRY(expect_regular(f->path_, report));
  change([&] { f->fd_ = open_file(f->path_, O_RDONLY | O_NONBLOCK); });
  if (f->fd_ < 0) return fail_errno(errno, "cannot open the pool file", path, report);
  struct stat st {};
  TENUTO_TRY(look_at_regular(f->fd_, f->path_, st, report));
  const auto file_bytes = static_cast<std::uint64_t>(st.st_size);
  f->mode_ = st.st_mode & 0666;
  if (file_bytes < kHeadBytes) {
    return fail(Status::not_a_pool, report, "the file is too short to be a pool", f->path_,
                "at least " + std::to_string(kHeadBytes), std::to_string(file_bytes));
  }
  TENUTO_TRY(f->lock(false, report));
  Report why;
  const Status super = f->read_superblock(std::max(file_bytes, kPoolBytesMin), &why);
  if (super == Status::wrong_version || super == Status::io) {
    if (report != nullptr) *report = why;
    return super;
  }
  if (super != Status::ok) {
    notes.push_back(why);
    f->was_clean_ = false;
  }
  const std::uint64_t mapped = round_up(file_bytes, kFrameBytes);
  TENUTO_TRY(f->reserve_addresses(mapped, mapped, report));
  // Private: the writes of recovery stay in memory, and only written pages cost any.
  void* p = ::mmap(f->base_, mapped, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_NORESERVE | MAP_FIXED, f->fd_, 0);
  if (p == MAP_FAILED) return fail_errno(errno, "cannot map the pool file", path, report);
  f->bytes_.store(mapped, std::memory_order_release);
  f->medium_ = Medium::cache;
  f->in_memory_ = true;
  f->can_punch_ = false;
  TENUTO_TRY(f->register_mapping({}, report));
  f->copy_damaged_ |= super != Status::ok;
  TENUTO_TRY(f->apply_journal(journal, threads, super == Status::ok, losses, report));
  return f;
}

// Copies the journal's contents over the mapping. A file beside the pool that is not the journal
// the pool needs (empty, cut short, of another pool or life) counts as no journal: a loss. A
// journal whose path was given must be the right one.
Status PoolFile::apply_journal(const std::string& given, unsigned threads, bool super_known,
                               std::vector<Report>& losses, Report* report) {
  JournalExpected expected = expect_journal();
  const bool needed = super_known && (expected.in_use || old_journal_);
  if (!needed && !copy_damaged_) return Status::ok;
  JournalOptions where;
  where.path = given;
  const std::string journal = journal_path(where);
  if (::access(journal.c_str(), F_OK) != 0) {
    if (!given.empty()) {
      return fail(Status::not_found, report, "there is no journal", journal);
    }
    if (needed) {
      losses.push_back(
          {"the pool was in use with a journal, which is not there: what it holds and "
           "the file does not is missing; give its place if it is elsewhere" +
               (expected.place.empty() ? "" : " (at the last open it was " + expected.place + ")"),
           journal,
           {},
           {}});
    }
    return Status::ok;
  }
  if (old_journal_) {
    return fail(Status::wrong_version, report,
                "the pool needs its journal of version 0.1, which this version does not read; use "
                "version 0.1.0, or move the journal away to rescue what the pool file holds "
                "without it",
                journal);
  }
  expected.unsure = copy_damaged_;
  expected.any_life = !super_known;
  // A damaged copy may still have the pool's id. If none has, only a given journal is read.
  std::vector<std::uint64_t> ids{super_.pool_id};
  if (!super_known) {
    ids = {at<Superblock>({0})->pool_id, at<Superblock>({kFrameBytes})->pool_id};
    if (ids[0] == 0 && ids[1] == 0 && given.empty()) ids.clear();
  }
  Report why{"nothing says whose journal this is: it is read only when its place is given",
             journal,
             {},
             {}};
  for (const std::uint64_t id : ids) {
    expected.pool_id = id;
    auto file = JournalFile::open_to_read(journal, expected, &why);
    if (file) return apply_journal(**file, threads, losses);
    // These are no damage, and the caller can remove the cause.
    const Status s = file.error();
    const bool refused = s == Status::io || s == Status::busy || s == Status::permission ||
                         s == Status::wrong_version;
    if (needed && refused) return fail(s, report, why.what, why.where, why.expected, why.found);
  }
  const bool ends = TENUTO_PLANT("journal_unreadable_ends_a_rescue") && !copy_damaged_;
  if (needed && ends) return fail(Status::corrupt, report, why.what, why.where);
  if (needed && !given.empty()) {
    return fail(Status::invalid_argument, report,
                why.what +
                    "; give the journal that the pool was left with, or none to rescue "
                    "what the pool file holds without it",
                why.where, why.expected, why.found);
  }
  why.what += ": what the journal holds and the file does not is missing";
  losses.push_back(std::move(why));
  return Status::ok;
}

Status PoolFile::apply_journal(JournalFile& journal, unsigned threads,
                               std::vector<Report>& losses) {
  std::uint64_t outside = 0;
  const auto apply = [&](std::span<const LineImage> images) {
    for (const LineImage& l : images) {
      if (l.line >= bytes() / kLineBytes) {
        outside += 1;
        continue;
      }
      std::memcpy(base_ + l.line * kLineBytes, l.bytes, kLineBytes);
    }
    return Status::ok;
  };
  Report why;
  const bool ignored = TENUTO_PLANT("journal_not_read_by_a_rescue");
  const ReplayOptions how{.threads =
                              TENUTO_PLANT("journal_threads_of_a_rescue_forgotten") ? 0 : threads};
  const Status s = ignored ? Status::ok : journal.replay(how, apply, nullptr, &why);
  if (s != Status::ok) {
    why.what += ": what was written after it is missing";
    losses.push_back(std::move(why));
  }
  if (outside != 0) {
    losses.push_back({"the file is shorter than its journal says: truncated?",
                      path_,
                      {},
                      std::to_string(outside) + " lines behind its end"});
  }
  return Status::ok;
}

}  // namespace TENUTO_NS::pm
