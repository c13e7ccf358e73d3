#include "crash/explore_run.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>
#include <utility>

#include "crash/interleave.h"
#include "pm/assert.h"
#include "pm/bare_forks.h"

namespace TENUTO_NS::pm {

namespace {

constexpr std::uint64_t kVisitsAlways = 2;     // of a fence, whatever points_percent is
constexpr std::uint64_t kComparedFirst = 4;    // memory is compared at the first crash points ...
constexpr std::uint64_t kComparedEvery = 128;  // ... and then at each one of so many
constexpr std::size_t kStderrShown = 600;

std::string fence_text(const char* first, const char* then) {
  return std::string("crash before fence(\"") + first + "\", \"" + then + "\")";
}

std::string phase_text(const WorkerReport& r) {
  if (r.chain.depth != 0) return std::string("recovery after recovery crashed before ") + r.fences;
  return r.phase == CrashPhase::second_recovery ? "second recovery" : "recovery";
}

}  // namespace

CrashExplorer::CrashExplorer(const CrashOptions& options, std::string directory)
    : options_(options),
      directory_(std::move(directory)),
      pool_(directory_ + "/pool"),
      images_(directory_ + "/images"),
      choice_rng_(hash_mix(options.seed ^ 0x706f696e74)) {
  void* p = ::mmap(nullptr, sizeof(WorkerReport), PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  TENUTO_ASSERT(p != MAP_FAILED);
  report_ = static_cast<WorkerReport*>(p);
  stderr_fd_ = ::memfd_create("tenuto-crash-stderr", MFD_CLOEXEC);
  TENUTO_ASSERT(stderr_fd_ >= 0 && ::fcntl(stderr_fd_, F_SETFL, O_APPEND) == 0);
  static std::uint64_t runs = 0;
  run_ = ++runs;
  if (const char* text = std::getenv("TENUTO_CRASH_REPLAY")) {
    replay_ = CrashCase::read(text);
    if (!replay_) {
      std::fprintf(stderr, "TENUTO_CRASH_REPLAY=%s is neither POINT:STATE nor a case file\n", text);
      std::exit(2);
    }
  }
}

CrashExplorer::~CrashExplorer() {
  ::munmap(report_, sizeof(WorkerReport));
  ::close(stderr_fd_);
  remove_pools();
}

void CrashExplorer::remove_pools() const {
  for (std::size_t f = 0; f < options_.files; ++f) ::unlink(crash_path(pool_, f).c_str());
}

CrashResult CrashExplorer::run(const CrashRunner::Setup& setup,
                               const CrashRunner::Workload& workload,
                               const CrashRunner::Check& check) {
  begin_ = std::chrono::steady_clock::now();
  Recorder& r = Recorder::instance();
  r.stop();
  r.clear_fences();
  setup(pool_);
  check_ = &check;
  TENUTO_ASSERT(options_.files >= 1 && options_.files <= kCrashFilesMax);
  TENUTO_ASSERT(::mkdir(images_.c_str(), 0700) == 0 || errno == EEXIST);
  image_.emplace(pool_, images_ + "/pool", options_.files);
  std::vector<TraceFile> watched;
  for (std::size_t f = 0; f < options_.files; ++f) {
    struct stat st {};
    TENUTO_ASSERT(::stat(crash_path(pool_, f).c_str(), &st) == 0);
    watched.push_back({st.st_dev, st.st_ino, (*image_)[f].durable()});
  }
  for (const std::string& name : options_.plants) plant(name);
  r.set_mutation(options_.mutation);
  r.watch(watched, this,
          {.locked_instructions_fence = options_.locked_instructions_fence,
           .lint = options_.lint && options_.mode != CrashMode::kill,
           .flush_sectors = options_.mode == CrashMode::page});
  CrashContext context(*this);
  workload(context);
  crash_point("the end");
  {
    const TraceLock lock;
    compare_memory("the end");
  }
  server_.stop();
  if (!dry_) add_lint();
  if (options_.progress) std::fputs("\r\033[K", stderr);
  r.stop();
  r.set_mutation({});
  if (!options_.plants.empty()) unplant_all();
  result_.seed = options_.seed;
  result_.fences = r.fences();
  const bool as_written = options_.plants.empty() && options_.mutation.kind == Mutation::Kind::none;
  if (!dry_ && as_written) tell_coverage();
  result_.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  image_.reset();
  ::rmdir(images_.c_str());
  return std::move(result_);
}

void CrashExplorer::expect_points_of(const CrashRunner::Setup& setup,
                                     const CrashRunner::Workload& workload) {
  dry_ = true;
  run(setup, workload, {});
  dry_ = false;
  points_expected_ = std::exchange(point_, 0);
  result_ = {};
  invoked_ = acknowledged_ = changes_ = order_before_ = image_hash_ = 0;
  model_told_ = false;
  remove_pools();
}

void CrashExplorer::show_progress() {
  const auto now = std::chrono::steady_clock::now();
  if (now - shown_ < std::chrono::milliseconds(200)) return;
  shown_ = now;
  constexpr std::uint64_t kWidth = 24;
  const std::uint64_t done =
      points_expected_ == 0 ? 0 : std::min(kWidth, point_ * kWidth / points_expected_);
  const double seconds = std::chrono::duration<double>(now - begin_).count();
  std::fprintf(stderr, "\r[%-*s] %llu of %llu crash points, %.0f states/s, %zu findings\033[K",
               static_cast<int>(kWidth), std::string(done, '#').c_str(),
               static_cast<unsigned long long>(point_),
               static_cast<unsigned long long>(points_expected_),
               static_cast<double>(result_.states) / seconds, result_.findings.size());
  std::fflush(stderr);
}

// For a test over all explorations of a project: one file for each process, one line for each
// fence.
void CrashExplorer::tell_coverage() const {
  const char* folder = std::getenv("TENUTO_CRASH_COVERAGE");
  if (folder == nullptr) return;
  std::ofstream out(std::string(folder) + "/" + std::to_string(::getpid()), std::ios::app);
  for (const FenceStats& f : result_.fences) {
    if (f.explored != 0) out << f.first << '|' << f.then << '\n';
  }
}

// A killed process loses nothing that it stored before the change. The first one sets the model up.
void CrashExplorer::before_change() {
  if (options_.mode != CrashMode::kill || !model_told_) return;
  Recorder::instance().drain_all();
  explore("crash before the model changes", nullptr, nullptr);
}

void CrashExplorer::invoke() {
  const TraceLock lock;
  before_change();
  ++invoked_;
  model_told_ = true;
}

void CrashExplorer::ack() {
  const TraceLock lock;
  before_change();
  acknowledged_ = invoked_;
  model_told_ = true;
  Recorder::instance().drain_all();
  Recorder::instance().checkpoint("an operation was acknowledged");
  explore("crash after operation " + std::to_string(acknowledged_) + " was acknowledged", nullptr,
          nullptr);
}

void CrashExplorer::update(const std::function<void()>& body) {
  const TraceLock lock;
  before_change();
  body();
  ++changes_;
  model_told_ = true;
}

void CrashExplorer::crash_point(const char* name) {
  const TraceLock lock;
  Recorder::instance().drain_all();
  explore(std::string("crash at ") + name, nullptr, nullptr);
}

void CrashExplorer::interleave(const std::vector<std::function<void()>>& bodies) {
  Interleaver(options_.seed, options_.switch_every).run(bodies);
}

void CrashExplorer::before_fence(const char* first, const char* then) {
  explore(fence_text(first, then), first, then);
}

void CrashExplorer::floor_raised(const LineLog& log, const LineWords& old_floor) {
  image_hash_ ^= line_hash(log.line, old_floor) ^ line_hash(log.line, log.floor);
  image_->set_durable(log.line, log.floor);
}

const std::byte* CrashExplorer::resized(std::size_t file, std::uint64_t bytes) {
  ExploreImage& image = (*image_)[file];
  if (bytes > image.bytes()) server_.stop();  // its mapping is too short
  image.resize(bytes);
  return image.durable();
}

std::uint64_t CrashExplorer::model_hash() const {
  std::uint64_t h = hash_mix(invoked_ + 1);
  h = hash_mix(h ^ acknowledged_) + 1;
  h = hash_mix(h ^ changes_);
  return model_told_ ? h : hash_mix(h ^ point_);
}

bool CrashExplorer::chosen(const char* first, const char* then) {
  if (dry_) return false;
  if (replay_) return replay_->point == point_ && (replay_->run == 0 || replay_->run == run_);
  if (stopped_) return false;
  if (options_.points_percent >= 100 || first == nullptr) return true;
  if (options_.points_percent == 0) return false;
  if (choice_rng_.below(100) < options_.points_percent) return true;
  for (const FenceStats& s : Recorder::instance().fences()) {
    if (std::strcmp(s.first, first) == 0 && std::strcmp(s.then, then) == 0) {
      return s.explored < kVisitsAlways;
    }
  }
  return true;
}

// Counts a crash point and, if it is chosen, judges its states. REQUIRES: the recorder's lock is
// held and everything is drained.
void CrashExplorer::explore(std::string where, const char* first, const char* then) {
  Recorder& r = Recorder::instance();
  ++point_;
  if (chosen(first, then)) {
    ++result_.points;
    CrashPoint m{r.lines(), {}, {}, std::move(where)};
    for (const LineLog* log : m.logs) {
      m.lines.push_back(choices_of(*log, reorders(options_), order_before_));
    }
    ExploreRng rng(hash_mix(options_.seed) + point_);
    m.states = crash_states(m.lines, {options_.product_max, options_.samples_max, options_.mode},
                            order_before_, rng);
    if (replay_ && !replay_->state) m.states = {replay_->state_of(m.lines)};
    judge(m, first, then);
    if (options_.progress) show_progress();
    if (point_ <= kComparedFirst || point_ % kComparedEvery == 0) compare_memory(m.where);
  }
  if (keeps_all(options_.mode)) r.raise_all();
  order_before_ = r.last_order();
}

WorkerJob CrashExplorer::job_for(const CrashPoint& m, std::vector<std::uint64_t> order) const {
  return {&m.lines,    &m.states,     std::move(order),
          image_hash_, model_hash(),  !replay_,
          invoked_,    acknowledged_, replay_ ? replay_->chain : CrashChain{}};
}

void CrashExplorer::judge(CrashPoint& m, const char* first, const char* then) {
  const std::uint64_t model = model_hash();
  const StateHashes changes(m.lines);
  std::vector<std::uint64_t> order;
  for (std::uint64_t i = 0; i < m.states.size(); ++i) {
    if (replay_ && replay_->state && i != *replay_->state) continue;
    if (seen_.insert(image_hash_ ^ changes(m.states[i]) ^ model)) order.push_back(i);
  }
  result_.states += m.states.size();
  result_.unique += order.size();
  if (!order.empty()) {
    const WorkerJob job = job_for(m, std::move(order));
    const Verdict v = run_worker(job);
    if (v.bad) add_finding(m, job.order[v.at], v);
  }
  if (first != nullptr) Recorder::instance().mark_explored(first, then);
}

void CrashExplorer::be_worker(const std::function<void()>& body) {
  if (!replay_) {
    ::dup2(stderr_fd_, STDERR_FILENO);
    const rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
  }
  Recorder::instance().after_fork();
  // In another thread, so that the check does not see the workload's thread-local state.
  std::thread(body).join();
  ::_exit(1);
}

// Lets a child judge the job. Returns the child's exit status, or nothing when it serves on.
std::optional<int> CrashExplorer::judge_in_child(const WorkerJob& job) {
  CrashWorker worker(options_, *check_, *image_, seen_, *report_);
  int status = 0;
  if (options_.counted_model && server_.put(job)) {
    if (!server_.running() && server_.start()) {
      be_worker([&] {
        server_.serve_until_the_end(
            [&](const WorkerJob& received) { return worker.run(received); });
      });
    }
    if (server_.judge(&status)) return std::nullopt;
    return status;
  }
  const pm::BareForks bare;
  const pid_t child = ::fork();
  TENUTO_ASSERT(child >= 0);
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a server sees its parent's end at the pipe instead
    be_worker([&] { ::_exit(worker.run(job) ? 0 : 1); });
  }
  while (::waitpid(child, &status, 0) < 0) TENUTO_ASSERT(errno == EINTR);
  return status;
}

std::string CrashExplorer::worker_stderr() const {
  struct stat st {};
  ::fstat(stderr_fd_, &st);
  const auto size = static_cast<std::size_t>(st.st_size);
  std::string text(std::min(size, kStderrShown), 0);
  const ssize_t n =
      ::pread(stderr_fd_, text.data(), text.size(), static_cast<off_t>(size - text.size()));
  text.resize(n < 0 ? 0 : static_cast<std::size_t>(n));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

CrashExplorer::Verdict CrashExplorer::run_worker(const WorkerJob& job) {
  std::memset(static_cast<void*>(report_), 0, sizeof *report_);
  TENUTO_ASSERT(::ftruncate(stderr_fd_, 0) == 0);
  const std::optional<int> status = judge_in_child(job);
  result_.checks += report_->checks;
  result_.recovery_states += report_->recovery_states;
  const bool ended_well = !status || (WIFEXITED(*status) && WEXITSTATUS(*status) == 0);
  if (ended_well && report_->complete) return {};
  image_->restore_all();
  Verdict v{true, report_->state, phase_text(*report_), report_->text, report_->chain};
  if (status && WIFSIGNALED(*status)) {
    const int signal = WTERMSIG(*status);
    v.what = signal == SIGALRM
                 ? "hung: no answer in " + std::to_string(options_.timeout.count()) + " ms"
                 : std::string("died: ") + ::strsignal(signal);
  } else if (v.what.empty()) {
    v.what = "the check ended the process";
  }
  if (const std::string err = worker_stderr(); !err.empty()) v.what += " [" + err + "]";
  return v;
}

}  // namespace TENUTO_NS::pm
