// What is left of a damaged pool, written to a new one. The damaged file is mapped privately and
// never changed; every record is taken by its own checksum.
//
// Collections come back with their names and orders. What is current but cannot be told whose it is
// goes to a collection of its own, kLostAndFound.
//
// A record is *current* when the store would have found it. Current records are rescued: those of
// leaves that hang together, those of leaves another readable leaf leads to, and, when the pool was
// closed cleanly, all that the heap says is in use. What only looks like a record, and may have
// been erased or replaced long ago, is left out, counted, and taken only with `scavenge`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tenuto/kv.h"

namespace TENUTO_NS {

struct RescueOptions {
  PoolOptions pool;  // of the new pool; its recovery_threads read the damaged one's journal, too
  // Where the damaged pool's journal is, if it was left with one; empty: its path with ".journal".
  // It is read, never written. One that is not there, or is not this pool's of this life, is a loss
  // beside the pool, and not_found or invalid_argument, and no rescue, where its place is given.
  std::string journal = {};
  // Take records, too, that may be old: where keys are lost, and never instead of a current one.
  bool scavenge = false;
  // Where the damaged pool does not say any more (a note tells): the kind of its keys.
  KeyKind key_kind_otherwise = KeyKind::bytes;
};

// One place of damage that may have cost records.
struct RescueLoss {
  Report report;  // what and where
  // The keys it is about: from (inclusive) to the key before `to`; without `to` to the last one.
  bool about_keys = false;
  std::string from;
  std::optional<std::string> to;
  std::string collection = {};  // "" is the default one
};

inline constexpr const char* kLostAndFound = "lost+found";
inline constexpr std::size_t kRescueLossesMax = 1000;  // listed; all are counted

struct RescueResult {
  KeyKind key_kind = KeyKind::bytes;
  bool was_clean = false;
  std::optional<std::uint64_t> expected;  // records at the clean close
  std::uint64_t records = 0;              // rescued, scavenged ones included
  std::uint64_t record_bytes = 0;
  std::uint64_t scavenged = 0;
  std::uint64_t without_leaf = 0;  // of `records`: found in the heap alone
  std::uint64_t unproven = 0;      // left out: nobody knows whether they are current
  std::uint64_t damaged = 0;       // entries of leaves that lead to no sound record
  std::uint64_t leaves = 0;        // read
  std::uint64_t collections = 0;   // that have a name
  std::uint64_t rolled_back = 0;   // transactions that were open
  std::uint64_t losses_count = 0;
  std::vector<RescueLoss> losses;
  std::vector<Report> notes;  // damage that costs no record
};

// ok: every record is in the new pool. corrupt: some are lost; `result` says what is known of
// them. not_found: nothing usable was found, and no new pool was made. Else the damaged pool cannot
// be read (not_found and not_a_pool, wrong_version, busy, permission, io) or the new one not be
// written (exists, full, ...), with a report.
Status rescue(std::string_view damaged, std::string_view fresh, const RescueOptions& options,
              RescueResult& result, Report* report = nullptr);

}  // namespace TENUTO_NS
