// What tx_bench measures (cases.h) and on which engines. Each engine has its own code for each
// case, in its best style; what is here only calls it. An engine is opened, used and closed in a
// child process of its own (turn.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/support/counters.h"
#include "bench/tx/cases.h"

namespace bench {

// One thread's part of a case: transactions in batches. It belongs to the thread that made it.
class Work {
 public:
  virtual ~Work() = default;
  // Brings the state before the first batch about. Not timed. Returns null, or the error found.
  virtual const char* prepare() { return nullptr; }
  // Runs the transactions first.. of a batch, `n` of them. False: one failed. A batch is run in
  // order and as a whole, in one call or several.
  virtual bool run(std::uint64_t first, std::uint64_t n) = 0;
  // After each batch: checks what it left, and brings the state before a batch about again. Not
  // timed. Returns null, or the error found.
  virtual const char* settle() = 0;
};

struct TxPlace {
  std::string dir;     // an existing directory for the pool's file
  std::string medium;  // line, cache; tenuto: model, too
  unsigned threads = 1;
  std::uint64_t live_bytes = 0;  // of all objects, an upper bound
};

class TxEngine {
 public:
  virtual ~TxEngine() = default;
  // Makes a pool. False on failure; error() has the reason.
  virtual bool open(const TxPlace& place) = 0;
  virtual bool close() = 0;
  // Null when the engine has no such case.
  virtual std::unique_ptr<Work> work(const TxCase& what, const WorkSize& size, unsigned thread) = 0;
  virtual EngineCounters counters() { return {}; }
  virtual bool validate() { return true; }  // the engine's own check
  const std::string& error() const { return error_; }

 protected:
  bool refuse(std::string why) {
    error_ = std::move(why);
    return false;
  }

 private:
  std::string error_;
};

struct TxEngineKind {
  const char* name;
  std::unique_ptr<TxEngine> (*make)();
  std::string (*settings)(const std::string& medium);
  std::vector<std::string_view> media;
};

// All that this build has, tenuto first.
std::span<const TxEngineKind> tx_engine_kinds();
const TxEngineKind* find_tx_engine(std::string_view name);
bool has_medium(const TxEngineKind& kind, std::string_view medium);

// Defined in engine_<name>.cc.
std::unique_ptr<TxEngine> make_tenuto_tx();
std::unique_ptr<TxEngine> make_pmemobj_tx();
std::unique_ptr<TxEngine> make_drop_in_tx();
std::string tenuto_tx_settings(const std::string& medium);
std::string pmemobj_tx_settings(const std::string& medium);
std::string drop_in_tx_settings(const std::string& medium);

// Each thread has this many bytes of the root object, zero at the start.
inline constexpr std::uint64_t kThreadAreaBytes = 512u << 10;

}  // namespace bench
