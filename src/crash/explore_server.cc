#include "crash/explore_server.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "pm/assert.h"
#include "pm/bare_forks.h"

namespace TENUTO_NS::pm {

namespace {

constexpr std::size_t kBufferBytes = 16u << 20;

// Writes plain values one after another.
class JobWriter {
 public:
  explicit JobWriter(std::byte* to) : at_(to), end_(to + kBufferBytes) {}
  template <class T>
  void put(const T& value) {
    if (static_cast<std::size_t>(end_ - at_) < sizeof value) {
      full_ = true;
      return;
    }
    std::memcpy(at_, &value, sizeof value);
    at_ += sizeof value;
  }
  bool full() const { return full_; }

 private:
  std::byte* at_;
  std::byte* end_;
  bool full_ = false;
};

class JobReader {
 public:
  explicit JobReader(const std::byte* from) : at_(from) {}
  template <class T>
  T get() {
    T value;
    std::memcpy(&value, at_, sizeof value);
    at_ += sizeof value;
    return value;
  }

 private:
  const std::byte* at_;
};

// The parts of a job that the worker uses. The states are in the order in which they are judged.
struct ReceivedJob {
  std::vector<LineChoices> lines;
  std::vector<CrashState> states;
  WorkerJob job{};
  int parent_cpu;

  explicit ReceivedJob(const std::byte* from) {
    JobReader in(from);
    parent_cpu = in.get<int>();
    job.image_hash = in.get<std::uint64_t>();
    job.model = in.get<std::uint64_t>();
    job.know_seen = in.get<bool>();
    job.invoked = in.get<std::uint64_t>();
    job.acknowledged = in.get<std::uint64_t>();
    job.chain = in.get<CrashChain>();
    lines.resize(in.get<std::size_t>());
    for (LineChoices& l : lines) {
      l.line = in.get<std::uint64_t>();
      l.newest = in.get<std::uint32_t>();
      l.variants.resize(in.get<std::size_t>());
      for (LineVariant& v : l.variants) v = in.get<LineVariant>();
    }
    states.resize(in.get<std::size_t>());
    for (std::size_t i = 0; i < states.size(); ++i) {
      states[i].base_new = in.get<bool>();
      states[i].picks.resize(in.get<std::size_t>());
      for (auto& [line, variant] : states[i].picks) {
        line = in.get<std::uint32_t>();
        variant = in.get<std::uint32_t>();
      }
      job.order.push_back(i);
    }
    job.lines = &lines;
    job.states = &states;
  }
};

// Keeps parent and child on one processor. They take turns and never run at the same time, and a
// wake-up on another processor would cost more than many a check.
void stay_on(int cpu) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<std::size_t>(cpu), &one);
  ::sched_setaffinity(0, sizeof one, &one);
}

bool read_byte(int fd) {
  char c = 0;
  ssize_t n = 0;
  do n = ::read(fd, &c, 1);
  while (n < 0 && errno == EINTR);
  return n == 1;
}

// False: the reader has closed the pipe.
bool write_byte(int fd) {
  ssize_t n = 0;
  do n = ::write(fd, "", 1);
  while (n < 0 && errno == EINTR);
  return n == 1;
}

}  // namespace

CrashServer::CrashServer() {
  void* p = ::mmap(nullptr, kBufferBytes, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TENUTO_ASSERT(p != MAP_FAILED);
  buffer_ = static_cast<std::byte*>(p);
}

CrashServer::~CrashServer() {
  stop();
  ::munmap(buffer_, kBufferBytes);
}

bool CrashServer::put(const WorkerJob& job) {
  JobWriter out(buffer_);
  out.put(::sched_getcpu());
  out.put(job.image_hash);
  out.put(job.model);
  out.put(job.know_seen);
  out.put(job.invoked);
  out.put(job.acknowledged);
  out.put(job.chain);
  out.put(job.lines->size());
  for (const LineChoices& l : *job.lines) {
    out.put(l.line);
    out.put(l.newest);
    out.put(l.variants.size());
    for (const LineVariant& v : l.variants) out.put(v);
  }
  out.put(job.order.size());
  for (const std::uint64_t i : job.order) {
    const CrashState& s = (*job.states)[i];
    out.put(s.base_new);
    out.put(s.picks.size());
    for (const auto& [line, variant] : s.picks) {
      out.put(line);
      out.put(variant);
    }
  }
  return !out.full();
}

bool CrashServer::start() {
  TENUTO_ASSERT(::pipe(request_) == 0 && ::pipe(reply_) == 0);
  const pm::BareForks bare;
  child_ = ::fork();
  TENUTO_ASSERT(child_ >= 0);
  if (child_ == 0) {
    ::close(request_[1]);
    ::close(reply_[0]);
    return true;
  }
  ::close(request_[0]);
  ::close(reply_[1]);
  return false;
}

void CrashServer::serve_until_the_end(const Serve& serve) {
  int cpu = -1;
  while (read_byte(request_[0])) {
    const ReceivedJob received(buffer_);
    if (std::exchange(cpu, received.parent_cpu) != received.parent_cpu) stay_on(cpu);
    if (!serve(received.job)) ::_exit(1);
    if (!write_byte(reply_[1])) break;
  }
  ::_exit(0);
}

bool CrashServer::judge(int* status) {
  // If the child has died, the write must not raise SIGPIPE; the read then finds it out.
  struct sigaction ignore {};
  struct sigaction before {};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, &before);
  cpu_set_t anywhere;
  ::sched_getaffinity(0, sizeof anywhere, &anywhere);
  stay_on(::sched_getcpu());
  write_byte(request_[1]);
  const bool done = read_byte(reply_[0]);
  ::sched_setaffinity(0, sizeof anywhere, &anywhere);
  ::sigaction(SIGPIPE, &before, nullptr);
  if (done) return true;
  ::close(request_[1]);
  ::close(reply_[0]);
  while (::waitpid(child_, status, 0) < 0) TENUTO_ASSERT(errno == EINTR);
  child_ = 0;
  return false;
}

void CrashServer::stop() {
  if (child_ == 0) return;
  ::close(request_[1]);
  ::close(reply_[0]);
  while (::waitpid(child_, nullptr, 0) < 0) TENUTO_ASSERT(errno == EINTR);
  child_ = 0;
}

}  // namespace TENUTO_NS::pm
