// Version, commit and machine of a line of figures; see origin.h.
#include "bench/support/origin.h"

#include <sys/utsname.h>
#include <unistd.h>

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

}  // namespace

void add_origin(JsonLine& line) {
  line.text("version", TENUTO_VERSION).text("commit", kCommit);
  line.text("processor", processor_name()).text("kernel", kernel_name());
  line.integer("page_bytes", ::sysconf(_SC_PAGESIZE));
}

}  // namespace bench
