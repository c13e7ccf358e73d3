// The frame allocator as frame_bench sees it. Benchmarks must not include private headers, but
// tests may include every layer. So tests/support/frame_engine.cc implements this file. Each
// measured operation therefore includes one extra function call.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tenuto/pool.h"

namespace bench {

struct FrameCounts {
  std::uint64_t lines = 0;  // flushed; medium model only
  std::uint64_t fences = 0;
  std::uint64_t reflushes = 0;
};

class FrameEngine {
 public:
  // Makes a pool of one zone at `path`; the file is already removed on return. Returns null with a
  // reason on failure.
  static std::unique_ptr<FrameEngine> make(const std::string& path, std::uint64_t bytes,
                                           tenuto::Medium medium, std::string& why);
  ~FrameEngine();

  std::optional<std::uint64_t> get(unsigned order, unsigned core);
  bool put(std::uint64_t frame, unsigned order, unsigned core);

  std::uint64_t frames() const;  // total of the pool
  std::uint64_t free_frames() const;
  std::uint64_t free_huge_frames() const;
  FrameCounts counts() const;  // of the whole process
  std::string disagreement();  // compares the two layers; empty: they agree

  // Drops the volatile state and attaches again, as after a clean close.
  bool reopen_clean();
  // The same as after a crash, in three steps. reopen_crashed() rebuilds counters from bitfields.
  // keep() names an owner for each frame; false: one was refused. finish_recovery() gives back all
  // other frames; false: there were some.
  bool reopen_crashed();
  bool keep(const std::vector<std::uint64_t>& owned);
  bool finish_recovery();

 private:
  struct State;
  explicit FrameEngine(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace bench
