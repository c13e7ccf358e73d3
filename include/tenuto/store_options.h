// Options of a store, of a write and of a compaction, and their statistics.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tenuto/pool.h"
#include "tenuto/status.h"

namespace TENUTO_NS {

inline constexpr std::size_t kKeyBytesMax = 64u << 10;

// How a collection orders its keys.
enum class KeyOrder : std::uint8_t {
  bytes = 1,        // memcmp; a prefix comes before the longer key
  u64 = 2,          // 8-byte integers by number; u64_key() makes them
  reverse = 3,      // the reverse of bytes; costs nothing
  reverse_u64 = 4,  // the reverse of u64
  registered = 5,   // the order of a KeyCodec in StoreOptions::codecs
};
constexpr bool is_of_integers(KeyOrder order) {
  return order == KeyOrder::u64 || order == KeyOrder::reverse_u64;
}

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
// The number of such a key, for example of an iterator's. nullopt: it does not have 8 bytes.
constexpr std::optional<std::uint64_t> u64_of_key(std::string_view key) {
  if (key.size() != 8) return std::nullopt;
  std::uint64_t n = 0;
  for (const char c : key) n = n << 8 | static_cast<unsigned char>(c);
  return n;
}

// Options of every write. io from a write of any kind: the journal failed, or a page of the pool
// could not be read or written (Pool::health has the reason). The write during which this happened
// may be done and seen by all threads, but is not known to be durable. Later writes return io too,
// and do nothing. After any other failure nothing was done.
struct WriteOptions {
  Durability durability = Durability::sync;
  // The lifetime of a put, in milliseconds, in a collection whose records expire. 0: the record
  // does not expire. invalid_argument in other collections. Batches and transactions have a
  // lifetime for each put; with one here they return invalid_argument.
  //
  // Time of the store:
  //   - A snapshot or transaction sees a record that had not expired at its time, as long as it is
  //     active. A commit is a conflict if a record that it read has expired since.
  //   - Time never goes back. If the clock is set back, the store's time stands still until the
  //     clock has caught up; from a minute on it logs this. What has expired stays so, and what is
  //     put meanwhile lives longer.
  //   - The next open starts at or after the time of the last clean close; after a crash, at or
  //     after the time that the reclaimer saved, about once a second.
  //   - A clock that is far ahead is doubted (StoreOptions::clock_jump_ms_max). It destroys nothing
  //     if it is set right and the store is opened again, but what a put, batch or transaction was
  //     told to replace or erase. Lifetimes that were given meanwhile are those of the wrong clock.
  //     Set it right before the next open: one whose clock is at least clock_confirm_ms beyond a
  //     doubted time confirms that time, as if the store had been closed meanwhile.
  //   - A backup and a rescue keep the time of their source.
  std::uint64_t ttl_ms = 0;
};

// A user's order of keys. encode turns a key into bytes whose order (memcmp, shorter first) is the
// wanted one. decode turns these bytes into the key again. Each writes its result to the string,
// which is empty before. Given something that is no key, it writes nothing and returns false.
// Different keys have different encodings, and a key always has the same. All threads call them at
// once. There is no function that compares keys: the index works on bytes, so recovery, validation
// and rescue need no code of the user.
struct KeyCodec {
  std::string name;  // 1..63 bytes; stored with the collections that use it
  std::function<bool(std::string_view key, std::string& encoded)> encode;
  std::function<bool(std::string_view encoded, std::string& key)> decode;
};

struct StoreOptions {
  PoolOptions pool = {};  // size, growth, medium, read_only and more
  bool create_if_missing = true;
  bool error_if_exists = false;  // Status::exists when there is a pool file already
  // bytes or u64, else invalid_argument: the order of a new store's default collection. An existing
  // one keeps its own.
  KeyOrder order = KeyOrder::bytes;
  bool check_order = false;  // invalid_argument when an existing store has another order
  // get, view and iterators compare each record with its checksum. So a record that the medium
  // changed is corrupt, and never a wrong value. false: they detect only bytes that cannot be a
  // record at all.
  bool verify_reads = true;
  // DRAM for the lookup cache: a table of where the records of recently read keys are, which spares
  // get, view, contains and multi_get the way through the index. A collection that is read gets
  // one, of 16 to 32 bytes for each of its records, if that is at most half of what the others have
  // left of these bytes. 0: no cache.
  std::uint64_t lookup_cache_bytes = 256ull << 20;
  // The oldest snapshots expire when all old versions together hold more than so many bytes, or
  // when they are older than so many milliseconds. 0: unbounded. See tenuto/snapshot.h.
  std::uint64_t snapshot_bytes_max = 0;
  std::uint64_t snapshot_age_ms_max = 0;
  // The codecs that collections may name (CollectionOptions::codec). A collection whose codec is
  // missing cannot be opened. It is unchanged, and later opens with the codec can use it.
  std::vector<KeyCodec> codecs = {};
  // A thread of the store reclaims expired records. It runs only if a collection has lifetimes.
  // Every reclaim_every_ms milliseconds, but at least once a year, it looks at up to
  // reclaim_at_once records. reclaim_every_ms 0: there is no thread, only Store::reclaim.
  std::uint64_t reclaim_every_ms = 1000;
  std::uint64_t reclaim_at_once = 10'000;
  // The clock that decides what has expired, in milliseconds since 1970. Empty: the system's. All
  // threads call it at once, also under locks, so it must not call the store.
  std::function<std::uint64_t()> clock_ms = {};
  // The store doubts the clock if, at open or later, the clock is ahead of the time the store last
  // knew by more than clock_jump_ms_max plus the time that has passed. It logs this. Records that
  // expire by a doubted clock are hidden, but nothing is reclaimed by it until it has been right
  // for clock_confirm_ms, or a later open finds it so (WriteOptions::ttl_ms). clock_jump_ms_max 0:
  // every clock is believed.
  std::uint64_t clock_jump_ms_max = 24 * 3600 * 1000ull;
  std::uint64_t clock_confirm_ms = 3600 * 1000ull;
};

// The fields up to rebuild_ms are of the default collection.
struct StoreStats {
  std::uint64_t records = 0;
  std::uint64_t record_bytes = 0;  // keys and values (CollectionStats::record_bytes)
  std::uint64_t leaves = 0;
  std::uint64_t shadow_leaves = 0;       // leaves with a part in DRAM: read since the open
  std::uint64_t inner_nodes = 0;         // DRAM
  std::uint64_t height = 0;              // inner levels
  std::uint64_t index_dram_bytes = 0;    // without the lookup cache
  std::uint64_t lookup_cache_bytes = 0;  // DRAM, now
  double rebuild_ms = 0;                 // time of building the index at the last open
  std::uint64_t snapshots = 0;           // active, those of transactions and iterators included
  std::uint64_t snapshot_oldest_age_ms = 0;
  std::uint64_t snapshot_versions = 0;  // old versions held
  std::uint64_t snapshot_bytes = 0;     // held by them: records in the pool, and some DRAM
  std::uint64_t snapshots_expired = 0;  // since open
  // Garbage of all open collections: replaced, erased or moved, and not free yet. "Limits" in
  // store/README.md has what it waits for, and its bound.
  std::uint64_t retired_items = 0;
  std::uint64_t retired_bytes = 0;  // in the pool
  PoolStats pool;
};

struct CompactOptions {
  std::uint64_t moves_max = 0;  // about so many moved records and leaves at most; 0: no bound
  // Slabs (64 KiB of one size class) are emptied when less than this part is in use. 0 < it <= 1.
  double occupancy = 0.7;
  // Asked between steps of some leaves; true: the compaction ends there, sound and incomplete.
  std::function<bool()> stop = {};
  // Empties every slab instead, and so writes each leaf, and each record of up to 16,256 bytes with
  // its key, anew in the order of their keys. Walks then find neighbours on the same pages. Needs
  // as much room again as the records take, which it gives back at the end. REQUIRES: moves_max
  // is 0.
  bool in_key_order = false;
};

struct CompactStats {
  std::uint64_t bytes_before = 0, bytes_after = 0;  // of the file on its file system
  std::uint64_t records_moved = 0, leaves_moved = 0;
  std::uint64_t leaves_merged = 0;  // into their left neighbours
  std::uint64_t slabs_emptied = 0;
  bool complete = false;  // false: moves_max, stop, a full pool or other threads left some undone
};

}  // namespace TENUTO_NS
