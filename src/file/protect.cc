// Metadata under a protection key: which frames of the pool have it. The layers that own the frames
// say so, when they come into service and before they are given back:
//
//   the head and each zone's own frames     Frames, at an open and a growth
//   later lane segments                     Lanes
//   log frames                              Heap
//   segments of the bookkeeping log         Book
//
// The mapping of a pool lasts as long as its PoolFile. So nothing takes the key from frames that
// stay metadata. A page that cannot be read is replaced by one without the key (pm/bus_error.h);
// from then on the pool writes nothing.
#include <cerrno>

#include "file/pool_file.h"
#include "pm/metadata_key.h"
#include "pm/os.h"
#include "pm/plant.h"

namespace TENUTO_NS::pm {

namespace {
bool wants_key(const PoolOptions& o) {
  return (o.protect_metadata || TENUTO_PLANT("pm_metadata_always_protected")) && !o.read_only;
}
}  // namespace

Status PoolFile::take_key(std::string_view path, const PoolOptions& options, Report* report) {
  if (!wants_key(options)) return Status::ok;
  const Status s = take_metadata_key(report);
  if (s != Status::ok && report != nullptr) report->where = path;
  return s;
}

Status PoolFile::choose_protection(const PoolOptions& options, Report* report) {
  TENUTO_TRY(take_key(path_, options, report));
  protects_ = wants_key(options);
  return Status::ok;
}

Status PoolFile::protect(PoolOffset o, std::uint64_t bytes, Report* report) {
  if (!protects_) return Status::ok;
  const int error = put_under_key(base_ + o.value, bytes);
  if (error != 0) {
    static_cast<void>(fail_errno(error, "metadata cannot be protected (pkey_mprotect)",
                                 where(o, "metadata"), report));
    return error == ENOMEM ? Status::full : Status::io;
  }
  protected_.fetch_add(bytes, std::memory_order_relaxed);
  return Status::ok;
}

bool PoolFile::unprotect(PoolOffset o, std::uint64_t bytes) {
  if (!protects_) return true;
  if (take_from_under_key(base_ + o.value, bytes) != 0) {
    leave_to_recovery(Unknown::key_kept);
    return false;
  }
  protected_.fetch_sub(bytes, std::memory_order_relaxed);
  return true;
}

}  // namespace TENUTO_NS::pm
