// How a pool file is created and opened. Everything read is validated here before the layers above
// use the head page.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

#include "file/pool_file.h"
#include "file/regular.h"
#include "journal/file.h"
#include "pm/format.h"
#include "pm/os.h"
#include "pm/plant.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::pm {

namespace {

constexpr std::uint64_t kSizeMaxLimit = 1ull << 46;  // what 48-bit offsets in logs leave room for

// Above the limit, sizes would overflow when they are rounded up.
Status check_sizes(const PoolOptions& o, std::string_view path, Report* report) {
  const auto refused = [&](const char* what, const char* least, std::uint64_t found) {
    return fail(Status::invalid_argument, report, what, std::string(path),
                least + std::to_string(kSizeMaxLimit), std::to_string(found));
  };
  if (o.size_max > kSizeMaxLimit) return refused("size_max is out of range", "size..", o.size_max);
  if (o.journal.bytes > kSizeMaxLimit)
    return refused("the journal's bytes are out of range", "0..", o.journal.bytes);
  return Status::ok;
}

Status check_journal_place(const std::string& pool, const std::string& real_pool,
                           const std::string& journal, Report* report) {
  if (real_pool != journal) return Status::ok;
  return fail(Status::invalid_argument, report,
              "the journal's place is that of the pool itself; give another one as "
              "PoolOptions::journal.path",
              pool);
}

// The system would take a path with a zero byte for the shorter one, which may be another file.
Status check_paths(const PoolOptions& o, std::string_view path, Report* report) {
  if (path.empty()) return fail(Status::invalid_argument, report, "the path is empty");
  for (const std::string_view p : {path, std::string_view(o.journal.path)}) {
    if (p.find('\0') == p.npos) continue;
    return fail(Status::invalid_argument, report, "the path has a zero byte",
                std::string(p.substr(0, p.find('\0'))));
  }
  return Status::ok;
}

Status check_options(const PoolOptions& o, std::string_view path, Report* report) {
  TENUTO_TRY(check_paths(o, path, report));
  if (o.size < kPoolBytesMin) {
    return fail(Status::invalid_argument, report, "the pool size is too small", std::string(path),
                "at least " + std::to_string(kPoolBytesMin), std::to_string(o.size));
  }
  if (o.size > kSizeMaxLimit) {
    return fail(Status::invalid_argument, report, "the pool size is too large", std::string(path),
                "at most " + std::to_string(kSizeMaxLimit), std::to_string(o.size));
  }
  if (o.size_max != 0 && o.size_max < o.size) {
    return fail(Status::invalid_argument, report, "size_max is less than size", std::string(path),
                "at least " + std::to_string(o.size), std::to_string(o.size_max));
  }
  TENUTO_TRY(check_sizes(o, path, report));
  if (o.stripes < 1 || o.stripes > kStripesMax) {
    return fail(Status::invalid_argument, report, "stripes is out of range", std::string(path),
                "1..32", std::to_string(o.stripes));
  }
  return Status::ok;
}

}  // namespace

Result<std::unique_ptr<PoolFile>> PoolFile::create(std::string_view path,
                                                   const PoolOptions& options, Report* report,
                                                   bool of_a_copy) {
  TENUTO_TRY(check_options(options, path, report));
  std::unique_ptr<PoolFile> f(new PoolFile);
  f->path_ = path;
  f->real_path_ = real_path(f->path_);
  f->journal_place_ = f->journal_path(options.journal);
  TENUTO_TRY(check_journal_place(f->path_, f->real_path_, f->journal_place_, report));
  f->log_ = options.log;
  f->watched_ = watches(options);
  TENUTO_TRY(f->choose_protection(options, report));
  TENUTO_TRY(f->name_is_free(report));
  if (options.mode != 0) f->mode_ = options.mode;
  change([&] { f->fd_ = make_nameless(f->path_, f->mode_, f->unnamed_); });
  if (f->fd_ < 0) return fail_errno(errno, "cannot create the pool file", f->path_, report);
  TENUTO_TRY(f->lock(true, report));
  const std::uint64_t bytes = round_up(options.size, kHugeBytes);
  TENUTO_TRY(reserve_space(f->fd_, 0, bytes, path, report));
  TENUTO_TRY(f->reserve_addresses(options.size_max, bytes, report));
  f->choose_medium(options);
  // A new pool is written without its journal. Once it is whole and has a name, it is closed and
  // opened with it (wants_journal). A copy needs no journal, because a crash leaves nothing of it.
  const bool journal = f->medium_ == Medium::journal;
  f->wants_journal_ = journal && !of_a_copy;
  if (journal) f->medium_ = Medium::cache;
  TENUTO_TRY(f->map(options, bytes, report));

  Superblock& s = f->super_;
  s.magic = kPoolMagic;
  s.version = kLayoutVersion;
  s.byte_order = kByteOrderMark;
  s.line_bytes = kLineBytes;
  s.pool_id = random_id();
  s.created_unix_s = static_cast<std::uint64_t>(::time(nullptr));
  s.stripes = options.stripes;
  const bool as_is = options.consistency == Consistency::as_is;
  f->consistency_ = as_is ? Consistency::log : options.consistency;
  s.variant = static_cast<std::uint32_t>(f->consistency_);
  if (options.canaries) s.variant |= kVariantCanaries;
  s.born_version = kLayoutVersion;
  s.life = random_id();
  auto& entry = *f->at<ZoneEntry>({kZoneTableOffset});
  entry = {0, bytes};
  flush(entry);
  publish(f->head().zone_count, 1);
  publish(f->head().lane_segments[0], kLanesOffset);
  if (f->wants_journal_) {
    const Status made = f->make_journal(options, report);
    // Another maker of this pool has made its journal first. If it is done, there is a pool.
    if (made != Status::ok) TENUTO_TRY(f->name_is_free(report));
    TENUTO_TRY(made);
  }
  return f;
}

