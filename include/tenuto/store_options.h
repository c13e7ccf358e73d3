// What a store can be told when it is opened, of a write, and what it tells of itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tenuto/pool.h"
#include "tenuto/status.h"

namespace TENUTO_NS {

inline constexpr std::size_t kKeyBytesMax = 64u << 10;

enum class KeyKind : std::uint8_t {
  bytes = 1,  // any bytes, 0..64 KiB
  u64 = 2,    // 8-byte integers, ordered by number; pass them through u64_key()
};

// The byte form of an integer key: big-endian, so that byte order is number order.
struct U64Key {
  char bytes[8];
  operator std::string_view() const { return {bytes, sizeof bytes}; }
};
constexpr U64Key u64_key(std::uint64_t n) {
  U64Key k{};
  for (int i = 0; i < 8; ++i) k.bytes[i] = static_cast<char>(n >> (56 - 8 * i));
  return k;
}

// io from a write of any kind on medium journal: it is done and seen by all, but not known to be
// durable (Pool::health says whether the journal failed for good). After any other failure nothing
// was done.
struct WriteOptions {
  Durability durability = Durability::sync;
  // Of a put into a collection whose records expire: in how many milliseconds. 0: it stays.
  // invalid_argument in other collections. Batches and transactions say it for each put,
  // and refuse it here, too.
  // Time: a snapshot and a transaction see what had not expired at their moment, for as long as
  // they last; a commit is a conflict when a record that it read has expired since. Time does not
  // go back: with the clock set back it stands still, so nothing comes back, and what is put
  // meanwhile stays longer. Across lives it does not go back behind the last close, or, after a
  // crash, behind what the reclaimer noted, about every second. A clock far ahead is doubted
  // (StoreOptions::clock_jump_ms_max), so a wrong one that is set right, and the store opened
  // again, has destroyed nothing; what was given a lifetime meanwhile has one by the wrong clock. A
  // backup and a rescue know the time that their source knew.
  std::uint64_t ttl_ms = 0;
};

// Gives keys an order of the user's: encode makes bytes of a key whose order (memcmp, shorter
// first) is the order wanted, decode makes the key again; both append nothing and return false when
// they are given what is no key. They are called on all threads at once, must always do the same,
// and their encodings differ where keys do. Not a function that compares: the index works on bytes,
// and recovery, validation and rescue run without anybody's code.
struct KeyCodec {
  std::string name;  // 1..63 bytes; stored with the collections that use it
  std::function<bool(std::string_view key, std::string& encoded)> encode;
  std::function<bool(std::string_view encoded, std::string& key)> decode;
};

struct StoreOptions {
  PoolOptions pool;  // size, growth, medium, read_only ...
  bool create_if_missing = true;
  bool error_if_exists = false;       // Status::exists when the file is there
  KeyKind key_kind = KeyKind::bytes;  // of a new store; an existing one keeps its own
  bool check_key_kind = false;        // invalid_argument when an existing store's kind differs
  // Each record that get, view or an iterator hands out is compared with its checksum, so that what
  // the medium changed is corrupt and never a wrong value. false: only what cannot be a record at
  // all is noticed.
  bool verify_reads = true;
  // The oldest snapshots expire when all old versions together hold more than this back, or when
  // they are older than that. 0: unbounded. See tenuto/snapshot.h.
  std::uint64_t snapshot_bytes_max = 0;
  std::uint64_t snapshot_age_ms_max = 0;
  // Orders that collections may name (CollectionOptions::codec). A collection whose codec is
  // missing cannot be opened, and stays what it is.
  std::vector<KeyCodec> codecs = {};
  // Records that expired are reclaimed by a thread of the store's own, which runs only where a
  // collection has such records: so often, so many looked at each time. 0: by Store::reclaim alone.
  std::uint64_t reclaim_every_ms = 1000;
  std::uint64_t reclaim_at_once = 10'000;
  // The time that decides what has expired, in milliseconds since 1970. Empty: the system's. Called
  // by all threads at once, also under locks: it must not call the store.
  std::function<std::uint64_t()> clock_ms = {};
  // A clock that is ahead of the time this store last knew by more than this and the time that has
  // passed, at open or later, is doubted and logged: what expires by it is hidden, and nothing is
  // reclaimed by it before it has stood for clock_confirm_ms (WriteOptions::ttl_ms). 0: it is
  // believed.
  std::uint64_t clock_jump_ms_max = 24 * 3600 * 1000ull;
  std::uint64_t clock_confirm_ms = 3600 * 1000ull;
};

// Up to rebuild_ms: of the default collection.
struct StoreStats {
  std::uint64_t records = 0;
  std::uint64_t record_bytes = 0;  // keys and values
  std::uint64_t leaves = 0;
  std::uint64_t inner_nodes = 0;  // DRAM
  std::uint64_t height = 0;       // inner levels
  std::uint64_t index_dram_bytes = 0;
  double rebuild_ms = 0;        // of the last open
  std::uint64_t snapshots = 0;  // active ones, of transactions and iterators, too
  std::uint64_t snapshot_oldest_age_ms = 0;
  std::uint64_t snapshot_versions = 0;  // old versions held
  std::uint64_t snapshot_bytes = 0;     // in them: records in the pool, and some DRAM
  std::uint64_t snapshots_expired = 0;  // since open
  // Replaced, erased or moved, in all open collections, and not free yet: store/README.md says for
  // whom it waits, and how much it can be.
  std::uint64_t retired_items = 0;
  std::uint64_t retired_bytes = 0;  // of the pool
  PoolStats pool;
};

struct CompactOptions {
  std::uint64_t moves_max = 0;  // about so many records and leaves at most; 0: no bound
  // Slabs (64 KiB of one size class) of which less is in use are emptied. Above 0, at most 1.
  double occupancy = 0.7;
};

struct CompactStats {
  std::uint64_t bytes_before = 0, bytes_after = 0;  // blocks that the file has on its file system
  std::uint64_t records_moved = 0, leaves_moved = 0;
  std::uint64_t leaves_merged = 0;  // into their left neighbours
  std::uint64_t slabs_emptied = 0;
  bool complete = false;  // nothing was left undone because of moves_max, a full pool or others
};

}  // namespace TENUTO_NS
