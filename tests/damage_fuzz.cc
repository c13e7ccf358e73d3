// Flips every bit of a small pool of each kind, zeroes every line and every page of it, and
// exchanges pages. Each damage is harmless or reported, as support/damaged_pool.h describes.
//
// TENUTO_DAMAGE_STEP=N looks at one state of N (1: all of them), and TENUTO_SEED chooses which.
// TENUTO_DAMAGE_JOBS sets the number of processes. TENUTO_DAMAGE_STATE=N judges one state in this
// process, for a debugger.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <thread>

#include "support/damaged_pool.h"
#include "support/seed.h"

namespace tenuto::test {
namespace {

constexpr unsigned kAlarmSeconds = 300;  // for one state, with sanitizers and on a busy machine
constexpr std::size_t kShownMax = 40;    // offences that are printed

const std::vector<DamageBase>& bases() {
  static const std::vector<DamageBase> all = damage_bases();
  return all;
}

struct State {
  const DamageBase* base;
  Bytes& image;
  std::string what;
};

// The base as it was. It uses the memory of this thread's last state, and copies anew the pages
// that may have been damaged.
Bytes& whole_image(const DamageBase& base) {
  thread_local std::map<const DamageBase*, Bytes> images;
  Bytes& image = images[&base];
  if (image.empty()) image.resize(base.image.size());
  for (const std::size_t page : base.pages) {
    std::copy_n(base.image.begin() + static_cast<std::ptrdiff_t>(page), kFrameBytes,
                image.begin() + static_cast<std::ptrdiff_t>(page));
  }
  return image;
}

// One kind of damage: the number of its states, and the n-th of them.
class Kind {
 public:
  virtual ~Kind() = default;
  virtual std::uint64_t states(const DamageBase& base) const = 0;
  virtual void damage(const DamageBase& base, std::uint64_t n, State& out) const = 0;

  std::uint64_t all() const {
    std::uint64_t n = 0;
    for (const DamageBase& b : bases()) n += states(b);
    return n;
  }
  State state(std::uint64_t n) const {
    for (const DamageBase& b : bases()) {
      const std::uint64_t here = states(b);
      if (n >= here) {
        n -= here;
        continue;
      }
      State s{&b, whole_image(b), {}};
      damage(b, n, s);
      return s;
    }
    std::abort();
  }
};

class Flips : public Kind {
  static constexpr std::uint64_t kBits = kLineBytes * 8;
  std::uint64_t states(const DamageBase& base) const override { return base.lines.size() * kBits; }
  void damage(const DamageBase& base, std::uint64_t n, State& out) const override {
    const std::size_t byte = base.lines[n / kBits] + n % kBits / 8;
    out.image[byte] ^= static_cast<unsigned char>(1u << n % 8);
    out.what = "bit " + std::to_string(n % 8) + " of byte " + std::to_string(byte) + " (" +
               place_name(base, byte) + ")";
  }
};

class ZeroedLines : public Kind {
  std::uint64_t states(const DamageBase& base) const override { return base.lines.size(); }
  void damage(const DamageBase& base, std::uint64_t n, State& out) const override {
    const std::size_t at = base.lines[n];
    std::fill_n(out.image.begin() + static_cast<std::ptrdiff_t>(at), kLineBytes, 0);
    out.what = "zeroed line " + std::to_string(at) + " (" + place_name(base, at) + ")";
  }
};

class ZeroedPages : public Kind {
  std::uint64_t states(const DamageBase& base) const override { return base.pages.size(); }
  void damage(const DamageBase& base, std::uint64_t n, State& out) const override {
    const std::size_t at = base.pages[n];
    std::fill_n(out.image.begin() + static_cast<std::ptrdiff_t>(at), kFrameBytes, 0);
    out.what = "zeroed page " + std::to_string(at) + " (" + place_name(base, at) + ")";
  }
};

// Each page is exchanged with each other one, or written over it.
class MovedPages : public Kind {
  std::uint64_t states(const DamageBase& base) const override {
    const std::uint64_t n = base.pages.size();
    return n * (n - 1);
  }
  void damage(const DamageBase& base, std::uint64_t n, State& out) const override {
    const std::vector<std::size_t>& pages = base.pages;
    const std::size_t a = n / (pages.size() - 1);
    const std::size_t other = n % (pages.size() - 1);
    const std::size_t b = other + (other >= a ? 1 : 0);
    unsigned char* const p = out.image.data();
    if (a < b) {
      std::swap_ranges(p + pages[a], p + pages[a] + kFrameBytes, p + pages[b]);
    } else {
      std::copy_n(p + pages[a], kFrameBytes, p + pages[b]);
    }
    out.what = "page " + std::to_string(pages[a]) + (a < b ? " exchanged with " : " over ") +
               std::to_string(pages[b]) + " (" + place_name(base, pages[a]) + ", " +
               place_name(base, pages[b]) + ")";
  }
};

struct Shared {
  std::uint64_t state;
  std::uint64_t judged;
  char wrong[400];
};

struct Part {
  std::uint64_t next;  // states of this process are next, next + by, ...
  std::uint64_t by;
};

std::string judged(const State& s, std::uint64_t n, const std::string& path) {
  JudgeOptions how;
  how.path = path;
  how.writes = n % 2 == 0;
  how.rescue = n % 4 == 1;
  how.apart = n % 4 == 2;
  return judge_damage(*s.base, s.image, how);
}

// The main of a child process. It ends with status 1 at the first state that is wrong.
[[noreturn]] void judge_part(const Kind& kind, Part part, std::uint64_t end, Shared& shared,
                             const std::string& path) {
  for (std::uint64_t n = part.next; n < end; n += part.by) {
    shared.state = n;
    ::alarm(kAlarmSeconds);
    const std::string wrong = judged(kind.state(n), n / part.by, path);
    shared.judged += 1;
    if (wrong.empty()) continue;
    std::snprintf(shared.wrong, sizeof shared.wrong, "%s", wrong.c_str());
    std::_Exit(1);
  }
  std::_Exit(0);
}

class Damage : public testing::Test {
 protected:
  void judge_all(const Kind& kind, std::uint64_t step) {
    ASSERT_FALSE(bases().empty() || HasFailure());
    if (const std::uint64_t one = from_env("TENUTO_DAMAGE_STATE", ~0ull); one != ~0ull) {
      TempPath path("damage");
      const State s = kind.state(one);
      std::printf("%s: %s\n", s.base->name.c_str(), s.what.c_str());
      JudgeOptions how;
      how.path = path.str();
      ASSERT_EQ(judge_damage(*s.base, s.image, how), "");
      return;
    }
    step = from_env("TENUTO_DAMAGE_STEP", step);
    const std::uint64_t seed = from_env("TENUTO_SEED", 1);
    const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
    const std::uint64_t jobs = from_env("TENUTO_DAMAGE_JOBS", cores);
    const std::uint64_t end = kind.all();
    std::vector<Part> parts(jobs);
    for (std::uint64_t j = 0; j < jobs; ++j) {
      parts[j] = {seed * 0x9e3779b97f4a7c15ull % step + j * step, jobs * step};
    }
    judge_parts(kind, parts, end);
    std::printf("%llu of %llu states\n", static_cast<unsigned long long>(judged_),
                static_cast<unsigned long long>(end));
    EXPECT_GT(judged_, 0u);
    std::map<std::string, std::size_t> counts;
    for (const auto& [n, wrong] : offences_) {
      const State s = kind.state(n);
      counts[s.base->name + ", " + s.what.substr(s.what.find('(')) + ": " +
             wrong.substr(0, wrong.find(" ("))] += 1;
      if (&wrong - &offences_[0].second > 0 && counts.size() > kShownMax) continue;
      ADD_FAILURE() << "TENUTO_DAMAGE_STATE=" << n << ", " << s.base->name << ": " << s.what << ": "
                    << wrong;
    }
    for (const auto& [what, count] : counts) std::printf("%6zu %s\n", count, what.c_str());
  }

