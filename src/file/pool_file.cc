// Mapping and growth of an open pool file. file/open.cc has how it is opened, file/super.cc its
// state.
//
// Authoritative: a zone belongs to the pool once zone_count covers its entry. The entry and the
// zone's first state are fenced before.
#include "file/pool_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <thread>
#include <utility>

#include "journal/capture.h"
#include "journal/journal.h"
#include "pm/assert.h"
#include "pm/crc32c.h"
#include "pm/media.h"
#include "pm/metadata_key.h"
#include "pm/not_cancelled.h"
#include "pm/os.h"
#include "pm/plant.h"
#include "pm/trace.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::pm {

namespace {
// Growth takes less than it would like to if so much of that is prepared.
constexpr std::uint64_t kPartPrepared = 4;
constexpr int kReasonMsMax = 1000;
}  // namespace

PoolFile::PoolFile() { join(); }

PoolFile::~PoolFile() {
  if (base_ != nullptr) {
    trace_unmap(base_);
    unregister_region(base_);
    forget_bus_errors(base_);
  }
  journal_.reset();
  change([this] {  // nothing is mapped there any more
    shared_ = false;
    partly_shared_.store(false);
  });
  if (reserved_ != nullptr) give_back_addresses();
  if (!unnamed_.empty()) remove_name(unnamed_, fd_);
  change([this] {
    // Unlocks explicitly: a child in which no handler ran still has the descriptor.
    const int locked = lock_fd_ >= 0 ? lock_fd_ : fd_;
    if (locked >= 0 && !forked()) unlock_file(locked);
    close_all({&lock_fd_, &fd_});
  });
  part();
}

Status PoolFile::lock(bool exclusive, Report* report) {
  const std::string& name = unnamed_.empty() ? path_ : unnamed_;
  change([&] { lock_fd_ = reopen_file(fd_, name, exclusive ? O_RDWR : O_RDONLY); });
  // If that fails, a child may keep the lock of a parent that was killed.
  return lock_file(lock_fd_ >= 0 ? lock_fd_ : fd_, exclusive, path_, report);
}

// Sets the health too. So a call that did not compare the process returns Status::io or forked, and
// never ok.
void PoolFile::let_go() {
  close_all({&lock_fd_, &fd_});
  health_.bad_page.store(~std::uint64_t{0}, std::memory_order_relaxed);
  health_.poisoned.store(Status::forked, std::memory_order_relaxed);
  health_.read_only.store(true, std::memory_order_relaxed);
  if ((shared_ || partly_shared_.load()) && base_ != nullptr) {
    static_cast<void>(::mprotect(base_, bytes(), PROT_READ));
  }
}

Status PoolFile::map_file(std::uint64_t from, std::uint64_t to) {
  // Not read_only(): a pool that turns read-only while it grows is still stored to in memory.
  const int prot = opened_to_read_ ? PROT_READ : PROT_READ | PROT_WRITE;
  int flags = map_sync_ ? MAP_SHARED_VALIDATE | MAP_SYNC : MAP_SHARED;
  if (journal_ != nullptr) flags = MAP_PRIVATE | MAP_NORESERVE;  // only the journal writes the file
  void* p = ::mmap(base_ + from, to - from, prot, flags | MAP_FIXED, fd_, static_cast<off_t>(from));
  if (p == MAP_FAILED) return status_of_errno(errno);
  // Constant from the first call on: other threads read it while the pool grows.
  if (from == 0) shared_ = journal_ == nullptr && !kTraced;
  if (large_pages_) ::madvise(p, to - from, MADV_HUGEPAGE);  // a refusal only costs speed
  ready_.store(std::max(to, ready_.load(std::memory_order_relaxed)), std::memory_order_relaxed);
  bytes_.store(to, std::memory_order_release);
  return Status::ok;
}

