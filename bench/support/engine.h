// The thin adapter between the benchmark and a store. A Session is one thread's way in; each call
// costs the same one virtual call for every engine. Reads hand out the engine's own memory where it
// can (tenuto View, LMDB page, RocksDB PinnableSlice); whoever reads checks every byte.
//
// An engine is opened, used and closed in a child process of its own (contest.h), so that its
// memory, threads and crashes are its own.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "bench/support/counters.h"

namespace bench {

struct EngineOptions {
  std::string dir;              // exists; the engine puts its files here
  bool sync = false;            // true: a write is acknowledged when it survives a power cut
  std::string medium = "auto";  // tenuto only
  std::string journal_writes = "direct";  // on medium journal, see io_meter.h
  bool integer_keys = false;              // all keys are 8-byte big-endian integers
  unsigned threads = 1;
  std::uint64_t value_bytes = 100;  // typical
  std::uint64_t data_bytes = 0;     // keys and values expected at most, for sizing caches and maps
};

// Takes the records of a scan in order.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual void take(std::string_view key, std::string_view value) = 0;
};

class Session {
 public:
  virtual ~Session() = default;
  // True and a value that stays in place until release(); false when there is none.
  virtual bool read(std::string_view key, std::string_view& value) = 0;
  virtual void release() = 0;
  virtual bool write(std::string_view key, std::string_view value) = 0;  // insert or replace
  virtual bool erase(std::string_view key) = 0;  // false: not there (where the engine says so)
  // Up to `count` records from the first key >= start; returns how many there were.
  virtual std::uint64_t scan(std::string_view start, std::uint64_t count, Sink& sink) = 0;
};

class Engine {
 public:
  virtual ~Engine() = default;
  // Opens what is in options.dir or creates it. False: error() says why.
  virtual bool open(const EngineOptions& options) = 0;
  virtual std::unique_ptr<Session> session() = 0;  // after open; destroy before close
  virtual bool close() = 0;
  virtual EngineCounters counters() { return {}; }
  virtual JournalCounters journal_counters() { return {}; }
  // What `auto` came to; empty where there are no media. REQUIRES: open.
  virtual std::string medium() { return {}; }
  // The store's own check of itself where it has one; true when there is none.
  virtual bool validate() { return true; }
  const std::string& error() const { return error_; }

 protected:
  std::string error_;
};

struct EngineKind {
  const char* name;
  std::unique_ptr<Engine> (*make)();
  // The guarantee and the settings in words, as printed with the figures.
  std::string (*settings)(const EngineOptions&);
  bool file_writes_are_all;  // the write(2) bytes of the process are what the engine wrote
  bool holds_data = true;    // false: answers anything, without end; nothing to check
  bool has_media = false;    // --medium is for it
};

// All engines there are, tenuto first. `null` does nothing: its figures are the client's ceiling;
// `bare` only writes: its are the device's.
std::span<const EngineKind> engine_kinds();
const EngineKind* find_engine(std::string_view name);

// A factory for each adapter; defined in engine_<name>.cc.
std::unique_ptr<Engine> make_tenuto();
std::unique_ptr<Engine> make_fptree_tenuto();
std::unique_ptr<Engine> make_fptree_tenuto_versioned();
std::unique_ptr<Engine> make_fptree_pmdk();
std::unique_ptr<Engine> make_rocksdb();
std::unique_ptr<Engine> make_lmdb();
std::unique_ptr<Engine> make_leveldb();
std::unique_ptr<Engine> make_wiredtiger();
std::unique_ptr<Engine> make_bare();
std::unique_ptr<Engine> make_null();
std::string tenuto_settings(const EngineOptions&);
std::string fptree_tenuto_settings(const EngineOptions&);
std::string fptree_tenuto_versioned_settings(const EngineOptions&);
std::string fptree_pmdk_settings(const EngineOptions&);
std::string rocksdb_settings(const EngineOptions&);
std::string lmdb_settings(const EngineOptions&);
std::string leveldb_settings(const EngineOptions&);
std::string wiredtiger_settings(const EngineOptions&);
std::string bare_settings(const EngineOptions&);
std::string null_settings(const EngineOptions&);

}  // namespace bench