 private:
  // Runs a process for each part. If one ends early, its state is an offence, and a new process
  // goes on behind that state. This process has only one thread, because a child of a threaded
  // process may wait for a lock that is never released (AddressSanitizer's allocator has such
  // locks).
  void judge_parts(const Kind& kind, std::vector<Part>& parts, std::uint64_t end) {
    const std::size_t bytes = parts.size() * sizeof(Shared);
    auto* const shared = static_cast<Shared*>(
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(static_cast<void*>(shared), MAP_FAILED);
    std::deque<TempPath> paths;
    std::map<pid_t, std::size_t> running;  // process to number of its part
    const auto go_on = [&](std::size_t j) {
      if (parts[j].next >= end) return;
      shared[j].wrong[0] = '\0';
      const pid_t pid = ::fork();
      ASSERT_GE(pid, 0);
      if (pid == 0) judge_part(kind, parts[j], end, shared[j], paths[j].str());
      running[pid] = j;
    };
    for (std::size_t j = 0; j < parts.size(); ++j)
      paths.emplace_back("damage-" + std::to_string(j));
    for (std::size_t j = 0; j < parts.size(); ++j) go_on(j);
    while (!running.empty()) {
      int status = 0;
      const auto at = running.find(::waitpid(-1, &status, 0));
      if (at == running.end()) continue;
      const std::size_t j = at->second;
      running.erase(at);
      if (status == 0) continue;
      std::string wrong = shared[j].wrong;
      if (WIFSIGNALED(status)) wrong = std::string("signal ") + ::strsignal(WTERMSIG(status));
      if (wrong.empty()) wrong = "ended by itself";
      offences_.emplace_back(shared[j].state, wrong);
      parts[j].next = shared[j].state + parts[j].by;
      go_on(j);
    }
    for (std::size_t j = 0; j < parts.size(); ++j) judged_ += shared[j].judged;
    ::munmap(shared, bytes);
  }

  std::vector<std::pair<std::uint64_t, std::string>> offences_;
  std::uint64_t judged_ = 0;
};

TEST_F(Damage, a_flipped_bit_is_harmless_or_reported) {
  judge_all(Flips(), kSanitized ? 1009 : 503);
}
TEST_F(Damage, a_zeroed_line_is_harmless_or_reported) { judge_all(ZeroedLines(), 5); }
TEST_F(Damage, a_zeroed_page_is_harmless_or_reported) { judge_all(ZeroedPages(), 1); }
TEST_F(Damage, a_page_at_the_place_of_another_is_harmless_or_reported) {
  judge_all(MovedPages(), 13);
}

}  // namespace
}  // namespace tenuto::test