Status PoolFile::name_is_free(Report* report) const {
  struct stat st {};
  if (::lstat(path_.c_str(), &st) != 0) return Status::ok;  // the system says why it cannot be made
  if (!S_ISLNK(st.st_mode) || ::access(path_.c_str(), F_OK) == 0) {
    return fail(Status::exists, report, "there is a file already", path_);
  }
  return fail(Status::invalid_argument, report,
              "this is a symbolic link to a file that is not there, or may not be looked at; make "
              "the pool by the path of that file",
              path_);
}

Status PoolFile::link_into_place(Report* report) {
  // A power cut from here on may leave the name, so the file must be whole.
  if (!in_memory_ && !map_sync_ && !sync_whole(fd_)) {
    return fail_errno(errno, "cannot write the pool to its device (fsync)", path_, report);
  }
  // The name must survive a power cut as well as the contents.
  const bool named =
      in_memory_ ? give_name(fd_, unnamed_, path_) : give_lasting_name(fd_, unnamed_, path_);
  if (!named) return fail_errno(errno, "cannot give the pool file its name", path_, report);
  if (new_journal_ != nullptr) new_journal_->keep();
  new_journal_.reset();
  return Status::ok;
}

Result<std::unique_ptr<PoolFile>> PoolFile::open(std::string_view path, const PoolOptions& options,
                                                 Report* report) {
  TENUTO_TRY(check_paths(options, path, report));
  // Before anything is replayed.
  TENUTO_TRY(check_sizes(options, path, report));
  std::unique_ptr<PoolFile> f(new PoolFile);
  f->path_ = path;
  f->real_path_ = real_path(f->path_);
  f->log_ = options.log;
  f->watched_ = watches(options);
  f->opened_to_read_ = options.read_only;
  f->health_.read_only.store(options.read_only, std::memory_order_relaxed);
  TENUTO_TRY(f->choose_protection(options, report));
  TENUTO_TRY(expect_regular(f->path_, report));
  // O_NONBLOCK: for a pipe that has just come. Regular files ignore it.
  const int access = options.read_only ? O_RDONLY : O_RDWR;
  change([&] { f->fd_ = open_file(f->path_, access | O_NONBLOCK); });
  if (f->fd_ < 0) return fail_errno(errno, "cannot open the pool file", path, report);
  struct stat st {};
  TENUTO_TRY(look_at_regular(f->fd_, f->path_, st, report));
  f->mode_ = st.st_mode & 0666;
  TENUTO_TRY(f->lock(!options.read_only, report));
  const auto file_bytes = static_cast<std::uint64_t>(st.st_size);
  TENUTO_TRY(f->read_superblock(file_bytes, report));
  TENUTO_TRY(f->choose_consistency(options, report));
  f->choose_medium(options);
  f->journal_place_ = f->journal_path(options.journal);
  TENUTO_TRY(check_journal_place(f->path_, f->real_path_, f->journal_place_, report));
  if (!f->was_clean_) TENUTO_TRY(f->check_old_journal(f->journal_place_, report));
  if (options.read_only && !f->was_clean_) {
    return fail(Status::read_only, report,
                "the pool was not closed cleanly and needs recovery; open it once for writing",
                f->path_);
  }
  // Reserved first, so that a pool that cannot be mapped is not replayed and begins no life.
  const auto reserve = [&] { return f->reserve_addresses(options.size_max, file_bytes, report); };
  const bool late = TENUTO_PLANT("pm_size_max_checked_after_replay");
  if (!late) TENUTO_TRY(reserve());
  TENUTO_TRY(f->open_journal(options, report));
  if (late) TENUTO_TRY(reserve());
  // Maps what the zone table has: after a crash during growth the file is longer.
  ZoneEntry last{};
  HeadPage head{};
  TENUTO_TRY(f->read_at(kHeadPageOffset, &head, sizeof head, "head page", report));
  if (head.zone_count == 0 || head.zone_count > kZonesMax) {
    return fail(Status::corrupt, report, "the number of zones is impossible",
                f->where({kHeadPageOffset + offsetof(HeadPage, zone_count)}, "zone count"),
                "1.." + std::to_string(kZonesMax), std::to_string(head.zone_count));
  }
  const auto at = kZoneTableOffset + (head.zone_count - 1) * sizeof(ZoneEntry);
  TENUTO_TRY(f->read_at(at, &last, sizeof last, "zone table", report));
  const bool inside = last.offset <= file_bytes && last.bytes <= file_bytes - last.offset;
  const bool whole_file = TENUTO_PLANT("pm_file_length_believed");
  const std::uint64_t pool_bytes = whole_file ? file_bytes : last.offset + last.bytes;
  if (!inside || pool_bytes < kPoolBytesMin) {
    return fail(Status::corrupt, report, "the file is shorter than its zones say: truncated?",
                f->where({at}, "zone table"), std::to_string(pool_bytes) + " bytes",
                std::to_string(file_bytes));
  }
  TENUTO_TRY(f->map(options, pool_bytes, report));
  TENUTO_TRY(f->check_zones(pool_bytes, report));
  f->keeps_tail_ = file_bytes > pool_bytes && f->tail_may_be_a_zone();
  return f;
}

