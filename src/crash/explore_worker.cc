#include "crash/explore_worker.h"

#include <sys/mman.h>
#include <sys/time.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <utility>

#include "pm/assert.h"

namespace TENUTO_NS::pm {

namespace {

constexpr std::size_t kSlots = 1u << 22;
constexpr std::size_t kSeenMax = kSlots / 4 * 3;
constexpr std::size_t kRecoveryProductMax = 128;
constexpr std::size_t kRecoverySamplesMax = 8;
constexpr std::size_t kRetriedMax = 64;  // without know_seen, for deeper crashes in recovery

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
    lay_out((*job.states)[job.order[i]]);
    if (!judge_state()) return false;
  }
  arm_timer(std::chrono::milliseconds(0));
  report_.complete = true;
  return true;
}

// Judges the image laid out, then the images of crashes in its recovery, then of crashes in their
// recoveries.
bool CrashWorker::judge_state() {
  chain_ = {};
  fences_.clear();
  crashes_.clear();
  crashes_met_ = 0;
  if (!judge_image()) return false;
  for (std::vector<RecoveryCrash> level; !crashes_.empty();) {
    level.swap(crashes_);
    crashes_.clear();
    crashes_met_ = 0;
    for (RecoveryCrash& crash : level) {
      if (!seen_.insert(crash.hash ^ job_->model) && job_->know_seen) continue;
      ++report_.recovery_states;
      Recorder::instance().mark_explored(crash.first, crash.then);
      chain_ = crash.chain;
      fences_ = std::move(crash.fences);
      laid_out_ = std::move(crash.lines);
      state_hash_ = crash.hash;
      image_.set_length(crash.bytes);
      for (const auto& [line, words] : laid_out_) image_.patch(line, words);
      if (!judge_image()) return false;
    }
  }
  return true;
}

// Judges the image laid out and appends to crashes_ what a crash in its recovery may leave.
bool CrashWorker::judge_image() {
  report_.chain = chain_;
  std::snprintf(report_.fences, sizeof report_.fences, "%s", fences_.c_str());
  rng_ = ExploreRng(hash_mix(options_.seed) ^ state_hash_);
  const bool deeper = chain_.depth < options_.recovery_depth && chain_.depth < CrashChain::kMax;
  if (!judge(CrashPhase::recovery, deeper)) return false;
  if (chain_.depth == 0 && options_.recover_twice && !changed_ &&
      !judge(CrashPhase::second_recovery, false)) {
    return false;
  }
  undo();
  return true;
}

void CrashWorker::lay_out(const CrashState& state) {
  const auto& lines = *job_->lines;
  laid_out_.clear();
  state_hash_ = job_->image_hash ^ state_hash(lines, state);
  std::vector<std::uint32_t> variant(lines.size(), 0);
  for (std::uint32_t i = 0; state.base_new && i < lines.size(); ++i) variant[i] = lines[i].newest;
  for (const auto& [line, v] : state.picks) variant[line] = v;
  for (std::uint32_t i = 0; i < lines.size(); ++i) {
    if (variant[i] != 0) {
      laid_out_.emplace_back(lines[i].line, lines[i].variants[variant[i]].words);
    }
  }
  for (const auto& [line, words] : laid_out_) image_.patch(line, words);
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
  image.data_ = [this, &r] {
    r.map(image_.data(), image_.bytes(), image_.fd());
    return std::span(image_.data(), image_.bytes());
  };
  image.on_recovered_ = [this] {
    before_fence("recovery's end", "use");
    collecting_ = false;
    changed_ = true;
  };
  collecting_ = collect;
  changed_ = false;
  order_before_ = 0;
  r.watch(image_.device(), image_.inode(), this, nullptr,
          {.keep_clean_lines = true,
           .locked_instructions_fence = options_.locked_instructions_fence,
           .flush_sectors = options_.mode == CrashMode::page});
  arm_timer(options_.timeout);
  const std::string verdict = check_(image);
  ++report_.checks;
  r.unmap(image_.data());
  for (const LineLog* log : r.lines()) written_.push_back(log->line);
  r.stop();
  if (verdict.empty()) return true;
  std::snprintf(report_.text, sizeof report_.text, "%s", verdict.c_str());
  return false;
}

