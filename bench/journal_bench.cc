// The parts of medium `journal`: the cost of a line image compared with CLWB and SFENCE, and the
// ways of making a block durable on a disk. Rounds are interleaved; bench/README.md has more.
#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "bench/support/clock.h"
#include "bench/support/process.h"
#include "bench/support/rng.h"
#include "bench/support/spread.h"
#include "bench/support/tenuto_medium.h"
#include "tenuto/persist.h"
#include "tenuto/pool.h"

namespace {

using namespace bench;
using tenuto::Medium;
using tenuto::Pool;

struct Options {
  std::vector<std::string> cases = {"capture", "write"};
  std::vector<std::string> media = {"journal", "line", "cache"};
  std::vector<std::uint64_t> lines = {16, 16 << 10, 1 << 20};
  std::vector<unsigned> per_fence = {1, 2, 4};
  std::vector<unsigned> threads = {1};
  std::vector<std::size_t> block_bytes = {4096, 16384, 65536};
  std::uint64_t flushes = 400'000;
  std::uint64_t writes = 2000;
  unsigned rounds = 5;
  std::string pool_dir = "/dev/shm";
  std::string dir = "/var/tmp";
  std::string json;
  bool quick = false;
};

constexpr std::uint64_t kLineBytes = tenuto::kLineBytes;
constexpr std::uint64_t kLinesMax = 4u << 20;
// Flushes between two commits. Their line images stay below an eighth of the ring, at which a flush
// itself commits.
constexpr std::uint64_t kFlushesPerCommit = 60'000;

bool refuse(const std::string& what) {
  fmt::print(stderr, "journal_bench: {}\n", what);
  return false;
}

// --- line images ---------------------------------------------------------------------------------

struct FlushSetting {
  std::string medium;
  std::uint64_t lines = 0;
  unsigned per_fence = 1;
  unsigned threads = 1;
  auto operator<=>(const FlushSetting&) const = default;
};

struct FlushFigures {
  std::vector<double> ns;          // per line: store, flush and a share of the fence
  std::vector<double> ns_commits;  // the same with the commits that follow (to memory)
};

// The work of one thread: stores a word in a line, flushes it, and fences after `per_fence` lines.
void flush_lines(std::byte* area, const std::vector<std::uint32_t>& order, std::uint64_t& at,
                 std::uint64_t count, unsigned per_fence) {
  unsigned in_group = 0;
  for (std::uint64_t i = 0; i < count; ++i, ++at) {
    auto* word = reinterpret_cast<std::uint64_t*>(area + order[at % order.size()] * kLineBytes);
    *word = at;
    tenuto::flush_bytes(word, sizeof *word);
    if (++in_group < per_fence) continue;
    tenuto::fence("a line of the benchmark", "the next");
    in_group = 0;
  }
}

// Each thread has its own lines, in its own order.
std::vector<std::vector<std::uint32_t>> orders_of(const FlushSetting& s) {
  std::vector<std::vector<std::uint32_t>> orders(s.threads);
  Rng rng(42);
  for (std::uint64_t i = 0; i < s.lines; ++i) {
    orders[i % s.threads].push_back(static_cast<std::uint32_t>(i));
  }
  for (auto& order : orders) {
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng.below(i)]);
  }
  return orders;
}

double seconds_on_threads(unsigned threads, const auto& body) {
  const std::uint64_t start = ticks();
  std::vector<std::thread> others;
  for (unsigned t = 1; t < threads; ++t) others.emplace_back(body, t);
  body(0);
  for (std::thread& t : others) t.join();
  return seconds_of(ticks() - start);
}

