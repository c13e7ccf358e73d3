#include "tools/pmemobj/import_file.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

namespace pmemobj_import {

namespace {

// Plain arrays, for the handlers of signals. Empty: there is no such file.
char unfinished[4096];
char unfinished_journal[4096];

void remove_unfinished() {
  if (unfinished[0] == 0) return;
  ::unlink(unfinished);
  ::unlink(unfinished_journal);
}

void stopped(int) {
  remove_unfinished();
  ::_exit(kStopped);
}

// libpmemobj believes what the old pool says of itself.
void crashed(int) {
  remove_unfinished();
  constexpr char kText[] =
      "tenuto-import-pmemobj: crashed: the old pool is damaged, or there is no memory\n";
  static_cast<void>(!::write(STDERR_FILENO, kText, sizeof kText - 1));
  ::_exit(kCorrupt);
}

}  // namespace

Code code_of(int error) {
  switch (error) {
    case ENOENT:
      return kNotFound;
    case EEXIST:
      return kExists;
    case ENOMEM:
    case ENOSPC:
    case EFBIG:
      return kFull;
    case EWOULDBLOCK:
      return kBusy;
    case EACCES:
    case EPERM:
      return kPermission;
    default:
      return kIo;
  }
}

void fail(Code code, const std::string& what) {
  remove_unfinished();
  std::fprintf(stderr, "tenuto-import-pmemobj: %s\n", what.c_str());
  std::exit(code);
}

const char* name_unfinished(const std::string& path) {
  std::random_device device;
  char id[20];
  std::snprintf(id, sizeof id, ".%08x%08x", device(), device());
  const std::string name = path + id + ".import";
  if (name.size() + sizeof ".journal" > sizeof unfinished) fail(kUsage, path + ": too long");
  if (::access(name.c_str(), F_OK) == 0) fail(kExists, name + " is there already");
  std::strcpy(unfinished_journal, (name + ".journal").c_str());
  std::strcpy(unfinished, name.c_str());
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::signal(signal, stopped);
  for (const int signal : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE}) ::signal(signal, crashed);
  return unfinished;
}

void give_name(const std::string& path) {
  const bool renamed =
      ::renameat2(AT_FDCWD, unfinished, AT_FDCWD, path.c_str(), RENAME_NOREPLACE) == 0;
  // Some file systems do not know the flag, and some have no hard links.
  const bool unknown = !renamed && (errno == EINVAL || errno == ENOSYS);
  if (!renamed && (!unknown || ::link(unfinished, path.c_str()) != 0)) {
    fail(code_of(errno), path + ": " + std::strerror(errno));
  }
  remove_unfinished();
  unfinished[0] = 0;
}

void sync_folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  // Some file systems cannot sync a folder (EINVAL).
  if (fd < 0 || (::fsync(fd) != 0 && errno != EINVAL)) {
    fail(kIo, folder + ": " + std::strerror(errno));
  }
  ::close(fd);
}

}  // namespace pmemobj_import
