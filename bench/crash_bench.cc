// The speed of the crash explorer. The workload transfers money between accounts under an undo log,
// on a raw mapped file. One check touches a few pages, the other one reads 256 KiB.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "tenuto/crash.h"
#include "tenuto/persist.h"

namespace {

using namespace tenuto;

constexpr std::uint64_t kAccounts = 4096;
constexpr std::uint64_t kBalance = 1000;
constexpr std::uint64_t kAccountBytes = 64;  // one line each, 256 KiB in total
constexpr std::uint64_t kAccountsAt = 4096;

struct Options {
  std::uint64_t pool_mib = 64;
  std::uint64_t transfers = 1000;
  std::uint64_t seed = 1;
  std::uint64_t rounds = 3;
  std::string json;
};

// The undo entries of one transfer; valid while `state` holds that transfer's number.
struct Log {
  std::uint64_t state;  // 0: no transfer in progress
  std::uint64_t account[2];
  std::uint64_t balance[2];
  std::uint64_t done;  // transfers, all of them durable
};

class Bank {
 public:
  explicit Bank(std::byte* base) : base_(base) {}
  Log& log() const { return *reinterpret_cast<Log*>(base_); }
  std::uint64_t& account(std::uint64_t i) const {
    return *reinterpret_cast<std::uint64_t*>(base_ + kAccountsAt + i * kAccountBytes);
  }

  void transfer(std::uint64_t n, std::uint64_t from, std::uint64_t to) const {
    Log& l = log();
    l.account[0] = from;
    l.account[1] = to;
    l.balance[0] = account(from);
    l.balance[1] = account(to);
    flush(l);
    fence("undo entries", "transfer begins");
    publish(l.state, n);
    fence("transfer begins", "accounts change");
    account(from) -= 1;
    account(to) += 1;
    flush(account(from));
    flush(account(to));
    fence("accounts", "transfer ends");
    store_ordered(l.done, n);
    publish(l.state, 0);
    fence("transfer ends", "it returns");
  }

  void recover() const {
    Log& l = log();
    if (l.state == 0 || l.done == l.state) return;
    for (int i = 0; i < 2; ++i) {
      account(l.account[i]) = l.balance[i];
      flush(account(l.account[i]));
    }
    fence("accounts rolled back", "log retired");
    publish(l.state, 0);
    fence("log retired", "use");
  }

 private:
  std::byte* base_;
};

struct Transfer {
  std::uint64_t from, to;
};

std::vector<Transfer> transfers_of(const Options& o) {
  std::vector<Transfer> all;
  std::mt19937_64 rng(o.seed);
  for (std::uint64_t i = 0; i < o.transfers; ++i) {
    const std::uint64_t from = rng() % kAccounts;
    all.push_back({from, (from + 1 + rng() % (kAccounts - 1)) % kAccounts});
  }
  return all;
}

void make_pool(const std::string& path, const Options& o) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  std::vector<std::byte> head(kAccountsAt + kAccounts * kAccountBytes);
  const Bank bank(head.data());
  for (std::uint64_t i = 0; i < kAccounts; ++i) bank.account(i) = kBalance;
  if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(o.pool_mib << 20)) != 0 ||
      ::pwrite(fd, head.data(), head.size(), 0) != static_cast<ssize_t>(head.size())) {
    std::perror(("crash_bench: cannot make " + path).c_str());
    std::exit(1);
  }
  ::close(fd);
}

struct Case {
  const char* name;
  bool reads_all;
};

CrashResult explore(const Options& o, const Case& c) {
  const std::vector<Transfer> script = transfers_of(o);
  CrashOptions options;
  options.seed = o.seed;
  options.counted_model = true;
  const auto workload = [&](CrashContext& context) {
    const CrashMapping map(context.path());
    const Bank bank(map.data());
    std::uint64_t n = 0;
    for (const Transfer& t : script) {
      context.invoke();
      bank.transfer(++n, t.from, t.to);
      context.ack();
    }
  };
  const auto check = [&](const CrashImage& image) -> std::string {
    const Bank bank(image.data().data());
    bank.recover();
    const std::uint64_t done = bank.log().done;
    if (done < image.acknowledged() || done > image.invoked()) return "wrong count";
    if (c.reads_all) {
      std::uint64_t sum = 0;
      for (std::uint64_t i = 0; i < kAccounts; ++i) sum += bank.account(i);
      if (sum != kAccounts * kBalance) return "money was lost or made";
      return {};
    }
    // The accounts of the latest transfers: no balance may exceed twice the initial one.
    std::uint64_t i = done > 2 ? done - 2 : 0;
    for (; i < script.size() && i < done + 1; ++i) {
      if (bank.account(script[i].from) > 2 * kBalance) return "an account ran wild";
    }
    return {};
  };
  return CrashRunner(options).run([&](const std::string& path) { make_pool(path, o); }, workload,
                                  check);
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  CLI::App app("Speed of the crash explorer: states, distinct states and checks a second.");
  app.add_option("--pool-mib", o.pool_mib, "size of the pool file")->check(CLI::Range(1, 4096));
  app.add_option("--transfers", o.transfers, "operations of the workload")
      ->check(CLI::Range(1, 1000000));
  app.add_option("--seed", o.seed, "of accounts and states");
  app.add_option("--rounds", o.rounds, "of which the median is shown")->check(CLI::Range(1, 99));
  app.add_option("--json", o.json, "write the figures here");
  CLI11_PARSE(app, argc, argv);
  std::string json;
  for (const Case& c : {Case{"few pages", false}, Case{"256 KiB", true}}) {
    std::vector<CrashResult> runs;
    for (std::uint64_t i = 0; i < o.rounds; ++i) runs.push_back(explore(o, c));
    std::sort(runs.begin(), runs.end(),
              [](const CrashResult& a, const CrashResult& b) { return a.seconds < b.seconds; });
    const CrashResult& r = runs[runs.size() / 2];
    if (!r.ok()) {
      fmt::print(stderr, "{}", r.text());
      return 1;
    }
    const auto rate = [&](std::uint64_t n) { return static_cast<double>(n) / r.seconds; };
    fmt::print(
        "check of {:9}: {} states ({:.0f}/s), {} distinct ({:.0f}/s), {} checks ({:.0f}/s), "
        "{} in recovery, {:.2f} s\n",
        c.name, r.states, rate(r.states), r.unique, rate(r.unique), r.checks, rate(r.checks),
        r.recovery_states, r.seconds);
    json += fmt::format(
        "{}{{\"check\": \"{}\", \"states\": {}, \"distinct\": {}, \"checks\": {}, "
        "\"recovery_states\": {}, \"seconds\": {:.4f}}}",
        json.empty() ? "" : ",\n ", c.name, r.states, r.unique, r.checks, r.recovery_states,
        r.seconds);
  }
  if (!o.json.empty()) std::ofstream(o.json) << "[" << json << "]\n";
  return 0;
}
