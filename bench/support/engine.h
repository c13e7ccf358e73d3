// The thin adapter between the benchmark and a store. A Session is one thread's access. Each call
// costs one virtual call, for every engine. A read returns the engine's own memory where possible
// (tenuto View, LMDB page, RocksDB PinnableSlice). The reader checks every byte.
//
// An engine is opened, used and closed in a child process of its own (turn.h), so its memory,
// threads and crashes are its own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/support/counters.h"

namespace bench {

struct EngineOptions {
  std::string dir;                        // an existing directory for the engine's files
  bool sync = false;                      // true: an acknowledged write survives a power cut
  std::string medium = "auto";            // tenuto only
  std::string journal_writes = "direct";  // on medium journal, see io_meter.h
  bool integer_keys = false;              // all keys are 8-byte big-endian integers
  bool compacted = false;                 // compact() comes after the load, outside its time
  unsigned threads = 1;
  std::uint64_t value_bytes = 100;  // typical
  std::uint64_t data_bytes = 0;     // upper bound of keys and values, for sizing caches and maps
  std::uint64_t memory_bytes = ~std::uint64_t{0};  // that the process may use

  // What an engine with a cache of its own gets: room for all data, but a third of the memory.
  std::uint64_t cache_bytes() const {
    constexpr std::uint64_t kLeast = 256u << 20;
    constexpr std::uint64_t kMost = 4ull << 30;
    const std::uint64_t wanted = std::clamp(2 * data_bytes, kLeast, kMost);
    return std::min(wanted, memory_bytes / 3);
  }
};

// Receives the records of a scan in order.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual void take(std::string_view key, std::string_view value) = 0;
};

struct KeyAndValue {
  std::string_view key;
  std::string_view value;
};
// The index of a key, and its value. The value is valid during the call.
using EachFound = std::function<void(std::size_t, std::string_view)>;

class Session {
 public:
  virtual ~Session() = default;
  // Returns true and a value that stays in place until release(); false if there is none.
  virtual bool read(std::string_view key, std::string_view& value) = 0;
  virtual void release() = 0;
  virtual bool write(std::string_view key, std::string_view value) = 0;  // insert or replace
  virtual bool erase(std::string_view key) = 0;  // false: not found (if the engine reports it)
  // Reads up to `count` records from the first key >= start. Returns how many there were.
  virtual std::uint64_t scan(std::string_view start, std::uint64_t count, Sink& sink) = 0;
  // Groups of operations. They use what the engine offers for several at once; here, nothing.
  // write_group returns false if a write failed; read_group skips keys that are not there.
  virtual bool write_group(std::span<const KeyAndValue> records) {
    bool all = true;
    for (const KeyAndValue& r : records) all = write(r.key, r.value) && all;
    return all;
  }
  virtual void read_group(std::span<const std::string_view> keys, const EachFound& each) {
    for (std::size_t i = 0; i < keys.size(); ++i) {
      std::string_view value;
      if (!read(keys[i], value)) continue;
      each(i, value);
      release();
    }
  }
};

class Engine {
 public:
  virtual ~Engine() = default;
  // Opens or creates the store in options.dir. Returns false on failure; error() has the reason.
  virtual bool open(const EngineOptions& options) = 0;
  virtual std::unique_ptr<Session> session() = 0;  // after open; destroy before close
  virtual bool close() = 0;
  virtual EngineCounters counters() { return {}; }
  virtual JournalCounters journal_counters() { return {}; }
  // The medium in use, also for `auto`; empty for engines without media. REQUIRES: open.
  virtual std::string medium() { return {}; }
  // What the tables must say of this turn, beside the settings; empty: nothing. REQUIRES: open.
  virtual std::string note() { return {}; }
  // Brings the records into the order in which scans are fastest, if the engine has a call for
  // that.
  virtual bool compact() { return true; }
  // The store's own check; true if it has none.
  virtual bool validate() { return true; }
  const std::string& error() const { return error_; }

 protected:
  std::string error_;
};

struct EngineKind {
  const char* name;
  std::unique_ptr<Engine> (*make)();
  // The guarantee and the settings as text, printed with the figures.
  std::string (*settings)(const EngineOptions&);
  bool file_writes_are_all;  // everything it writes goes through write(2)
  bool holds_data = true;    // false: keeps nothing and answers every call, so nothing is checked
  bool has_media = false;    // --medium applies to it
  // Its data end with the process: a bound, which takes part in nothing that opens again or syncs.
  bool is_volatile = false;
  bool writes_after_reopen = true;  // false: after it is opened again it must only read
};

// All engines, tenuto first. `null` does nothing: its figures are the limit of the client. `bare`
// only writes: its figures are the limit of the device.
std::span<const EngineKind> engine_kinds();
const EngineKind* find_engine(std::string_view name);
// Those of `names` that this build has: one whose package was not there is left out.
std::vector<std::string> engines_of(std::initializer_list<const char*> names);

// A factory for each adapter; defined in engine_<name>.cc.
std::unique_ptr<Engine> make_tenuto();
std::unique_ptr<Engine> make_fptree_tenuto();
std::unique_ptr<Engine> make_fptree_tenuto_versioned();
std::unique_ptr<Engine> make_fptree_pmdk();
std::unique_ptr<Engine> make_rocksdb();
std::unique_ptr<Engine> make_lmdb();
std::unique_ptr<Engine> make_lmdb_large();
std::unique_ptr<Engine> make_leveldb();
std::unique_ptr<Engine> make_wiredtiger();
std::unique_ptr<Engine> make_sqlite();
std::unique_ptr<Engine> make_absl_btree();
std::unique_ptr<Engine> make_std_map();
std::unique_ptr<Engine> make_tbb_map();
std::unique_ptr<Engine> make_bare();
std::unique_ptr<Engine> make_null();
std::string tenuto_settings(const EngineOptions&);
std::string fptree_tenuto_settings(const EngineOptions&);
std::string fptree_tenuto_versioned_settings(const EngineOptions&);
std::string fptree_pmdk_settings(const EngineOptions&);
std::string rocksdb_settings(const EngineOptions&);
std::string lmdb_settings(const EngineOptions&);
std::string lmdb_large_settings(const EngineOptions&);
std::string leveldb_settings(const EngineOptions&);
std::string wiredtiger_settings(const EngineOptions&);
std::string sqlite_settings(const EngineOptions&);
std::string absl_btree_settings(const EngineOptions&);
std::string std_map_settings(const EngineOptions&);
std::string tbb_map_settings(const EngineOptions&);
std::string bare_settings(const EngineOptions&);
std::string null_settings(const EngineOptions&);

}  // namespace bench