Status PoolFile::share(PoolOffset o, std::uint64_t bytes, Report* report) {
  if (journal_ == nullptr) return Status::ok;
  // First, so that no checkpoint writes an older line image over a store.
  TENUTO_TRY(journal_->leave_to_kernel(o.value / kLineBytes, bytes / kLineBytes));
  partly_shared_.store(true);
  void* p = ::mmap(base_ + o.value, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd_,
                   static_cast<off_t>(o.value));
  if (p == MAP_FAILED) {
    return fail_errno(errno, "cannot map the zone of records", where(o, "zone"), report);
  }
  // Records lie in no order that a reader follows.
  ::madvise(p, bytes, MADV_RANDOM);
  return Status::ok;
}

std::uint64_t PoolFile::epoch() const { return journal_ == nullptr ? 0 : journal_->epoch(); }

std::uint64_t PoolFile::durable_epoch() const {
  return journal_ == nullptr ? 0 : journal_->durable_epoch();
}

void PoolFile::choose_medium(const PoolOptions& options) {
  in_memory_ = is_in_memory(fd_);
  map_sync_ = grants_map_sync(fd_);
  medium_ = options.medium;
  if (medium_ == Medium::automatic) {
    medium_ = map_sync_ ? Medium::line : in_memory_ ? Medium::cache : Medium::journal;
    if (TENUTO_PLANT("pm_automatic_takes_less_in_silence") && !map_sync_) medium_ = Medium::cache;
  }
  // The explorer records a shared mapping, and a crash keeps what was flushed. On `cache` the heap
  // does without some flushes: only who asks for it gets it.
  if (kTraced && (options.medium == Medium::automatic || medium_ == Medium::journal)) {
    medium_ = Medium::line;
  }
  medium_to_write_ = medium_;
  // On a disk the advice makes the file system take large pages, and a store to a block that is
  // there is a SIGBUS where such a page also has a hole and the file system is full. On the journal
  // the program's stores do not reach the file.
  const bool kept_apart = medium_ == Medium::journal || TENUTO_PLANT("pm_large_pages_on_a_disk");
  large_pages_ = options.large_pages && (in_memory_ || map_sync_ || kept_apart);
  // A read-only pool is never written to.
  if (medium_ == Medium::journal && options.read_only) medium_ = Medium::cache;
}

Status PoolFile::map(const PoolOptions& options, std::uint64_t bytes, Report* report) {
  if (const Status s = map_file(0, bytes); s != Status::ok) {
    return fail_errno(errno, "cannot map the pool file", path_, report);
  }
  if (journal_ != nullptr) {
    const auto failed = [this](const Report& why) { poison(Status::io, why); };
    TENUTO_TRY(journal_->start(base_, &health_, failed, report));
  }
  if (!power_cut_safe() && !opened_to_read_) {
    log(in_memory_ ? "the pool is in memory: it survives a crash of the process, not a power cut"
                   : "this file system grants no synchronous mapping: the pool survives a crash "
                     "of the process, but a power cut while it is open may damage it");
  }
  TENUTO_TRY(register_mapping(options, report));
  trace_map(base_, bytes, fd_);
  return Status::ok;
}

Status PoolFile::register_mapping(const PoolOptions& options, Report* report) {
  if (!register_region(base_, bytes_max_, medium_, options.model_delays, journal_.get())) {
    return fail(Status::full, report,
                "this process has as many pools open as there may be: close another one first",
                path_, "fewer than " + std::to_string(kRegionsMax));
  }
  if (options.catch_bus_errors) catch_bus_errors(base_, bytes_max_, health_);
  return Status::ok;
}

Result<ZoneEntry> PoolFile::grow(std::uint64_t bytes_needed, const FormatZone& format, GrowBy by) {
  const MetadataOpen rights;
  TENUTO_TRY(writable());
  Report why;
  Status now = Status::ok;
  std::unique_lock lock(grow_mu_);
  const std::uint64_t least = round_up(bytes_needed, kHugeBytes);
  const std::uint64_t want = by == GrowBy::need ? least : std::max(growth_bytes(), least);
  Result<ZoneEntry> zone = grow_locked(least, want, format, now, why);
  if (by == GrowBy::need) return zone;
  // A call asks for space in several ways, and a program calls again.
  const bool told = std::exchange(growth_told_, now) == now;
  // Without the lock: the program's function may fork, and a fork waits for a thread that waits for
  // the lock (prepare).
  if (!TENUTO_PLANT("pm_growth_logged_under_its_lock")) lock.unlock();
  if (!why.what.empty() && !told) log("the pool cannot grow: " + why.what);
  return zone;
}

