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

constexpr std::size_t kSlotsLeast = 1u << 12;
constexpr std::size_t kSlotsMost = 1u << 22;
constexpr std::size_t kTableBytes = 2 * kSlotsMost * sizeof(std::uint64_t);
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
  void* p = ::mmap(nullptr, sizeof(Shared) + kTableBytes, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TENUTO_ASSERT(p != MAP_FAILED);
  shared_ = static_cast<Shared*>(p);
  shared_->slots = kSlotsLeast;
}

SeenStates::~SeenStates() { ::munmap(shared_, sizeof(Shared) + kTableBytes); }

std::uint64_t* SeenStates::find(std::uint64_t hash) const {
  const std::size_t slots = shared_->slots;
  std::uint64_t* const table = shared_->tables() + slots;
  std::size_t i = (hash >> 1) % slots;
  while (table[i] != 0 && table[i] != hash) i = (i + 1) % slots;
  return table + i;
}

bool SeenStates::insert(std::uint64_t hash) {
  hash |= 1;
  std::uint64_t* slot = find(hash);
  if (*slot != 0) return false;
  if (shared_->hashes >= shared_->slots / 4 * 3) {
    if (shared_->slots == kSlotsMost) return true;
    const std::uint64_t* const old = shared_->tables() + shared_->slots;
    const std::size_t old_slots = shared_->slots;
    shared_->slots *= 2;
    for (std::size_t i = 0; i < old_slots; ++i) {
      if (old[i] != 0) *find(old[i]) = old[i];
    }
    slot = find(hash);
  }
  *slot = hash;
  ++shared_->hashes;
  return true;
}

CrashWorker::CrashWorker(const CrashOptions& options, const CrashRunner::Check& check,
                         ExploreFiles& image, SeenStates& seen, WorkerReport& report)
    : options_(options), check_(check), image_(image), seen_(seen), report_(report) {
  for (std::size_t f = 0; f < image.size(); ++f) {
    watched_.push_back({image[f].device(), image[f].inode(), nullptr});
  }
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
      lengths_ = crash.lengths;
      image_.set_lengths(lengths_);
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
  state_hash_ = job_->image_hash ^ StateHashes(lines)(state);
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
  image_.restore_lengths();
  lengths_ = {};
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
  image.data_ = [this, &r](std::size_t file) {
    TENUTO_ASSERT(file < image_.size());
    const ExploreImage& i = image_[file];
    r.map(i.data(), i.bytes(), i.fd());
    return std::span(i.data(), i.bytes());
  };
  image.on_recovered_ = [this] {
    before_fence("recovery's end", "use");
    collecting_ = false;
    changed_ = true;
  };
  collecting_ = collect;
  changed_ = false;
  order_before_ = 0;
  r.watch(watched_, this,
          {.keep_clean_lines = true,
           .locked_instructions_fence = options_.locked_instructions_fence,
           .flush_sectors = options_.mode == CrashMode::page});
  arm_timer(options_.timeout);
  const std::string verdict = check_(image);
  ++report_.checks;
  for (std::size_t f = 0; f < image_.size(); ++f) r.unmap(image_[f].data());
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

// What the lines of a crash inside recovery had before it: that does not depend on the crash.
std::vector<CrashWorker::LineBefore> CrashWorker::lines_before(
    const std::vector<LineChoices>& lines) const {
  std::vector<LineBefore> before;
  before.reserve(lines.size());
  auto old = laid_out_.begin();
  for (const LineChoices& c : lines) {
    while (old != laid_out_.end() && old->first < c.line) ++old;
    LineBefore b;
    b.laid_out = old != laid_out_.end() && old->first == c.line;
    const LineWords words = b.laid_out ? old->second : image_.durable_line(c.line);
    b.hash = line_hash(c.line, words);
    const auto same = std::find_if(c.variants.begin(), c.variants.end(), [&](const LineVariant& v) {
      return v.hash == b.hash && v.words == words;
    });
    b.same = static_cast<std::uint32_t>(same - c.variants.begin());
    before.push_back(b);
  }
  return before;
}

std::vector<std::pair<std::uint64_t, LineWords>> CrashWorker::crash_lines(
    const std::vector<LineChoices>& lines, const std::vector<LineBefore>& before,
    const CrashState& state) const {
  std::vector<std::pair<std::uint64_t, LineWords>> out;
  auto old = laid_out_.begin();
  for (std::uint32_t i = 0; i < lines.size(); ++i) {
    for (; old != laid_out_.end() && old->first < lines[i].line; ++old) out.push_back(*old);
    if (before[i].laid_out) ++old;
    const std::uint32_t v = variant_in(lines, state, i);
    if (before[i].laid_out || v != before[i].same) {
      out.emplace_back(lines[i].line, lines[i].variants[v].words);
    }
  }
  out.insert(out.end(), old, laid_out_.end());
  return out;
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
  const std::vector<LineBefore> before = lines_before(lines);
  // Of the image, with all lines old.
  std::uint64_t old_hash = state_hash_;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    old_hash ^= before[i].hash ^ lines[i].variants[0].hash;
  }
  FileLengths lengths = lengths_;
  for (std::size_t f = 0; f < image_.size(); ++f) {
    lengths[f] = std::max(lengths[f], r.file_bytes(f));
  }
  const StateHashes changes(lines);
  for (const CrashState& state : states) {
    const std::uint64_t hash = old_hash ^ changes(state);
    if (!wanted(hash)) {
      // Judged elsewhere, and that counts for this fence too.
      if (hash != state_hash_) r.mark_explored(first, then);
      continue;
    }
    ++crashes_met_;
    std::uint64_t place = crashes_.size();
    if (place >= max && (place = rng_.below(crashes_met_)) >= max) continue;
    RecoveryCrash crash{
        crash_lines(lines, before, state), hash, lengths, first, then, chain_, fences_};
    crash.chain.hash[crash.chain.depth++] = hash;
    crash.fences += std::string(crash.fences.empty() ? "" : ", then before ") + "fence(\"" + first +
                    "\", \"" + then + "\")";
    if (place < crashes_.size()) {
      crashes_[place] = std::move(crash);
    } else {
      crashes_.push_back(std::move(crash));
    }
  }
}

}  // namespace TENUTO_NS::pm
