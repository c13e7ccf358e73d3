// A run of points; see run.h.
#include "bench/kv/run.h"

#include <fmt/core.h>

#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

namespace bench {

Run::Run(std::string json) : json_file_(std::move(json)) { catch_interrupts(); }

std::optional<Played> Run::play(const Point& point) {
  Scratch* scratch = scratch_in(point.dir);
  if (scratch == nullptr) return end("no directory", 8);
  if (!fits(point, *scratch)) return end("no memory", 4);
  Played played{setting_of(point, scratch->path()), {}};
  play_point(point, played.setting, *scratch, played.figures);
  std::vector<std::string> lines = json_lines(played.setting, played.figures);
  std::move(lines.begin(), lines.end(), std::back_inserter(json_));
  const std::vector<std::string>& failures = played.figures.failures;
  failures_.insert(failures_.end(), failures.begin(), failures.end());
  if (interrupted()) return end("interrupted", 130);
  if (json_file_ != "-" && !write_json()) return end("complete", 1);
  return played;
}

// The last line tells a whole run from one that was killed, and carries the wrong answers.
int Run::finish() {
  std::string failed;
  for (const std::string& f : failures_) {
    fmt::print(stderr, "FAILED {}\n", f);
    failed += (failed.empty() ? "" : ",") + json_text(f);
  }
  JsonLine last;
  last.text("bench", "kv").text("end", ending_).raw("failed", "[" + failed + "]");
  json_.push_back(last.str());
  if (code_ == 0 && !failures_.empty()) code_ = 1;
  return write_json() || code_ != 0 ? code_ : 1;
}

Scratch* Run::scratch_in(const std::string& dir) {
  const auto [at, fresh] = scratches_.try_emplace(dir);
  if (!fresh) return &at->second;
  if (!at->second.create(dir, "tenuto-bench")) {
    fmt::print(stderr, "kv_bench: cannot make a directory in {}: {}\n", dir, std::strerror(errno));
    return nullptr;
  }
  const std::string& path = at->second.path();
  fmt::print(stderr, "kv_bench on {}, {} GB memory free, {} on {}, {}\n", processor_name(),
             free_memory_bytes() >> 30, path, file_system_name(path), device_text(path));
  return &at->second;
}

// A tmpfs keeps its files in memory.
bool Run::fits(const Point& point, const Scratch& scratch) const {
  const std::uint64_t needed = space_bytes(point);
  if (file_system_name(scratch.path()) != "tmpfs" || needed < free_memory_bytes()) return true;
  fmt::print(stderr, "kv_bench: about {} MB would not fit into memory; use --dir on a disk\n",
             needed >> 20);
  return false;
}

std::nullopt_t Run::end(const char* how, int code) {
  ending_ = how;
  code_ = code;
  return std::nullopt;
}

bool Run::write_json() const {
  if (json_file_.empty()) return true;
  const bool written = write_lines(json_file_, json_);
  if (!written) fmt::print(stderr, "kv_bench: cannot write {}\n", json_file_);
  return written;
}

}  // namespace bench