LineWords CrashWorker::laid_out(std::uint64_t line) const {
  const auto at = std::lower_bound(laid_out_.begin(), laid_out_.end(), line,
                                   [](const auto& entry, auto key) { return entry.first < key; });
  if (at != laid_out_.end() && at->first == line) return at->second;
  return image_.durable_line(line);
}

void CrashWorker::before_fence(const char* first, const char* then) {
  if (collecting_) collect(first, then);
}

CrashWorker::RecoveryCrash CrashWorker::make_crash(const std::vector<const LineLog*>& logs,
                                                   const std::vector<LineChoices>& lines,
                                                   const CrashState& state) const {
  RecoveryCrash crash{{}, state_hash_, 0, nullptr, nullptr, chain_, fences_};
  auto old = laid_out_.begin();
  for (std::uint32_t i = 0; i < lines.size(); ++i) {
    const std::uint64_t line = logs[i]->line;
    for (; old != laid_out_.end() && old->first < line; ++old) crash.lines.push_back(*old);
    const LineVariant& v = lines[i].variants[variant_in(lines, state, i)];
    const bool was_laid_out = old != laid_out_.end() && old->first == line;
    const LineWords before = was_laid_out ? (old++)->second : image_.durable_line(line);
    if (v.words != before) crash.hash ^= v.hash ^ line_hash(line, before);
    if (was_laid_out || v.words != before) crash.lines.emplace_back(line, v.words);
  }
  crash.lines.insert(crash.lines.end(), old, laid_out_.end());
  return crash;
}

// Whether to judge a crash inside recovery that leaves this image.
bool CrashWorker::wanted(std::uint64_t hash) const {
  if (hash == state_hash_) return false;  // recovery changed nothing
  if (job_->chain.depth != 0) {
    return chain_.depth < job_->chain.depth && job_->chain.hash[chain_.depth] == hash;
  }
  return !job_->know_seen || !seen_.contains(hash ^ job_->model);
}

// Keeps a fair sample of the crashes at all fences of the recoveries of one depth.
void CrashWorker::collect(const char* first, const char* then) {
  Recorder& r = Recorder::instance();
  const std::vector<const LineLog*> logs = r.lines();
  std::vector<LineChoices> lines;
  lines.reserve(logs.size());
  for (const LineLog* log : logs) {
    lines.push_back(choices_of(*log, reorders(options_), order_before_));
  }
  const std::vector<CrashState> states = crash_states(
      lines, {kRecoveryProductMax, kRecoverySamplesMax, options_.mode}, order_before_, rng_);
  if (keeps_all(options_.mode)) r.raise_all();
  order_before_ = r.last_order();
  std::size_t max = std::max<std::size_t>(options_.recovery_states_max >> chain_.depth, 1);
  if (!job_->know_seen) max = chain_.depth == 0 ? SIZE_MAX : kRetriedMax;
  for (const CrashState& state : states) {
    RecoveryCrash crash = make_crash(logs, lines, state);
    if (!wanted(crash.hash)) {
      // Judged elsewhere, and that counts for this fence too.
      if (crash.hash != state_hash_) r.mark_explored(first, then);
      continue;
    }
    crash.bytes = r.mapped_bytes();
    crash.first = first;
    crash.then = then;
    crash.chain.hash[crash.chain.depth++] = crash.hash;
    crash.fences += std::string(crash.fences.empty() ? "" : ", then before ") + "fence(\"" + first +
                    "\", \"" + then + "\")";
    ++crashes_met_;
    if (crashes_.size() < max) {
      crashes_.push_back(std::move(crash));
    } else if (const std::uint64_t i = rng_.below(crashes_met_); i < max) {
      crashes_[i] = std::move(crash);
    }
  }
}

}  // namespace TENUTO_NS::pm