// What a call that wanted space returns. Whatever the system refused it for (a limit of the
// process, a file that may not be changed), nothing is lost, and the pool is as usable as a full
// one. Only a journal that has failed is more.
Status PoolFile::refused_space(Status why) const {
  const bool harmless = journal_ == nullptr || journal_->status() == Status::ok;
  return why != Status::ok && harmless ? Status::full : why;
}

// REQUIRES: grow_mu_. `told` gets what the log is to say, `reason` the status of that.
Result<ZoneEntry> PoolFile::grow_locked(std::uint64_t least, std::uint64_t want,
                                        const FormatZone& format, Status& reason, Report& told) {
  const std::size_t count = zone_count();
  const std::uint64_t old_bytes = bytes();
  if (count == kZonesMax) return Status::full;
  const std::uint64_t room = bytes_max_ - std::min(bytes_max_, old_bytes);
  if (least > room) return Status::full;
  const std::uint64_t prepared = prepared_bytes();
  const bool enough = prepared >= least && prepared >= want / kPartPrepared;
  if (enough) want = std::min(want, prepared);
  // Another program may have cut it off.
  const bool there =
      enough && (file_reaches(old_bytes + want) || TENUTO_PLANT("pm_prepared_space_believed"));
  changes_ += 1;
  Report why;
  // A reservation that fails for want of space keeps the blocks it found by then. No later call
  // would ask for them, so they are given back.
  const auto give_back = [&] {
    if (!TENUTO_PLANT("pm_grow_keeps_failed_space")) cut_to(old_bytes);
  };
  Status s = Status::ok;
  if (!there) s = reserve_space(fd_, old_bytes, old_bytes + want, path_, &why);
  if (s != Status::ok && want != least) {
    // The file system cannot give what the policy wants: try only what is needed.
    give_back();
    want = least;
    s = reserve_space(fd_, old_bytes, old_bytes + want, path_, &why);
  }
  // After a power cut the line images in the journal need the new space.
  if (s == Status::ok && journal_ != nullptr) s = journal_->sync_pool(&why);
  if (s == Status::ok) {
    s = map_file(old_bytes, old_bytes + want);
    if (s != Status::ok) static_cast<void>(fail_errno(errno, "cannot map the new space", {}, &why));
  }
  if (s != Status::ok) {
    give_back();
    told = std::move(why);
    reason = s;
    return refused_space(s);
  }
  trace_map(base_, old_bytes + want, fd_);

  const ZoneEntry zone{old_bytes, want};
  format(zone, 0);
  // A page that could not be written is gone: the zone has no sound beginning.
  if (!TENUTO_PLANT("pm_zone_with_bad_pages_counted")) TENUTO_TRY(bad_pages());
  auto& entry = at<ZoneEntry>({kZoneTableOffset})[count];
  if (TENUTO_PLANT("pm_zone_counted_before_its_entry")) publish(head().zone_count, count + 1);
  entry = zone;
  flush(entry);
  fence("zone and its entry", "zone count");
  publish(head().zone_count, count + 1);
  fence("zone count", "zone is used");
  return zone;
}

std::size_t PoolFile::zone_count() const {
  const MetadataOpen rights;
  return __atomic_load_n(&head().zone_count, __ATOMIC_ACQUIRE);
}

void PoolFile::poison(Status why, const Report& report) {
  Status none = Status::ok;
  bool first = false;
  {
    const std::lock_guard lock(poison_mu_);  // whoever sees the status finds the reason
    first = health_.poisoned.compare_exchange_strong(none, why, std::memory_order_relaxed);
    health_.read_only.store(true, std::memory_order_relaxed);  // before texts, which need memory
    if (first) poison_ = report;
  }
  if (!first) return;
  log("the pool turned read-only: " +
      (report.what.empty() ? std::string(status_name(why)) : report.text()));
}

