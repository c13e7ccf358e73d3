#include "pm/explore_worker.h"

#include <sys/mman.h>
#include <sys/time.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "pm/assert.h"

namespace tenuto::inline TENUTO_ABI::pm {

namespace {

constexpr std::size_t kSlots = 1u << 22;
constexpr std::size_t kSeenMax = kSlots / 4 * 3;
constexpr StateLimits kRecoveryLimits = {128, 8};

void arm_timer(std::chrono::milliseconds t) {
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(t).count();
  itimerval timer{};
  timer.it_value.tv_sec = us / 1000000;
  timer.it_value.tv_usec = us % 1000000;
  ::setitimer(ITIMER_REAL, &timer, nullptr);
}

}  // namespace

SeenStates::SeenStates() {
  void* p = ::mmap(nullptr, (kSlots + 1) * sizeof *slots_, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TENUTO_ASSERT(p != MAP_FAILED);
  slots_ = static_cast<std::uint64_t*>(p);
}

SeenStates::~SeenStates() { ::munmap(slots_, (kSlots + 1) * sizeof *slots_); }

bool SeenStates::contains(std::uint64_t hash) const {
  hash |= 1;
  for (std::size_t i = (hash >> 1) % kSlots; slots_[i] != 0; i = (i + 1) % kSlots) {
    if (slots_[i] == hash) return true;
  }
  return false;
}

bool SeenStates::insert(std::uint64_t hash) {
  hash |= 1;
  std::size_t i = (hash >> 1) % kSlots;
  for (; slots_[i] != 0; i = (i + 1) % kSlots) {
    if (slots_[i] == hash) return false;
  }
  if (slots_[kSlots] >= kSeenMax) return true;
  slots_[i] = hash;
  ++slots_[kSlots];
  return true;
}

bool CrashWorker::run(const WorkerJob& job) {
  job_ = &job;
  for (std::size_t i = 0; i < job.order.size(); ++i) {
    report_.state = i;
    if (!judge_state(job, (*job.states)[job.order[i]])) return false;
  }
  arm_timer(std::chrono::milliseconds(0));
  report_.complete = true;
  return true;
}

bool CrashWorker::judge_state(const WorkerJob& job, const CrashState& state) {
  crashes_.clear();
  crashes_met_ = 0;
  lay_out(job, state);
  if (!judge(CrashPhase::recovery, options_.crash_in_recovery)) return false;
  if (options_.recover_twice && !changed_ && !judge(CrashPhase::second_recovery, false))
    return false;
  undo();
  for (const RecoveryCrash& crash : crashes_) {
    if (!seen_.insert(crash.hash) && job.know_seen) continue;
    ++report_.recovery_states;
    std::snprintf(report_.first, sizeof report_.first, "%s", crash.first);
    std::snprintf(report_.then, sizeof report_.then, "%s", crash.then);
    Recorder::instance().mark_explored(crash.first, crash.then);
    laid_out_ = crash.lines;
    image_.set_length(crash.bytes);
    for (const auto& [line, words] : laid_out_) image_.patch(line, words);
    if (!judge(CrashPhase::crash_in_recovery, false)) return false;
    undo();
  }
  return true;
}

void CrashWorker::lay_out(const WorkerJob& job, const CrashState& state) {
  const auto& lines = *job.lines;
  laid_out_.clear();
  state_hash_ = job.image_hash ^ state_hash(lines, state);
  std::vector<std::uint32_t> variant(lines.size(), 0);
  for (std::uint32_t i = 0; state.base_new && i < lines.size(); ++i) variant[i] = lines[i].newest;
  for (const auto& [line, v] : state.picks) variant[line] = v;
  for (std::uint32_t i = 0; i < lines.size(); ++i) {
    if (variant[i] != 0) {
      laid_out_.emplace_back(lines[i].line, lines[i].variants[variant[i]].words);
    }
  }
  for (const auto& [line, words] : laid_out_) image_.patch(line, words);
  rng_ = ExploreRng(hash_mix(options_.seed) ^ state_hash_);
}

void CrashWorker::undo() {
  image_.restore_length();
  for (const auto& [line, words] : laid_out_) image_.restore(line);
  for (const std::uint64_t line : written_) image_.restore(line);
  laid_out_.clear();
  written_.clear();
}

bool CrashWorker::judge(CrashPhase phase, bool collect) {
  Recorder& r = Recorder::instance();
  report_.phase = phase;
  CrashImage image;
  image.path_ = image_.path();
  image.invoked_ = job_->invoked;
  image.acknowledged_ = job_->acknowledged;
  image.on_recovered_ = [this] {
    before_fence("recovery's end", "use");
    collecting_ = false;
    changed_ = true;
  };
  collecting_ = collect;
  changed_ = false;
  order_before_ = 0;
  r.watch(
      image_.device(), image_.inode(), this, nullptr,
      {.keep_clean_lines = true, .locked_instructions_fence = options_.locked_instructions_fence});
  arm_timer(options_.timeout);
  const std::string verdict = check_(image);
  ++report_.checks;
  for (const LineLog* log : r.lines()) written_.push_back(log->line);
  r.stop();
  if (verdict.empty()) return true;
  std::snprintf(report_.text, sizeof report_.text, "%s", verdict.c_str());
  return false;
}

LineWords CrashWorker::laid_out(std::uint64_t line) const {
  for (const auto& [at, words] : laid_out_) {
    if (at == line) return words;
  }
  return image_.durable_line(line);
}

void CrashWorker::before_fence(const char* first, const char* then) {
  if (collecting_) collect(first, then);
}

CrashWorker::RecoveryCrash CrashWorker::make_crash(const std::vector<const LineLog*>& logs,
                                                   const std::vector<LineChoices>& lines,
                                                   const CrashState& state) const {
  RecoveryCrash crash{laid_out_, state_hash_, 0, nullptr, nullptr};
  for (std::uint32_t i = 0; i < lines.size(); ++i) {
    const LineVariant& v = lines[i].variants[variant_in(lines, state, i)];
    const LineWords before = laid_out(logs[i]->line);
    if (v.words == before) continue;
    crash.hash ^= v.hash ^ line_hash(logs[i]->line, before);
    const auto at = std::find_if(crash.lines.begin(), crash.lines.end(),
                                 [&](const auto& entry) { return entry.first == logs[i]->line; });
    if (at != crash.lines.end()) {
      at->second = v.words;
    } else {
      crash.lines.emplace_back(logs[i]->line, v.words);
    }
  }
  return crash;
}

// Keeps a fair sample of the crashes that all fences of this recovery allow.
void CrashWorker::collect(const char* first, const char* then) {
  Recorder& r = Recorder::instance();
  const std::vector<const LineLog*> logs = r.lines();
  std::vector<LineChoices> lines;
  lines.reserve(logs.size());
  for (const LineLog* log : logs) {
    lines.push_back(choices_of(*log, options_.reorder_stores, order_before_));
  }
  const std::vector<CrashState> states = crash_states(lines, kRecoveryLimits, order_before_, rng_);
  order_before_ = r.last_order();
  for (const CrashState& state : states) {
    RecoveryCrash crash = make_crash(logs, lines, state);
    crash.hash ^= job_->model;
    if (crash.lines == laid_out_ || (job_->know_seen && seen_.contains(crash.hash))) continue;
    crash.bytes = r.mapped_bytes();
    crash.first = first;
    crash.then = then;
    ++crashes_met_;
    if (!job_->know_seen || crashes_.size() < options_.recovery_states_max) {
      crashes_.push_back(std::move(crash));
    } else if (const std::uint64_t i = rng_.below(crashes_met_); i < crashes_.size()) {
      crashes_[i] = std::move(crash);
    }
  }
}

}  // namespace tenuto::inline TENUTO_ABI::pm
