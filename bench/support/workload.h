// The operation streams of YCSB's workloads, made before anything is timed. A Planner makes the
// phases that run one after another on one store (load, then a, b, c ...), with one stream per
// thread. It knows which records each thread can rely on, so every operation has an expected
// result.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/support/records.h"
#include "bench/support/rng.h"

namespace bench {

enum class OpKind : std::uint8_t { read, update, insert, scan, rmw, erase };
inline constexpr std::size_t kOpKinds = 6;
const char* op_name(OpKind kind);

// e_cold and e_warm are e at two moments: right after an open, and after a walk through all
// records. update_x100 and get_x16 are update and c in groups (Session::write_group, read_group).
enum class Workload : std::uint8_t {
  load,
  a,
  b,
  c,
  d,
  e,
  f,
  e_cold,
  e_warm,
  insert_delete,
  sync_insert,
  open,
  update,
  update_x100,
  get_x16
};
const char* workload_name(Workload workload);
std::optional<Workload> find_workload(std::string_view name);

// Shares of the operation kinds. Their sum is one.
struct Mix {
  double share[kOpKinds] = {};
};
Mix mix_of(Workload workload);
inline constexpr std::size_t kGroupMax = 100;
// The operations of a group, of one kind. 1: there are no groups.
std::size_t group_of(Workload workload);

enum class Distribution : std::uint8_t { zipfian, uniform, latest };
const char* distribution_name(Distribution distribution);
std::optional<Distribution> find_distribution(std::string_view name);

inline constexpr unsigned kScanRecordsMax = 100;  // YCSB's maxscanlength; lengths are uniform

// A version names the writer and the order of a write: sequence << kThreadBits | thread. Later
// phases have higher sequences. 0 is no version.
inline constexpr unsigned kThreadBits = 5;
inline constexpr unsigned kThreadsMax = 1u << kThreadBits;
inline constexpr std::uint32_t kSequenceMax = (1u << (32 - kThreadBits)) - 1;
constexpr std::uint32_t make_version(std::uint32_t sequence, unsigned thread) {
  return sequence << kThreadBits | thread;
}
constexpr unsigned writer_of(std::uint32_t version) { return version & (kThreadsMax - 1); }
constexpr std::uint32_t sequence_of(std::uint32_t version) { return version >> kThreadBits; }

struct Op {
  std::uint32_t record = 0;
  std::uint32_t version = 0;  // to write
  std::uint32_t expect = 0;   // the last version this thread wrote; see Phase::acceptable
  OpKind kind = OpKind::read;
  std::uint8_t scan_count = 0;
  std::uint16_t key_bytes = 0;
};

struct Stream {
  std::vector<Op> ops;
  std::string keys;  // of all operations, concatenated
};

struct Phase {
  Workload workload = Workload::load;
  Distribution distribution = Distribution::zipfian;
  std::uint64_t records_before = 0;
  std::uint32_t first_sequence = 1;
  std::vector<Stream> streams;  // one a thread

  std::uint64_t ops() const;
  // Whether `thread` may see `version` in an operation with `expect`. With one thread it must be
  // exactly the last version written. With several threads, if it wrote the record in this phase,
  // it may see that write or another thread's write of this phase. Otherwise it may see any version
  // but one that it writes later in this phase.
  bool acceptable(std::uint32_t version, std::uint32_t expect, unsigned thread) const;
};

class Planner {
 public:
  Planner(const Records& records, unsigned threads, std::uint64_t seed);

  Phase load(std::uint64_t count);  // inserts records 0 .. count - 1
  // `ops` operations, divided equally among the threads. REQUIRES: an earlier load (not for
  // sync_insert).
  Phase next(Workload workload, std::uint64_t ops, Distribution distribution);
  std::uint64_t live() const { return existing_.size(); }

 private:
  void add(Stream& stream, unsigned thread, OpKind kind, std::uint32_t record,
           std::uint8_t scan_count = 0);
  Phase begin(Workload workload, Distribution distribution) const;
  void finish(const Phase& phase, const std::vector<std::vector<std::uint32_t>>& own);
  void insert_delete(Stream& stream, unsigned thread, std::uint64_t ops,
                     std::vector<std::uint32_t>& live);

  const Records& records_;
  unsigned threads_;
  Rng rng_;
  std::uint32_t sequence_ = 1;                    // of the next phase's first writes
  std::uint32_t next_record_ = 0;                 // first unused number
  std::vector<std::uint32_t> existing_;           // live before this phase, oldest first
  std::vector<std::vector<std::uint32_t>> last_;  // [thread][record]: last version written
};

// The versions that each record may have after a phase: the last write of any one thread. Exact for
// one thread.
class Expected {
 public:
  explicit Expected(unsigned threads) : last_(threads) {}

  void apply(const Phase& phase);
  // Applies only the first `done` operations of a phase with one thread. The next one may also have
  // happened.
  void apply_prefix(const Phase& phase, std::uint64_t done);

  // Applies only the writes with versions <= `latest`, of a phase with one thread.
  void apply_until(const Phase& phase, std::uint32_t latest);

  std::uint64_t live() const { return live_; }
  bool is_live(std::uint64_t record) const;
  bool allows(std::uint64_t record, std::uint32_t version) const;

 private:
  void set(unsigned thread, std::uint32_t record, std::uint32_t version);

  std::vector<std::vector<std::uint32_t>> last_;  // [thread][record]; 0: not by this thread
  std::vector<bool> is_live_;
  std::uint64_t live_ = 0;
  std::optional<Op> in_flight_;
};

}  // namespace bench