// Each medium has files of its own, and only one pool is open at a time. With several open pools,
// each flush must look up its pool.
bool measure_flushes(const Options& o, const std::string& dir, const FlushSetting& s,
                     FlushFigures& to) {
  const std::optional<Medium> medium = medium_of(s.medium);
  if (!medium) return false;
  tenuto::PoolOptions how;
  how.medium = *medium;
  how.size = s.lines * kLineBytes + (64u << 20);
  how.journal.sync_every_ms = 0;
  const std::string path = dir + "/flush.tnt";
  tenuto::Report report;
  tenuto::Result<Pool> pool = Pool::create(path, how, &report);
  if (!pool) return refuse(report.text());
  const tenuto::Result<void*> area = pool->root("lines", s.lines * kLineBytes, &report);
  if (!area) return refuse(report.text());
  auto* base = static_cast<std::byte*>(*area);
  const auto orders = orders_of(s);
  std::vector<std::uint64_t> at(s.threads, 0);
  const auto play = [&](std::uint64_t count) {
    return seconds_on_threads(s.threads, [&](unsigned t) {
      flush_lines(base, orders[t], at[t], count / s.threads, s.per_fence);
    });
  };
  // Warm-up: touches pages and grows tables.
  for (std::uint64_t done = 0; done < std::max(s.lines, 2 * kFlushesPerCommit);
       done += kFlushesPerCommit) {
    play(kFlushesPerCommit);
    if (pool->sync() != tenuto::Status::ok) return refuse("a commit failed");
  }
  double flushing = 0;
  double all = 0;
  std::uint64_t flushed = 0;
  while (flushed < o.flushes) {
    const std::uint64_t start = ticks();
    flushing += play(kFlushesPerCommit);
    if (pool->sync() != tenuto::Status::ok) return refuse("a commit failed");
    all += seconds_of(ticks() - start);
    flushed += kFlushesPerCommit;
  }
  to.ns.push_back(flushing * 1e9 * s.threads / static_cast<double>(flushed));
  to.ns_commits.push_back(all * 1e9 * s.threads / static_cast<double>(flushed));
  return pool->close() == tenuto::Status::ok || refuse("a close failed");
}

std::string flush_json(const FlushSetting& s, const FlushFigures& f, unsigned rounds) {
  JsonLine line;
  line.text("bench", "journal").text("case", "capture").text("medium", s.medium);
  line.integer("lines", s.lines).integer("lines_per_fence", s.per_fence);
  line.integer("threads", s.threads).integer("rounds", rounds);
  line.raw("ns_per_line", json_of(spread_of(f.ns)));
  line.raw("ns_per_line_with_commits", json_of(spread_of(f.ns_commits)));
  return line.str();
}

bool run_captures(const Options& o, std::vector<std::string>& json) {
  Scratch scratch;
  if (!scratch.create(o.pool_dir, "tenuto-bench")) return refuse("no scratch directory");
  std::map<FlushSetting, FlushFigures> figures;
  for (unsigned round = 0; round < o.rounds; ++round) {
    for (const unsigned threads : o.threads) {
      for (const std::uint64_t lines : o.lines) {
        for (const unsigned per_fence : o.per_fence) {
          for (const std::string& medium : o.media) {
            if (interrupted()) return false;
            const FlushSetting s{medium, lines, per_fence, threads};
            if (!measure_flushes(o, scratch.path(), s, figures[s])) return false;
            scratch.clear();
          }
        }
      }
    }
  }
  fmt::print("\nimages: store, flush, and a fence each so many lines; ns a line, {} rounds on {}\n",
             o.rounds, file_system_name(scratch.path()));
  fmt::print("{:>8}{:>10}{:>12}", "threads", "lines", "per fence");
  for (const std::string& medium : o.media) fmt::print("{:>24}", medium);
  fmt::print("{:>14}{:>22}\n", "with commits", o.media.front() + "/" + o.media[o.media.size() > 1]);
  for (const auto& [first, unused] : figures) {
    if (first.medium != o.media.front()) continue;
    fmt::print("{:>8}{:>10}{:>12}", first.threads, first.lines, first.per_fence);
    FlushSetting s = first;
    for (const std::string& medium : o.media) {
      s.medium = medium;
      const Spread ns = spread_of(figures[s].ns);
      fmt::print("{:>24}", fmt::format("{} ({}..{})", short_number(ns.median), short_number(ns.min),
                                       short_number(ns.max)));
      json.push_back(flush_json(s, figures[s], o.rounds));
    }
    s.medium = o.media[o.media.size() > 1];
    const std::optional<Spread> ratio = ratio_of(figures[first].ns, figures[s].ns);
    fmt::print("{:>14}{:>22}\n", median_text(figures[first].ns_commits),
               fmt::format("{:.2f} ({:.2f}..{:.2f})", ratio->median, ratio->min, ratio->max));
  }
  return true;
}

// --- the disk ------------------------------------------------------------------------------------

