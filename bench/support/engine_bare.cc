// The limit of the device: each write is one 4-KiB overwrite of a written, preallocated file. It is
// durable on return (O_DIRECT and O_DSYNC; only O_DSYNC where the file system has no O_DIRECT), for
// any durability option. It stores none of its input and answers every read.
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "bench/support/engine.h"

namespace bench {
namespace {

constexpr std::size_t kPageBytes = 4096;
constexpr std::uint64_t kPages = 4096;

struct FreePage {
  void operator()(char* p) const { std::free(p); }
};
using Page = std::unique_ptr<char[], FreePage>;

Page make_page() {
  Page page(static_cast<char*>(std::aligned_alloc(kPageBytes, kPageBytes)));
  if (page == nullptr) std::abort();
  std::memset(page.get(), 0, kPageBytes);
  return page;
}

class BareSession final : public Session {
 public:
  BareSession(int fd, std::atomic<std::uint64_t>& next, std::size_t value_bytes)
      : fd_(fd), next_(next), some_(value_bytes, '\0'), page_(make_page()) {}

  bool read(std::string_view, std::string_view& value) override {
    value = some_;
    return true;
  }
  void release() override {}
  bool write(std::string_view key, std::string_view) override {
    std::memcpy(page_.get(), key.data(), std::min(key.size(), kPageBytes));
    const std::uint64_t at = next_.fetch_add(1, std::memory_order_relaxed) % kPages * kPageBytes;
    return ::pwrite(fd_, page_.get(), kPageBytes, static_cast<off_t>(at)) ==
           static_cast<ssize_t>(kPageBytes);
  }
  bool erase(std::string_view key) override { return write(key, ""); }
  std::uint64_t scan(std::string_view start, std::uint64_t count, Sink& sink) override {
    for (std::uint64_t i = 0; i < count; ++i) sink.take(start, some_);
    return count;
  }

 private:
  int fd_;
  std::atomic<std::uint64_t>& next_;
  std::string some_;
  Page page_;
};

class BareEngine final : public Engine {
 public:
  ~BareEngine() override { close(); }

  bool open(const EngineOptions& options) override {
    value_bytes_ = options.value_bytes;
    const std::string path = options.dir + "/bare";
    const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (file < 0) return refuse("open");
    const std::vector<char> zeros(kPages * kPageBytes);
    const bool filled =
        ::pwrite(file, zeros.data(), zeros.size(), 0) == static_cast<ssize_t>(zeros.size()) &&
        ::fsync(file) == 0;
    ::close(file);
    if (!filled) return refuse("write");
    fd_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_DSYNC | O_DIRECT);
    if (fd_ < 0) fd_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_DSYNC);
    return fd_ >= 0 || refuse("open");
  }
  std::unique_ptr<Session> session() override {
    return std::make_unique<BareSession>(fd_, next_, value_bytes_);
  }
  bool close() override {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
    return true;
  }

 private:
  bool refuse(const char* what) {
    error_ = std::string(what) + ": " + std::strerror(errno);
    return false;
  }

  int fd_ = -1;
  std::size_t value_bytes_ = 0;
  std::atomic<std::uint64_t> next_ = 0;
};

}  // namespace

std::unique_ptr<Engine> make_bare() { return std::make_unique<BareEngine>(); }

std::string bare_settings(const EngineOptions&) {
  return "stores nothing: each write is one durable 4-KiB overwrite (O_DIRECT, O_DSYNC), the "
         "device's floor; answers are not checked";
}

}  // namespace bench