Status PoolFile::damaged(PoolOffset at, const char* what) {
  {
    const std::lock_guard lock(poison_mu_);
    Status none = Status::ok;
    health_.read_only.store(true, std::memory_order_relaxed);  // before texts, which need memory
    if (health_.poisoned.compare_exchange_strong(none, Status::corrupt)) damage_ = {at, what};
  }
  log(where(at, what) + ": damaged; the pool is read-only now");
  return Status::corrupt;
}

Status PoolFile::say_forked(Report* report) const {
  return fail(Status::forked, report,
              "the pool belongs to the process that this one was forked from: open it anew here "
              "once it was closed there",
              path_);
}

Status PoolFile::health(Report* report) const {
  if (forked()) return say_forked(report);
  TENUTO_TRY(bad_pages(report));
  // A journal that fails says so to writers before it has turned the pool read-only.
  const auto reason_comes = [this] {
    return poisoned() == Status::ok && journal_ != nullptr && journal_->status() != Status::ok;
  };
  const NotCancelled whole;
  for (int ms = 0; ms < kReasonMsMax && reason_comes(); ++ms) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const Status s = poisoned();
  if (s == Status::ok) return s;
  const std::lock_guard lock(poison_mu_);
  if (damage_.what != nullptr) {
    return fail(s, report, "damage was found, so the pool is read-only",
                where(damage_.at, damage_.what));
  }
  if (!poison_.what.empty()) {
    if (report != nullptr) *report = poison_;
    return s;
  }
  return fail(s, report, "the pool turned read-only: damage was found, or a write failed", path_);
}

Status PoolFile::failed(Status s, Report* report, std::string what, std::string where) const {
  if (report == nullptr) return s;
  if (s == Status::full) {
    what += ": there is no room in the pool (PoolOptions::size_max) or on its file system";
  }
  Report why;
  const bool told = ((s == Status::corrupt || s == Status::io) && health(&why) == s) ||
                    (s == Status::read_only && writable(&why) == s);
  if (!told) return fail(s, report, std::move(what), std::move(where));
  return fail(s, report, what + ": " + why.what, why.where, why.expected, why.found);
}

Status PoolFile::bad_pages_found(Report* report) const {
  if (forked()) return say_forked(report);
  Report local;
  Report* r = report != nullptr ? report : &local;
  const std::uint64_t at = health_.bad_page.load() - 1;
  static_cast<void>(fail(
      Status::io, r,
      "a page of the pool cannot be read or written: was the file cut short, is its file system "
      "full, or did its device fail? Close the pool, look to that, and open it again",
      where({at}, "first of " + std::to_string(health_.bad_pages.load()) + " bad accesses")));
  if (!told_.exchange(true)) log(r->text());
  return Status::io;
}

void PoolFile::copy_out(PoolOffset o, void* to, std::size_t bytes) const {
  const NotCancelled whole;
  if (shared_ &&
      ::pread(fd_, to, bytes, static_cast<off_t>(o.value)) == static_cast<ssize_t>(bytes)) {
    return;
  }
  copy_mapped(o, to, bytes);
}

void PoolFile::copy_mapped(PoolOffset o, void* to, std::size_t bytes) const {
  // Each word is read once: the file may be cut short between a check and a use.
  const auto* from = at<std::uint64_t>(o);
  auto* words = static_cast<std::uint64_t*>(to);
  for (std::size_t i = 0; i < bytes / 8; ++i)
    words[i] = __atomic_load_n(&from[i], __ATOMIC_RELAXED);
}

Status PoolFile::why_read_only() const {
  const Status why = poisoned();
  return why == Status::ok ? Status::read_only : why;
}

Status PoolFile::say_read_only(Report* report) const {
  const Status why = health(report);
  return why != Status::ok ? why
                           : fail(Status::read_only, report, "the pool is open read-only", path_);
}

void PoolFile::log(std::string_view text) const {
  const MetadataClosed closed;
  if (log_) log_(path_ + ": " + std::string(text));
}

std::string PoolFile::where(PoolOffset o, std::string_view what) const {
  return path_ + ", offset " + std::to_string(o.value) + " (" + std::string(what) + ")";
}

}  // namespace TENUTO_NS::pm