// How each block is made durable.
struct WriteKind {
  const char* name;
  int flags;       // of open, beside O_RDWR
  bool fdatasync;  // after each write
  enum { zeros, reserved, empty } file;
};
constexpr std::array kWriteKinds = {
    WriteKind{"zeros, O_DIRECT|O_DSYNC", O_DIRECT | O_DSYNC, false, WriteKind::zeros},
    WriteKind{"zeros, O_DIRECT, fdatasync", O_DIRECT, true, WriteKind::zeros},
    WriteKind{"zeros, O_DSYNC", O_DSYNC, false, WriteKind::zeros},
    WriteKind{"zeros, fdatasync", 0, true, WriteKind::zeros},
    WriteKind{"fallocate, O_DIRECT|O_DSYNC", O_DIRECT | O_DSYNC, false, WriteKind::reserved},
    WriteKind{"fallocate, fdatasync", 0, true, WriteKind::reserved},
    WriteKind{"append, fdatasync", 0, true, WriteKind::empty},
};

struct FreeBytes {
  void operator()(char* p) const { std::free(p); }
};

bool prepare_file(const std::string& path, const WriteKind& kind, std::uint64_t bytes) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  bool made = fd >= 0;
  if (made && kind.file == WriteKind::reserved) {
    made = ::posix_fallocate(fd, 0, static_cast<off_t>(bytes)) == 0;
  } else if (made && kind.file == WriteKind::zeros) {
    const std::vector<char> zeros(1u << 20);
    for (std::uint64_t at = 0; made && at < bytes; at += zeros.size()) {
      const std::size_t n = std::min<std::uint64_t>(zeros.size(), bytes - at);
      made = ::pwrite(fd, zeros.data(), n, static_cast<off_t>(at)) == static_cast<ssize_t>(n);
    }
  }
  made = made && ::fsync(fd) == 0;
  if (fd >= 0) ::close(fd);
  return made;
}

struct WriteFigures {
  std::vector<double> per_second;
  Histogram latency;
};

bool measure_writes(const Options& o, const std::string& dir, const WriteKind& kind,
                    std::size_t block, WriteFigures& to) {
  const std::string path = dir + "/blocks";
  if (!prepare_file(path, kind, o.writes * block)) return refuse(std::strerror(errno));
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | kind.flags);
  if (fd < 0) {
    fmt::print("{}: {} cannot be opened: {}\n", kind.name, path, std::strerror(errno));
    return true;
  }
  const std::unique_ptr<char[], FreeBytes> data(
      static_cast<char*>(std::aligned_alloc(4096, block)));
  std::memset(data.get(), 0x5a, block);
  bool written = true;
  const std::uint64_t start = ticks();
  std::uint64_t last = start;
  for (std::uint64_t i = 0; written && i < o.writes; ++i) {
    written = ::pwrite(fd, data.get(), block, static_cast<off_t>(i * block)) ==
                  static_cast<ssize_t>(block) &&
              (!kind.fdatasync || ::fdatasync(fd) == 0);
    const std::uint64_t now = ticks();
    to.latency.record(now - last);
    last = now;
  }
  to.per_second.push_back(static_cast<double>(o.writes) / seconds_of(last - start));
  ::close(fd);
  return written || refuse(std::strerror(errno));
}

bool run_writes(const Options& o, std::vector<std::string>& json) {
  Scratch scratch;
  if (!scratch.create(o.dir, "tenuto-bench")) return refuse("no scratch directory");
  const std::string where = file_system_name(scratch.path()) + ", " + device_text(scratch.path());
  std::map<std::pair<std::size_t, std::size_t>, WriteFigures> figures;  // block, kind
  for (unsigned round = 0; round < o.rounds; ++round) {
    for (const std::size_t block : o.block_bytes) {
      for (std::size_t k = 0; k < kWriteKinds.size(); ++k) {
        if (interrupted()) return false;
        if (!measure_writes(o, scratch.path(), kWriteKinds[k], block, figures[{block, k}])) {
          return false;
        }
        scratch.clear();
      }
    }
  }
  fmt::print("\nblocks made durable one after the other, one thread, {} rounds of {} on {}\n",
             o.rounds, o.writes, where);
  fmt::print("{:>8}  {:<30}{:>12}{:>22}{:>10}{:>10}\n", "bytes", "file, and how", "writes/s",
             "(min..max)", "p50 us", "p99 us");
  for (const auto& [key, f] : figures) {
    if (f.per_second.empty()) continue;
    const Spread s = spread_of(f.per_second);
    fmt::print("{:>8}  {:<30}{:>12}{:>22}{:>10}{:>10}\n", key.first, kWriteKinds[key.second].name,
               short_number(s.median),
               fmt::format("({}..{})", short_number(s.min), short_number(s.max)),
               short_number(microseconds(f.latency.percentile(0.5))),
               short_number(microseconds(f.latency.percentile(0.99))));
    JsonLine line;
    line.text("bench", "journal").text("case", "write").text("how", kWriteKinds[key.second].name);
    line.integer("bytes", key.first).text("where", where).integer("rounds", o.rounds);
    line.raw("writes_per_second", json_of(s));
    add_latency(line, f.latency);
    json.push_back(line.str());
  }
  return true;
}

