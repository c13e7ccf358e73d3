// powercut_vdisk: the disk of the virtual machine, as a process that outlives the machine.
//
//   powercut_vdisk SOCKET IMAGE LOSS SEED
//
// Serves IMAGE over NBD at the Unix socket SOCKET to one client. Prints "ready" when it listens.
// When the client is gone, its power is gone: LOSS decides what happens to unflushed writes
// (volatile_disk.h), and one line reports it. After SIGUSR1 it stops in the middle of its work
// (nbd.h). QEMU's own cache modes cannot do this, because what the guest wrote without a flush is
// in the host's file and survives.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "powercut/nbd.h"
#include "powercut/volatile_disk.h"

namespace {

constexpr std::uint64_t kFlushMsMax = 10;  // from a fast SSD to a slow one; the seed chooses

volatile std::sig_atomic_t stop = 0;

int usage(const char* why) {
  std::fprintf(stderr,
               "powercut_vdisk: %s\n"
               "usage: powercut_vdisk SOCKET IMAGE drop|keep|sectors|requests SEED\n",
               why);
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace tenuto::powercut;
  if (argc != 5) return usage("four arguments are needed");
  const auto loss = loss_of(argv[3]);
  if (!loss) return usage("no such loss");
  struct stat st {};
  const int image = ::open(argv[2], O_RDWR | O_CLOEXEC);
  if (image < 0 || ::fstat(image, &st) != 0) return usage("the image cannot be opened");

  std::signal(SIGPIPE, SIG_IGN);  // a client that vanishes is normal here
  sockaddr_un where{};
  where.sun_family = AF_UNIX;
  if (std::strlen(argv[1]) >= sizeof where.sun_path) return usage("the socket's path is too long");
  std::strcpy(where.sun_path, argv[1]);
  ::unlink(argv[1]);
  const int listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (::bind(listener, reinterpret_cast<const sockaddr*>(&where), sizeof where) != 0 ||
      ::listen(listener, 1) != 0) {
    return usage("cannot listen at the socket");
  }
  struct sigaction on_stop {};
  on_stop.sa_handler = [](int) { stop = 1; };
  ::sigaction(SIGUSR1, &on_stop, nullptr);
  std::puts("ready");
  std::fflush(stdout);
  const int client = ::accept(listener, nullptr, nullptr);

  VolatileDisk disk(image, static_cast<std::uint64_t>(st.st_size));
  const std::uint64_t seed = std::strtoull(argv[4], nullptr, 10);
  const auto flush_ms = static_cast<int>(1 + seed % kFlushMsMax);
  if (!serve_nbd(client, disk, flush_ms, stop))
    return usage("the client does not speak NBD as expected");
  if (!disk.cut(*loss, seed)) return usage("the image fails");
  const VolatileDisk::Counts& n = disk.counts();
  std::printf(
      "{\"writes\": %llu, \"sectors\": %llu, \"flushes\": %llu, \"unflushed\": %llu, "
      "\"lost\": %llu}\n",
      static_cast<unsigned long long>(n.writes), static_cast<unsigned long long>(n.sectors),
      static_cast<unsigned long long>(n.flushes), static_cast<unsigned long long>(n.unflushed),
      static_cast<unsigned long long>(n.lost));
  return 0;
}
