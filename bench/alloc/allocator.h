// The thin adapter between the benchmark and an allocator. The unit is NVAlloc's: a block is
// allocated *to* a destination and freed *from* it. A destination is a word that points to the
// block. Destinations of persistent allocators are in their pool (root()), those of volatile ones
// in DRAM. Each call costs one virtual call, for every allocator.
//
// An allocator is opened, used and closed in a child process of its own (stage.h). To add one,
// write engine_<name>.cc with a factory and add a row in engines.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/alloc/ablation.h"
#include "bench/support/counters.h"

namespace bench {

struct AllocatorOptions {
  std::string dir;     // an existing directory for the pool's file
  std::string medium;  // of a persistent allocator: auto, line, cache, model, journal
  std::uint64_t root_bytes = 0;
  std::uint64_t live_bytes = 0;  // requested bytes, an upper bound at any time
  Ablation ablation = {};        // of tenuto
  unsigned threads = 1;
  bool verify = false;  // blocks are known by their addresses
  bool linked = false;  // blocks hold destinations
};

// The state of a heap after a run. Negative: the allocator does not report it.
struct HeapShape {
  double book_bytes = -1;  // of the bookkeeping log, in use
  double book_fast_gcs = -1;
  double book_slow_gcs = -1;
  double morphed_slabs = -1;  // with blocks of two sizes
  bool has_slabs = false;
  double slabs_by_tenth[10] = {};  // slabs, by the share of their blocks in use
};

class Allocator {
 public:
  virtual ~Allocator() = default;
  // Makes a new pool, or opens the existing one. Returns false on failure; error() has the reason.
  virtual bool open(const AllocatorOptions& options) = 0;
  virtual bool close() = 0;

  // The area of the destinations: options.root_bytes, zero when new. Null on failure; error() has
  // the reason.
  virtual std::byte* root() = 0;
  virtual std::size_t word_bytes() const = 0;  // of one destination
  // Allocates to a destination that is zero. Returns the block, or null when refused.
  virtual void* malloc_to(std::uint64_t bytes, void* dest) = 0;
  virtual bool free_from(void* dest) = 0;      // dest is zero afterwards
  virtual void* follow(const void* dest) = 0;  // the block that a destination points to
  // A group of operations. It uses what the allocator offers for several at once: shared fences, or
  // one transaction. Otherwise it runs them one by one. REQUIRES: destinations differ. Returns
  // false if any of them failed.
  virtual bool malloc_group(std::span<void* const> dests, std::span<const std::uint64_t> bytes) {
    bool all = true;
    for (std::size_t i = 0; i < dests.size(); ++i) {
      all = malloc_to(bytes[i], dests[i]) != nullptr && all;
    }
    return all;
  }
  virtual bool free_group(std::span<void* const> dests) {
    bool all = true;
    for (void* dest : dests) all = free_from(dest) && all;
    return all;
  }

  // Bytes that the heap takes: frames of a pool, touched blocks of a file, or private memory. Cheap
  // enough for some thousand calls a run.
  virtual std::uint64_t heap_bytes() = 0;
  // Blocks of the pool's file, in bytes; they may be more than heap_bytes(): ends of a file that
  // has grown, and frames that are free. Negative: there is no file.
  virtual double file_bytes() { return -1; }
  virtual EngineCounters counters() { return {}; }
  virtual HeapShape shape() { return {}; }
  virtual double recovery_ms() { return -1; }  // as the last open reports it; negative: it does not
  // flush() and sync() make completed work survive a crash. The stage calls them before one.
  virtual void flush(const void*, std::uint64_t /*bytes*/) {}
  virtual bool sync() { return true; }
  virtual bool validate() { return true; }     // the allocator's own check
  virtual std::string medium() { return {}; }  // in use; empty where there are no media
  const std::string& error() const { return error_; }

 protected:
  bool refuse(std::string why) {
    error_ = std::move(why);
    return false;
  }
  std::string error_;
};

struct AllocatorKind {
  const char* name;
  const char* engine;   // in JSON
  const char* variant;  // of the engine; empty: there is only one
  std::unique_ptr<Allocator> (*make)();
  std::string (*settings)(const std::string& medium);
  bool persistent;    // its data is found again after a crash
  const char* media;  // the supported ones, comma-separated; empty: volatile memory
};

// All there are, tenuto first.
std::span<const AllocatorKind> allocator_kinds();
const AllocatorKind* find_allocator(std::string_view name);
// Those of `names` that this build has: one whose package was not there is left out.
std::vector<std::string> allocators_of(std::initializer_list<const char*> names);
bool has_medium(const AllocatorKind& kind, std::string_view medium);

// Factories, one for each row of the table; defined in engine_<name>.cc.
std::unique_ptr<Allocator> make_tenuto_logged();
std::unique_ptr<Allocator> make_tenuto_versioned();
std::unique_ptr<Allocator> make_tenuto_gc();
std::unique_ptr<Allocator> make_tenuto_internal();
std::unique_ptr<Allocator> make_tenuto_reserved();
std::unique_ptr<Allocator> make_tenuto_compacted();
std::unique_ptr<Allocator> make_pmdk_atomic();
std::unique_ptr<Allocator> make_pmdk_transactional();
std::unique_ptr<Allocator> make_pmdk_published();
std::unique_ptr<Allocator> make_mimalloc();
std::unique_ptr<Allocator> make_jemalloc();
std::unique_ptr<Allocator> make_glibc();
std::string tenuto_logged_settings(const std::string& medium);
std::string tenuto_versioned_settings(const std::string& medium);
std::string tenuto_gc_settings(const std::string& medium);
std::string tenuto_internal_settings(const std::string& medium);
std::string tenuto_reserved_settings(const std::string& medium);
std::string tenuto_compacted_settings(const std::string& medium);
std::string pmdk_atomic_settings(const std::string& medium);
std::string pmdk_transactional_settings(const std::string& medium);
std::string pmdk_published_settings(const std::string& medium);
std::string mimalloc_settings(const std::string& medium);
std::string jemalloc_settings(const std::string& medium);
std::string glibc_settings(const std::string& medium);

}  // namespace bench
