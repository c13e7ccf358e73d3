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
  const std::byte* memory = r.mapped();
  if (memory == nullptr) return;
  const int pool = ::open(pool_.c_str(), O_RDONLY | O_CLOEXEC);
  TENUTO_ASSERT(pool >= 0);
  image_->for_each_frame(pool, [&](std::uint64_t at) {
    if (at >= r.mapped_bytes()) return;
    const std::uint64_t n = std::min<std::uint64_t>(kFrameBytes, r.mapped_bytes() - at);
    if (std::memcmp(memory + at, image_->durable() + at, n) == 0) return;
    for (std::uint64_t l = at; l < at + n; l += kLineBytes) {
      const LineLog* log = r.find(l / kLineBytes);
      const LineWords words = log != nullptr ? log->now : image_->durable_line(l / kLineBytes);
      const bool same = std::memcmp(memory + l, words.data(), kLineBytes) == 0;
      if (!same && !r.stored_elsewhere(l / kLineBytes)) {
        add_unseen(where, "the workload changed a line without a recorded store", l / kLineBytes);
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
  f.what =
      what + " (offset " + std::to_string(line * kLineBytes) + "); report it with pm::trace_store";
  f.point = point_;
  result_.findings.push_back(std::move(f));
}

}  // namespace TENUTO_NS::pm
