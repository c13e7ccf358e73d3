#include "bench/frame_engine.h"

#include <unistd.h>

#include "file/pool_file.h"
#include "frame/frames.h"
#include "pm/media.h"

namespace bench {

using namespace tenuto;
using frame::Frames;

struct FrameEngine::State {
  std::unique_ptr<pm::PoolFile> file;
  std::unique_ptr<Frames> frames;
  Report report;

  bool attach(bool clean) {
    auto opened = Frames::open(*file, clean, &report);
    if (!opened) return false;
    frames = std::move(*opened);
    return true;
  }
};

FrameEngine::FrameEngine(std::unique_ptr<State> state) : state_(std::move(state)) {}
FrameEngine::~FrameEngine() = default;

std::unique_ptr<FrameEngine> FrameEngine::make(const std::string& path, std::uint64_t bytes,
                                               Medium medium, std::string& why) {
  PoolOptions options;
  options.size = bytes;
  options.size_max = bytes;
  options.medium = medium;
  auto state = std::make_unique<State>();
  // The file never gets a name, so nothing can be left behind.
  auto file = pm::PoolFile::create(path, options, &state->report);
  if (!file) {
    why = state->report.text();
    return nullptr;
  }
  state->file = std::move(*file);
  Frames::format_zone(*state->file, state->file->zone(0), pm::kHeadBytes);
  if (state->file->set_state(pm::PoolState::running) != Status::ok || !state->attach(true)) {
    why = state->report.text();
    return nullptr;
  }
  return std::unique_ptr<FrameEngine>(new FrameEngine(std::move(state)));
}

std::optional<std::uint64_t> FrameEngine::get(unsigned order, unsigned core) {
  const auto f = state_->frames->get(order, core);
  if (!f) return std::nullopt;
  return f->value;
}

bool FrameEngine::put(std::uint64_t frame, unsigned order, unsigned core) {
  return state_->frames->put({frame}, order, core) == Status::ok;
}

std::uint64_t FrameEngine::frames() const { return state_->frames->stats().frames; }
std::uint64_t FrameEngine::free_frames() const { return state_->frames->stats().frames_free; }
std::uint64_t FrameEngine::free_huge_frames() const { return state_->frames->stats().huge_free; }

FrameCounts FrameEngine::counts() const {
  const pm::ModelCounts c = pm::model_counts();
  return {c.lines, c.fences, c.reflushes};
}

std::string FrameEngine::disagreement() {
  return state_->frames->validate(&state_->report) == Status::ok ? "" : state_->report.text();
}

bool FrameEngine::reopen_clean() {
  state_->frames->close();
  state_->frames.reset();
  return state_->attach(true);
}

bool FrameEngine::reopen_crashed() {
  state_->frames.reset();
  if (!state_->attach(false)) return false;
  state_->frames->begin_recovery();
  return true;
}

bool FrameEngine::keep(const std::vector<std::uint64_t>& owned) {
  for (const std::uint64_t f : owned) {
    if (state_->frames->keep({f}, 1, &state_->report) != Status::ok) return false;
  }
  return true;
}

bool FrameEngine::finish_recovery() { return state_->frames->end_recovery() == 0; }

}  // namespace bench