// After a clean close the bits of all blocks are on media, as every variant has them then. So the
// superblock that says `running` may name another one.
Status PoolFile::choose_consistency(const PoolOptions& options, Report* report) {
  const Consistency wanted = options.consistency;
  if (options.canaries && !options.read_only && !canaries()) {
    return fail(Status::invalid_argument, report,
                "the pool was made without canaries, and its objects leave no room for them: open "
                "it as it is",
                path_);
  }
  if (wanted == Consistency::as_is || options.read_only || wanted == consistency_)
    return Status::ok;
  if (!was_clean_) {
    return fail(Status::invalid_argument, report,
                "the pool was not closed cleanly, so its consistency cannot change: open it as it "
                "is, close it, and open it again",
                path_, consistency_name(wanted), consistency_name(consistency_));
  }
  consistency_ = options.consistency;
  return Status::ok;
}

// A killed process may leave space behind the last zone, which no zone entry names yet. A clean
// close gives it back. So after one, or where there is an entry, the zone count may be damaged, and
// a rescue can read what is behind it.
bool PoolFile::tail_may_be_a_zone() const {
  if (TENUTO_PLANT("pm_tail_that_may_be_a_zone_cut")) return false;
  const std::size_t count = zone_count();
  return was_clean_ || (count < kZonesMax && zone(count).bytes != 0);
}

Status PoolFile::read_at(std::uint64_t offset, void* to, std::size_t bytes, std::string_view what,
                         Report* report) const {
  if (read_all(fd_, offset, to, bytes) == bytes) return Status::ok;
  const std::string place = where({offset}, what);
  if (errno != 0) return fail_errno(errno, "cannot read the pool file (pread)", place, report);
  return fail(Status::corrupt, report, "the file ends where the pool does not: truncated?", place);
}

Status PoolFile::check_zones(std::uint64_t pool_bytes, Report* report) {
  std::uint64_t next = 0;
  for (std::size_t i = 0; i < zone_count(); ++i) {
    const ZoneEntry& z = zone(i);
    const bool aligned = z.bytes % kHugeBytes == 0 && z.bytes != 0;
    if (z.offset != next || !aligned || z.bytes > pool_bytes - z.offset) {
      return fail(Status::corrupt, report, "a zone does not follow the one before it",
                  where({kZoneTableOffset + i * sizeof(ZoneEntry)}, "zone table"),
                  "offset " + std::to_string(next), "offset " + std::to_string(z.offset));
    }
    next = z.offset + z.bytes;
  }
  return Status::ok;
}

}  // namespace TENUTO_NS::pm
