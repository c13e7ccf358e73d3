// A second implementation of tenuto/crash.h, for the plain build and medium journal. It opens and
// judges what a script leaves at its writes and syncs, as the traced explorer does.
// journal_crash.cc links it in place of the traced build's.
//
// It commits after each fence or after some, and before each change of the script's model, so that
// acknowledged operations are durable. At a write or sync of the pool or its journal it forks a
// child. The child lays out the files as a cut at that point may have left them: any 512-byte
// sectors of what was not durable, so that blocks are torn or missing and checkpoints half done. It
// opens them, which replays and recovers, and runs the script's check, with the model as it was
// then. That open is recorded, too, and cut once more.
//
// The linker passes fences and mapped pools to this file (--wrap in tests/CMakeLists.txt).
#include "support/journal_explorer.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "journal/journal.h"
#include "pm/bare_forks.h"
#include "support/explored_medium.h"
#include "support/io_record.h"
#include "support/pool_parts.h"
#include "tenuto/crash.h"

namespace TENUTO_NS {

namespace {

using test::IoRecord;
using test::JournalCuts;

constexpr unsigned kSecondsMax = 60;  // of one child
constexpr std::size_t kTextBytes = 4096;

// Set before main, because scripts ask for their pools' options before they run.
[[maybe_unused]] const bool medium_is_chosen = [] {
  test::explored_medium = Medium::journal;
  return true;
}();

std::atomic<pm::Journal*> open_journal = nullptr;  // of the pool that is in use
std::atomic<unsigned> commit_every = 0;            // one commit in about so many fences; 0: none
thread_local bool committing = false;

void commit() {
  pm::Journal* const j = open_journal.load();
  if (j == nullptr || committing) return;
  committing = true;
  static_cast<void>(j->sync());
  committing = false;
}

// Shared memory for the results of children.
struct Told {
  JournalCuts cuts;
  char wrong[kTextBytes];
};

}  // namespace

namespace pm {

class CrashWorker {
 public:
  static CrashImage image(const std::string& path, std::uint64_t invoked,
                          std::uint64_t acknowledged, std::function<void()> on_recovered) {
    CrashImage i;
    i.path_ = path;
    i.invoked_ = invoked;
    i.acknowledged_ = acknowledged;
    i.on_recovered_ = std::move(on_recovered);
    return i;
  }
};

class CrashExplorer {
  test::TempPath pool_{"journal-explorer"};

