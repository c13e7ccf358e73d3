// A pool file mapped into memory: creation, opening, growth, closing, and the translation between
// offsets and addresses. Called by every layer above; recovery itself is theirs (store/open.cc).
//
// The whole size_max of address space is reserved once; growth maps more of the file into it, so
// addresses never move while the pool is open. The mapping may be shared or private: nothing
// above this file may assume that the file's bytes change with it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "pm/format.h"
#include "tenuto/pool.h"
#include "tenuto/status.h"
#include "tenuto/units.h"

namespace tenuto::inline TENUTO_ABI::pm {

// Writes the first state of zone 0 before the superblock makes the file a pool, and of each later
// zone before the zone count commits it.
using FormatZone = std::function<void(const ZoneEntry&, std::uint64_t head_bytes)>;

class PoolFile {
 public:
  // Creates, preallocates and maps the file and writes zone 0's entry, zeroed lanes and head page.
  // The superblock is written by seal_created(), so that a crash before leaves not_a_pool.
  static Result<std::unique_ptr<PoolFile>> create(std::string_view path, const PoolOptions& options,
                                                  Report* report);
  // Locks, validates and maps. Does not change the file.
  static Result<std::unique_ptr<PoolFile>> open(std::string_view path, const PoolOptions& options,
                                                Report* report);
  ~PoolFile();  // unmaps and unlocks, whatever the state

  // Writes the next superblock with this state; fenced. The last step of create and of a clean
  // close, and the first store of an open for writing. io when the write-back fails.
  Status set_state(PoolState state);

  // Appends a zone of at least `bytes` (more if the growth policy says so): extends the file,
  // maps, calls format, commits the entry. full at size_max or when the file system has no room.
  Result<ZoneEntry> grow(std::uint64_t bytes, const FormatZone& format);

  std::byte* base() const { return base_; }
  template <class T>
  T* at(PoolOffset o) const {
    return reinterpret_cast<T*>(base_ + o.value);
  }
  PoolOffset offset_of(const void* p) const {
    return {static_cast<std::uint64_t>(static_cast<const std::byte*>(p) - base_)};
  }
  bool contains(const void* p) const {
    const auto d = static_cast<const std::byte*>(p) - base_;
    return d >= 0 && static_cast<std::uint64_t>(d) < bytes();
  }
  // [o, o + n) lies behind the head and inside the file. For everything read from media.
  bool in_range(PoolOffset o, std::uint64_t n) const {
    const std::uint64_t end = bytes();
    return o.value >= kHeadBytes && o.value <= end && n <= end - o.value;
  }
  std::uint64_t bytes() const { return bytes_.load(std::memory_order_acquire); }
  std::uint64_t bytes_max() const { return bytes_max_; }

  HeadPage& head() const { return *at<HeadPage>({kHeadPageOffset}); }
  const ZoneEntry& zone(std::size_t i) const { return at<ZoneEntry>({kZoneTableOffset})[i]; }
  std::size_t zone_count() const;

  const std::string& path() const { return path_; }
  const Superblock& superblock() const { return super_; }
  bool was_clean() const { return was_clean_; }
  bool read_only() const { return read_only_.load(std::memory_order_relaxed); }
  // Damage was found or a write failed: from now on nothing is written. Sticky.
  void poison(Status why);
  Status poisoned() const { return poisoned_.load(std::memory_order_relaxed); }
  Medium medium() const { return medium_; }
  bool power_cut_safe() const { return medium_ == Medium::line; }
  void log(std::string_view text) const;
  // "path, offset 4096 (what)": the `where` of reports.
  std::string where(PoolOffset o, std::string_view what) const;

 private:
  PoolFile() = default;
  friend struct PoolFileMaker;

  // Constant after open.
  std::string path_;
  int fd_ = -1;
  std::byte* reserved_ = nullptr;  // what munmap gets
  std::uint64_t reserved_bytes_ = 0;
  std::byte* base_ = nullptr;  // 4-MiB aligned
  std::uint64_t bytes_max_ = 0;
  Medium medium_ = Medium::cache;
  bool map_sync_ = false;
  bool was_clean_ = true;
  std::function<void(std::string_view)> log_;
  // Atomic.
  std::atomic<std::uint64_t> bytes_ = 0;
  std::atomic<bool> read_only_ = false;
  std::atomic<Status> poisoned_ = Status::ok;
  // Guarded by grow_mu_.
  std::mutex grow_mu_;
  Superblock super_{};
};

}  // namespace tenuto::inline TENUTO_ABI::pm
