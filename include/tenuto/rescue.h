// Rescue: copies what is left of a damaged pool to a new pool. The damaged file is mapped privately
// and never changes. A record is taken only if its own checksum is right.
//
// Collections keep their names and orders. A current record whose collection is unknown goes to the
// collection kLostAndFound.
//
// A record is *current* if the store would have found it. A rescue takes current records:
//   - those in leaves of the readable chain
//   - those in leaves that another readable leaf leads to
//   - after a clean close, also all records that the heap says are in use
// Other bytes may look like a record that was erased or replaced long ago. Such records are
// counted, and taken only with `scavenge`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tenuto/kv.h"

namespace TENUTO_NS {

struct RescueOptions {
  // Of the new pool. Its recovery_threads also read the damaged pool's journal.
  PoolOptions pool = {};
  // The journal that the damaged pool was left with. It is read, never written. Empty: the pool's
  // path with ".journal"; if that file is missing, or is not the journal of the pool's last open
  // for writing, the result has a loss. With a path the same is not_found or invalid_argument, and
  // there is no rescue.
  std::string journal = {};
  // Also takes records that may be old: only where keys are lost, and never in place of a current
  // record.
  bool scavenge = false;
  // bytes or u64, else invalid_argument: the order of the default collection, if the damaged pool
  // does not have it any more (a note says so).
  KeyOrder order_otherwise = KeyOrder::bytes;
};

// One place of damage that may have cost records.
struct RescueLoss {
  Report report;  // what and where
  // The keys that may be lost: from `from` (inclusive) to `to` (exclusive; none: to the last key).
  bool about_keys = false;
  std::string from;
  std::optional<std::string> to;
  std::string collection = {};  // "": the default collection
};

inline constexpr const char* kLostAndFound = "lost+found";
inline constexpr std::size_t kRescueLossesMax = 1000;  // so many are listed; all are counted

struct RescueResult {
  KeyOrder order = KeyOrder::bytes;  // of the default collection
  bool was_clean = false;
  std::optional<std::uint64_t> expected;  // records at the clean close, if known
  std::uint64_t records = 0;              // rescued, scavenged ones included
  std::uint64_t record_bytes = 0;         // their keys and values
  std::uint64_t scavenged = 0;
  std::uint64_t without_leaf = 0;  // of `records`: found only in the heap
  std::uint64_t unproven = 0;      // left out: it is unknown whether they are current
  std::uint64_t damaged = 0;       // entries of leaves without a sound record
  std::uint64_t leaves = 0;        // leaves read
  std::uint64_t collections = 0;   // in the new pool, with a name
  std::uint64_t rolled_back = 0;   // transactions that were open
  std::uint64_t losses_count = 0;
  std::vector<RescueLoss> losses;
  std::vector<Report> notes;  // damage that costs no record
};

// Rescues `damaged` into the new pool `fresh`.
//   ok         every record is in the new pool
//   corrupt    some records are lost; `result` has what is known of them
//   not_found  nothing usable was found, and no new pool was made; or there is no file `damaged`
//   not_a_pool, wrong_version, busy, permission, io  the damaged pool cannot be read
//   exists, full, ...                                the new pool cannot be written
// The new file gets its name when it is complete and durable. `report` has the details.
TENUTO_API Status rescue(std::string_view damaged, std::string_view fresh,
                         const RescueOptions& options, RescueResult& result,
                         Report* report = nullptr);

}  // namespace TENUTO_NS
