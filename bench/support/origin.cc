// Version, commit and machine of a line of figures; see origin.h.
#include "bench/support/origin.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "bench/support/process.h"
#include "commit.h"  // made by bench/commit.cmake

namespace bench {
namespace {

std::string kernel_name() {
  utsname name{};
  if (::uname(&name) != 0) return "unknown";
  // The number alone: what follows it names a distribution or a build of somebody's own.
  const std::string release = name.release;
  return std::string(name.sysname) + " " +
         release.substr(0, release.find_first_not_of("0123456789."));
}

// The chosen word of a setting: "always [madvise] never".
std::string large_pages(const char* setting) {
  std::ifstream in(std::string("/sys/kernel/mm/transparent_hugepage/") + setting);
  std::string line;
  std::getline(in, line);
  const std::size_t from = line.find('[');
  const std::size_t to = line.find(']');
  return from < to && to != std::string::npos ? line.substr(from + 1, to - from - 1) : "unknown";
}

}  // namespace

std::string origin_text() {
  constexpr std::uint64_t kMib = 1u << 20;
  return processor_name() + ", " + std::to_string(memory_limit_bytes() / kMib) +
         " MiB of memory, " + kernel_name() + ", pages of " +
         std::to_string(::sysconf(_SC_PAGESIZE)) +
         " bytes, large pages: " + large_pages("enabled") +
         " (in tmpfs: " + large_pages("shmem_enabled") + "), version " + TENUTO_VERSION +
         ", commit " + kCommit;
}

void add_origin(JsonLine& line) {
  line.text("version", TENUTO_VERSION).text("commit", kCommit);
  line.text("processor", processor_name()).text("kernel", kernel_name());
  line.integer("memory_bytes", memory_limit_bytes());
  line.integer("page_bytes", ::sysconf(_SC_PAGESIZE));
  line.text("large_pages", large_pages("enabled"));
  line.text("large_pages_shmem", large_pages("shmem_enabled"));
}

}  // namespace bench
