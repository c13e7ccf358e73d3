#include "powercut/nbd.h"

#include <endian.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

namespace tenuto::powercut {

namespace {

constexpr std::uint64_t kServerMagic = 0x4e42444d41474943;  // "NBDMAGIC"
constexpr std::uint64_t kOptionMagic = 0x49484156454f5054;  // "IHAVEOPT"
constexpr std::uint64_t kOptionReplyMagic = 0x3e889045565a9;
constexpr std::uint32_t kRequestMagic = 0x25609513;
constexpr std::uint32_t kReplyMagic = 0x67446698;
constexpr std::uint16_t kFixedNewstyle = 1;
constexpr std::uint16_t kHasFlags = 1, kSendFlush = 4;
enum Option : std::uint32_t { kExportName = 1, kAbort = 2, kInfo = 6, kGo = 7 };
enum OptionReply : std::uint32_t { kAck = 1, kInfoReply = 3, kUnsupported = 0x80000001 };
enum Command : std::uint16_t { kRead = 0, kWrite = 1, kDisconnect = 2, kFlush = 3 };
constexpr std::uint32_t kInvalid = 22;
constexpr std::uint32_t kOptionBytesMax = 64u << 10;
constexpr std::uint32_t kRequestBytesMax = 64u << 20;

struct [[gnu::packed]] Request {
  std::uint32_t magic;
  std::uint16_t flags;
  std::uint16_t command;
  std::uint64_t cookie;
  std::uint64_t offset;
  std::uint32_t length;
};
static_assert(sizeof(Request) == 28);

class Client {
 public:
  explicit Client(int fd) : fd_(fd) {}

  bool receive(void* to, std::size_t bytes) {
    auto* p = static_cast<char*>(to);
    while (bytes != 0) {
      const ssize_t n = ::read(fd_, p, bytes);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      p += n;
      bytes -= static_cast<std::size_t>(n);
    }
    return true;
  }
  bool receive(std::uint32_t& word) {
    if (!receive(&word, sizeof word)) return false;
    word = be32toh(word);
    return true;
  }

  // Collects bytes until send() sends them together.
  Client& put(const void* from, std::size_t bytes) {
    const auto* p = static_cast<const char*>(from);
    out_.insert(out_.end(), p, p + bytes);
    return *this;
  }
  Client& put16(std::uint16_t v) { return v = htobe16(v), put(&v, sizeof v); }
  Client& put32(std::uint32_t v) { return v = htobe32(v), put(&v, sizeof v); }
  Client& put64(std::uint64_t v) { return v = htobe64(v), put(&v, sizeof v); }
  bool send() {
    const char* p = out_.data();
    std::size_t left = out_.size();
    while (left != 0) {
      const ssize_t n = ::write(fd_, p, left);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      p += n;
      left -= static_cast<std::size_t>(n);
    }
    out_.clear();
    return true;
  }

 private:
  const int fd_;
  std::vector<char> out_;
};

Client& option_reply(Client& c, std::uint32_t option, std::uint32_t type, std::uint32_t bytes) {
  return c.put64(kOptionReplyMagic).put32(option).put32(type).put32(bytes);
}

// Returns true once the client has chosen the disk and transmission begins.
bool shake_hands(Client& c, std::uint64_t disk_bytes) {
  constexpr std::uint16_t kFlags = kHasFlags | kSendFlush;
  std::uint32_t client_flags = 0;
  if (!c.put64(kServerMagic).put64(kOptionMagic).put16(kFixedNewstyle).send()) return false;
  if (!c.receive(client_flags)) return false;
  for (;;) {
    std::uint64_t magic = 0;
    std::uint32_t option = 0;
    std::uint32_t bytes = 0;
    if (!c.receive(&magic, sizeof magic) || be64toh(magic) != kOptionMagic) return false;
    if (!c.receive(option) || !c.receive(bytes) || bytes > kOptionBytesMax) return false;
    std::vector<char> data(bytes);
    if (!c.receive(data.data(), data.size())) return false;
    switch (option) {
      case kExportName: {
        const char zeros[124] = {};
        return c.put64(disk_bytes).put16(kFlags).put(zeros, sizeof zeros).send();
      }
      case kInfo:
      case kGo:
        option_reply(c, option, kInfoReply, 12).put16(0).put64(disk_bytes).put16(kFlags);
        if (!option_reply(c, option, kAck, 0).send()) return false;
        if (option == kGo) return true;
        break;
      case kAbort:
        return false;
      default:
        if (!option_reply(c, option, kUnsupported, 0).send()) return false;
    }
  }
}

// Whether the power lasts through a flush, which takes as long as on a disk. If flushes took no
// time, there would never be data that is written and not durable.
bool power_lasts(int fd, int flush_ms) {
  pollfd client{fd, POLLRDHUP, 0};
  const int gone = ::poll(&client, 1, flush_ms);
  return gone == 0 || (gone < 0 && errno == EINTR);
}

}  // namespace

bool serve_nbd(int fd, VolatileDisk& disk, int flush_ms, const volatile std::sig_atomic_t& stop) {
  Client c(fd);
  if (!shake_hands(c, disk.bytes())) return false;
  std::vector<char> data;
  for (Request q{}; c.receive(&q, sizeof q);) {
    const std::uint32_t length = be32toh(q.length);
    const std::uint64_t offset = be64toh(q.offset);
    const std::uint16_t command = be16toh(q.command);
    if (be32toh(q.magic) != kRequestMagic || length > kRequestBytesMax) return false;
    bool done = false;
    data.clear();
    switch (command) {
      case kRead:
        data.resize(length);
        done = disk.read(offset, data);
        break;
      case kWrite: {
        std::vector<char> written(length);
        if (!c.receive(written.data(), length)) return true;  // the power went in the middle of it
        done = disk.write(offset, std::move(written));
        break;
      }
      case kFlush:
        if (!power_lasts(fd, flush_ms)) return true;
        done = (stop != 0 && disk.has_unflushed()) || disk.flush();
        break;
      case kDisconnect:
        return true;
      default:
        break;
    }
    if (stop != 0 && disk.has_unflushed()) {
      std::puts("stopped");
      std::fflush(stdout);
      pollfd client{fd, POLLRDHUP, 0};
      while (::poll(&client, 1, -1) < 0 && errno == EINTR) continue;
      return true;
    }
    c.put32(kReplyMagic).put32(done ? 0 : kInvalid).put(&q.cookie, sizeof q.cookie);
    if (command == kRead && done) c.put(data.data(), data.size());
    if (!c.send()) return true;
  }
  return true;
}

}  // namespace tenuto::powercut
