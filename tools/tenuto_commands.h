// The commands of tools/tenuto: their command-line arguments and the functions that run them.
// commands.cc parses and calls; tenuto_*.cc implement. Each command writes its result to standard
// output and returns an Error if it failed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "error.h"
#include "record_format.h"
#include "tenuto/kv.h"

namespace tenuto::tool {

struct CommonArgs {
  std::string path;
  std::string collection;       // empty: the default one
  bool one_collection = false;  // --collection was given, also with an empty name
  std::string journal;          // path of the pool's journal; empty: beside the pool
  bool json = false;
  bool quiet = false;
  bool verbose = false;
  bool read_only = false;  // no writes, not even for recovery
  bool large_pages = false;
  bool wear_levelling = false;
  Medium medium = Medium::automatic;
  std::uint64_t size_max = PoolOptions{}.size_max;  // limit of growth while open here
  std::vector<std::string> words;                   // of the command line, behind the command
  std::uint64_t wait_seconds = 0;                   // while another process has the pool open
};

struct NewPoolArgs {
  std::uint64_t size = PoolOptions{}.size;
  KeyOrder order = KeyOrder::bytes;
};

struct CreateArgs : CommonArgs, NewPoolArgs {
  bool force = false;  // replace an existing pool
  Consistency consistency = Consistency::log;
  bool canaries = false;
};

struct CheckArgs : CommonArgs {
  std::string repair;                // path of the new pool; empty: check only
  bool scavenge = false;             // include records that may be old
  KeyOrder order = KeyOrder::bytes;  // used if the pool does not tell
};

struct PutArgs : CommonArgs {
  std::string key;
  std::optional<std::string> value;
  std::string value_file;         // "-" is standard input
  std::uint64_t ttl_seconds = 0;  // 0: no lifetime
  std::uint64_t value_bytes_max = 1ull << 30;
  bool hex = false;
};

struct TouchArgs : CommonArgs {
  std::vector<std::string> keys;
  std::optional<std::uint64_t> ttl_seconds;  // 0: no lifetime any more
  bool hex = false;
};

struct GetArgs : CommonArgs {
  std::string key;
  bool hex = false;
  bool newline = false;
};

struct DelArgs : CommonArgs {
  std::vector<std::string> keys;
  bool hex = false;
};

// A range of keys, as text of the collection's key order or in hexadecimal.
struct RangeArgs {
  std::optional<std::string> prefix;
  std::optional<std::string> from;  // inclusive
  std::optional<std::string> to;    // exclusive
  bool hex = false;
};

struct ScanArgs : CommonArgs, RangeArgs {
  std::optional<std::uint64_t> limit;
  bool reverse = false;
  bool keys_only = false;
};

struct LoadArgs : CommonArgs, NewPoolArgs {
  std::string file = "-";
  std::optional<RecordFormat> format;  // nullopt: chosen by the file's name
  std::string key_field;               // of CSV and JSON
  bool create = false;
  std::uint64_t batch = 1000;
  std::uint64_t line_bytes_max = 1ull << 30;
  bool skip_bad = false;
};

struct DumpArgs : CommonArgs, RangeArgs {
  std::string file = "-";
  std::optional<RecordFormat> format;
  std::string key_field;
};

struct CollectionsArgs : CommonArgs {
  std::optional<std::string> make;
  std::optional<std::string> drop;
  std::optional<std::string> rename;
  std::optional<std::string> to;     // the new name
  KeyOrder order = KeyOrder::bytes;  // this and the rest: of the new collection
  bool duplicates = false;
  bool expires = false;
};

struct BackupArgs : CommonArgs {
  std::string to;
};

struct CompactArgs : CommonArgs {
  std::uint64_t moves_max = 0;
  std::uint64_t occupancy = 70;  // per cent
  bool in_key_order = false;
};

struct SettleArgs : CommonArgs {
  std::vector<std::string> others;  // more pools
  InDoubt in_doubt = InDoubt::ask;
  std::optional<std::uint64_t> lost;  // the id of a pool that is not coming back
};

struct GcArgs : CommonArgs {
  bool free = false;
};

Error run_settle(const SettleArgs& args);
Error run_gc(const GcArgs& args);
Error run_compact(const CompactArgs& args);
Error run_collections(const CollectionsArgs& args);
Error run_backup(const BackupArgs& args);
Error run_create(const CreateArgs& args);
Error run_info(const CommonArgs& args);
Error run_check(const CheckArgs& args);
Error run_repair(const CheckArgs& args);
Error run_stats(const CommonArgs& args);
Error run_put(const PutArgs& args);
Error run_touch(const TouchArgs& args);
Error run_get(const GetArgs& args);
Error run_del(const DelArgs& args);
Error run_scan(const ScanArgs& args);
Error run_load(const LoadArgs& args);
Error run_dump(const DumpArgs& args);

}  // namespace tenuto::tool