void declare(CLI::App& app, Options& o) {
  const auto list_of = [&](const char* name, auto& to, const char* help) {
    app.add_option(name, to, help)->delimiter(',')->capture_default_str();
  };
  list_of("--case", o.cases, "capture (images beside CLWB), write (blocks on a disk)");
  list_of("--medium", o.media, "of capture; the ratio is the first one's over the second's");
  list_of("--lines", o.lines, "of capture: so many lines, in random order");
  list_of("--per-fence", o.per_fence, "of capture: lines flushed before each fence");
  list_of("--threads", o.threads, "of capture: each with lines of its own");
  list_of("--block", o.block_bytes, "of write: block sizes");
  app.add_option("--flushes", o.flushes, "of capture, each round")->capture_default_str();
  app.add_option("--writes", o.writes, "of write, each round")->capture_default_str();
  app.add_option("--rounds", o.rounds, "rounds, interleaved")->capture_default_str();
  app.add_option("--pool-dir", o.pool_dir, "of capture: memory, so that no disk is in it")
      ->capture_default_str();
  app.add_option("--dir", o.dir, "of write: a directory on the disk")->capture_default_str();
  app.add_option("--json", o.json, "write one JSON object a line and case to FILE, or - (stdout)");
  app.add_flag("--quick", o.quick, "small sizes, one round: seconds, for CI");
}

std::string wrong_options(const Options& o) {
  const auto outside = [](const auto& values, auto least, auto most) {
    return values.empty() ||
           std::any_of(values.begin(), values.end(), [&](auto v) { return v < least || v > most; });
  };
  for (const std::string& c : o.cases) {
    if (c != "capture" && c != "write") return "no case is called " + c;
  }
  for (const std::string& m : o.media) {
    if (!medium_of(m)) return "no medium is called " + m;
  }
  if (outside(o.threads, 1u, 64u)) return "--threads must be 1..64";
  // Each thread needs at least one line.
  const std::uint64_t threads = *std::max_element(o.threads.begin(), o.threads.end());
  if (outside(o.lines, threads, kLinesMax)) return "--lines must be 1..4194304, one a thread";
  if (outside(o.per_fence, 1u, 1024u)) return "--per-fence must be 1..1024";
  for (const std::size_t b : o.block_bytes) {
    if (b == 0 || b % 4096 != 0 || b > (16u << 20)) return "--block must be whole 4-KiB units";
  }
  if (o.media.empty() || o.rounds < 1 || o.writes < 1 || o.flushes < 1) return "nothing to do";
  return "";
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  CLI::App app("what medium journal is made of: images of lines, and durable blocks");
  declare(app, o);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  if (o.quick) {
    o.rounds = 1;
    o.writes = 20;
    o.flushes = 1;
    o.lines = {16, 1024};
  }
  if (const std::string wrong = wrong_options(o); !wrong.empty()) {
    fmt::print(stderr, "journal_bench: {} (see --help)\n", wrong);
    return 2;
  }
  catch_interrupts();
  fmt::print("journal_bench on {}\n", processor_name());
  std::vector<std::string> json;
  for (const std::string& c : o.cases) {
    const bool done = c == "capture" ? run_captures(o, json) : run_writes(o, json);
    if (!done) return interrupted() ? 130 : 1;
  }
  if (o.json.empty() || write_lines(o.json, json)) return 0;
  refuse("cannot write " + o.json);
  return 1;
}
