// Finds what was stored without a record, by comparing memory with what was recorded.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "crash/explore_run.h"
#include "pm/assert.h"

namespace TENUTO_NS::pm {

// The crash states would be wrong in lines that were stored to without a record.
void CrashExplorer::compare_memory(const std::string& where) {
  const Recorder& r = Recorder::instance();
  for (const std::uint64_t line : r.unseen()) {
    add_unseen(where, "the workload changed a line without a recorded store", line);
  }
  if (const auto line = image_->difference()) {
    add_unseen(where, "recovery or check changed a line without a recorded store", *line);
    image_->restore_all();
  }
  for (std::size_t f = 0; f < options_.files; ++f) compare_mapped(where, f);
}

void CrashExplorer::compare_mapped(const std::string& where, std::size_t file) {
  const Recorder& r = Recorder::instance();
  const std::byte* memory = r.mapped(file);
  if (memory == nullptr) return;
  const ExploreImage& image = (*image_)[file];
  const int pool = ::open(crash_path(pool_, file).c_str(), O_RDONLY | O_CLOEXEC);
  TENUTO_ASSERT(pool >= 0);
  image.for_each_frame(pool, [&](std::uint64_t at) {
    if (at >= r.mapped_bytes(file)) return;
    const std::uint64_t n = std::min<std::uint64_t>(kFrameBytes, r.mapped_bytes(file) - at);
    if (std::memcmp(memory + at, image.durable() + at, n) == 0) return;
    for (std::uint64_t l = at; l < at + n; l += kLineBytes) {
      const std::uint64_t line = first_line(file) + l / kLineBytes;
      const LineLog* log = r.find(line);
      const LineWords words = log != nullptr ? log->now : image_->durable_line(line);
      const bool same = std::memcmp(memory + l, words.data(), kLineBytes) == 0;
      if (!same && !r.stored_elsewhere(line)) {
        add_unseen(where, "the workload changed a line without a recorded store", line);
      }
    }
  });
  ::close(pool);
}

void CrashExplorer::add_unseen(const std::string& where, const std::string& what,
                               std::uint64_t line) {
  if (!unseen_told_.insert(line).second || unseen_told_.size() > options_.findings_max) return;
  CrashFinding f;
  f.where = where;
  f.recovery = "recording";
  f.what = what + " (offset " + std::to_string(offset_of(line)) +
           (options_.files == 1 ? "" : " of file " + std::to_string(file_of(line))) +
           "); report it with pm::trace_store";
  f.point = point_;
  result_.findings.push_back(std::move(f));
}

}  // namespace TENUTO_NS::pm