 public:
  CrashExplorer(const CrashOptions& options, const CrashRunner::Check& check)
      : path(pool_.str()), options_(options), check_(check), rng_(options.seed) {
    void* p =
        ::mmap(nullptr, sizeof(Told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    told_ = new (p) Told{};
  }
  ~CrashExplorer() { ::munmap(told_, sizeof(Told)); }
  CrashExplorer(const CrashExplorer&) = delete;
  CrashExplorer& operator=(const CrashExplorer&) = delete;

  CrashResult run(const CrashRunner::Setup& setup, const CrashRunner::Workload& workload) {
    setup(path);
    {
      IoRecord record({path, journal_.str()});
      record_ = &record;
      record.watch([this](std::size_t at) { on_event(at); });
      CrashContext context(*this);
      commit_every = options_.seed % 2 == 0 ? 3 : 1;
      // Mistakes of the medium are active in the workload and in recoveries, but not in the setup.
      for (const std::string& name : options_.plants) plant(name);
      workload(context);
      if (!options_.plants.empty()) unplant_all();
      commit_every = 0;
      record.stop();
    }
    CrashResult r;
    r.seed = options_.seed;
    r.states = r.checks = told_->cuts.states;
    r.recovery_states = told_->cuts.in_replay;
    test::journal_cuts += told_->cuts;
    if (told_->wrong[0] != 0) {
      CrashFinding f;
      f.what = told_->wrong;
      r.findings.push_back(f);
    }
    return r;
  }

  void change(const std::function<void()>& body) {
    commit();
    const std::lock_guard lock(mu);
    body();
  }

  const std::string& path;
  std::mutex mu;                   // guards the model and forks
  std::uint64_t invoked = 0;       // guarded by mu
  std::uint64_t acknowledged = 0;  // guarded by mu

 private:
  void on_event(std::size_t at) {
    const std::lock_guard lock(mu);
    if (told_->wrong[0] != 0 || until_next_-- > 0) return;
    until_next_ = rng_() % (2 * test::journal_events_per_cut);
    const std::uint64_t seed = rng_();
    const pm::BareForks bare;
    const pid_t child = ::fork();
    if (child == 0) {
      IoRecord::forked();
      open_journal = nullptr;
      committing = false;
      rng_.seed(seed);
      ::alarm(kSecondsMax);
      judge(at);
      ::_exit(0);
    }
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (told_->wrong[0] == 0 && status != 0) {
      tell(at, WIFSIGNALED(status) ? std::string("died of ") + ::strsignal(WTERMSIG(status))
                                   : std::string("ended early"));
    }
  }

  // --- in the child
  void judge(std::size_t at) {
    const IoRecord::Event& e = record_->events()[at];
    JournalCuts& cuts = told_->cuts;
    const bool sync = e.kind == IoRecord::Event::Kind::sync;
    const bool head = e.file == 1 && !sync && e.offset < kJournalRingOffset;
    (sync          ? cuts.at_syncs
     : head        ? cuts.at_headers
     : e.file == 1 ? cuts.at_blocks
                   : cuts.at_pool) += 1;
    const auto rest = rng_() % 2 == 0 ? IoRecord::Loss::all : IoRecord::Loss::none;
    for (const auto loss : {IoRecord::Loss::random, rest}) {
      lay_out(record_->cut(at, loss, rng_));
      const bool again = rng_() % 2 == 0;
      cuts.states += 1;
      std::vector<std::vector<char>> files;
      std::string wrong = check(again ? &files : nullptr);
      if (wrong.empty() && again) {
        lay_out(files);
        cuts.in_replay += 1;
        wrong = check(nullptr);
        if (!wrong.empty()) wrong = "recovery was cut: " + wrong;
      }
      if (!wrong.empty()) return tell(at, wrong);
    }
  }

  // If cut_again is set, it gets the files that a cut somewhere in this recovery leaves.
  std::string check(std::vector<std::vector<char>>* cut_again) {
    commit_every = 1 + rng_() % 2;
    IoRecord record({image_.str(), image_journal_.str()});
    const auto recovered = [&] {
      record.stop();
      commit_every = 1;  // what the check does next is durable once it is fenced
    };
    const std::string wrong =
        check_(CrashWorker::image(image_.str(), invoked, acknowledged, recovered));
    record.stop();
    if (cut_again != nullptr && !record.events().empty()) {
      *cut_again = record.cut(rng_() % record.events().size(), IoRecord::Loss::random, rng_);
    }
    return wrong;
  }

  void lay_out(const std::vector<std::vector<char>>& files) const {
    if (files.empty()) return;
    test::write_whole(image_.str(), files[0]);
    test::write_whole(image_journal_.str(), files[1]);
  }

  void tell(std::size_t at, const std::string& what) {
    const std::string text = "event " + std::to_string(at) + ": " + what;
    std::strncpy(told_->wrong, text.c_str(), kTextBytes - 1);
  }

  const CrashOptions& options_;
  const CrashRunner::Check& check_;
  test::TempPath journal_{"journal-explorer.journal"};
  test::TempPath image_{"journal-explorer-image"};
  test::TempPath image_journal_{"journal-explorer-image.journal"};
  IoRecord* record_ = nullptr;
  Told* told_;
  std::mt19937_64 rng_;           // guarded by mu
  std::uint64_t until_next_ = 0;  // guarded by mu: events until the next cut
};

}  // namespace pm

// --- tenuto/crash.h ------------------------------------------------------------------------------

const std::string& CrashContext::path() const { return explorer_.path; }
void CrashContext::invoke() {
  explorer_.change([this] { explorer_.invoked += 1; });
}
void CrashContext::ack() {
  explorer_.change([this] { explorer_.acknowledged = explorer_.invoked; });
}
void CrashContext::update(const std::function<void()>& body) { explorer_.change(body); }
// The machine's scheduler chooses the switches, not the seed.
void CrashContext::interleave(const std::vector<std::function<void()>>& bodies) {
  std::vector<std::thread> threads;
  for (const auto& body : bodies) threads.emplace_back(body);
  for (std::thread& t : threads) t.join();
}
void CrashImage::recovered() const { on_recovered_(); }

CrashResult CrashRunner::run(const Setup& setup, const Workload& workload,
                             const Check& check) const {
  return pm::CrashExplorer(options_, check).run(setup, workload);
}

}  // namespace TENUTO_NS

// --- the linker's --wrap -------------------------------------------------------------------------

extern "C" {
void __real__ZN6tenuto2v12pm10fence_coldEv();
void __wrap__ZN6tenuto2v12pm10fence_coldEv() {
  __real__ZN6tenuto2v12pm10fence_coldEv();
  static std::atomic<std::uint64_t> fences = 0;
  const unsigned every = tenuto::commit_every;
  if (every != 0 && fences.fetch_add(1) % every == 0) tenuto::commit();
}

bool __real__ZN6tenuto2v12pm15register_regionEPKvmNS0_6MediumEbPNS1_9FlushSinkE(
    const void*, std::uint64_t, tenuto::Medium, bool, tenuto::pm::FlushSink*);
bool __wrap__ZN6tenuto2v12pm15register_regionEPKvmNS0_6MediumEbPNS1_9FlushSinkE(
    const void* base, std::uint64_t bytes, tenuto::Medium medium, bool delays,
    tenuto::pm::FlushSink* sink) {
  if (sink != nullptr) tenuto::open_journal = static_cast<tenuto::pm::Journal*>(sink);
  return __real__ZN6tenuto2v12pm15register_regionEPKvmNS0_6MediumEbPNS1_9FlushSinkE(
      base, bytes, medium, delays, sink);
}

void __real__ZN6tenuto2v12pm7JournalD1Ev(tenuto::pm::Journal*);
void __wrap__ZN6tenuto2v12pm7JournalD1Ev(tenuto::pm::Journal* j) {
  tenuto::pm::Journal* open = j;
  tenuto::open_journal.compare_exchange_strong(open, nullptr);
  __real__ZN6tenuto2v12pm7JournalD1Ev(j);
}
}
