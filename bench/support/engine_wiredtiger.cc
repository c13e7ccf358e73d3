// WiredTiger behind the adapter. It is loaded at run time, because its licence is the GPL. It needs
// one symbol; all other functions are in its structs. Each thread has a session and a cursor, with
// autocommit. Values are read in the cache's page and stay there until the cursor moves or is
// reset.
//
// buffered: transaction_sync with method=none. Each commit passes the log to the kernel, which
// survives kill -9. Without transaction_sync the log stays in the process. sync: one fsync of the
// log for all waiting commits; method=dsync was no faster.
#include <dlfcn.h>
#include <sys/stat.h>
#include <wiredtiger.h>

#include <algorithm>
#include <cstring>

#include "bench/support/engine.h"

namespace bench {
namespace {

constexpr const char* kTable = "table:kv";

using OpenFunction = decltype(&::wiredtiger_open);

OpenFunction find_open(std::string& error) {
  void* library = ::dlopen("libwiredtiger.so.0", RTLD_NOW);
  void* f = library == nullptr ? nullptr : ::dlsym(library, "wiredtiger_open");
  if (f == nullptr) error = ::dlerror();
  return reinterpret_cast<OpenFunction>(f);
}

WT_ITEM item_of(std::string_view s) {
  WT_ITEM item{};
  item.data = s.data();
  item.size = s.size();
  return item;
}
std::string_view bytes_of(const WT_ITEM& item) {
  return {static_cast<const char*>(item.data), item.size};
}

class TigerSession final : public Session {
 public:
  explicit TigerSession(WT_CONNECTION* connection) {
    if (connection->open_session(connection, nullptr, nullptr, &session_) != 0) session_ = nullptr;
    if (session_ == nullptr) return;
    const int rc = session_->open_cursor(session_, kTable, nullptr, nullptr, &cursor_);
    if (rc != 0) cursor_ = nullptr;
  }
  ~TigerSession() override {
    if (session_ != nullptr) session_->close(session_, nullptr);  // also closes its cursors
  }

  bool read(std::string_view key, std::string_view& value) override {
    if (!seek(key) || cursor_->search(cursor_) != 0) return false;
    WT_ITEM v;
    if (cursor_->get_value(cursor_, &v) != 0) return false;
    value = bytes_of(v);
    return true;
  }
  void release() override { cursor_->reset(cursor_); }
  bool write(std::string_view key, std::string_view value) override {
    if (!seek(key)) return false;
    const WT_ITEM v = item_of(value);
    return again([&] {
      cursor_->set_value(cursor_, &v);
      return cursor_->insert(cursor_);
    });
  }
  bool erase(std::string_view key) override {
    return seek(key) && again([&] { return cursor_->remove(cursor_); });
  }
  std::uint64_t scan(std::string_view start, std::uint64_t count, Sink& sink) override {
    if (cursor_ == nullptr) return 0;
    int rc = 0;
    if (start.empty()) {
      cursor_->reset(cursor_);
      rc = cursor_->next(cursor_);
    } else {
      int side = 0;
      if (!seek(start)) return 0;
      rc = cursor_->search_near(cursor_, &side);
      if (rc == 0 && side < 0) rc = cursor_->next(cursor_);
    }
    std::uint64_t taken = 0;
    for (; rc == 0 && taken < count; ++taken) {
      WT_ITEM k, v;
      if (cursor_->get_key(cursor_, &k) != 0 || cursor_->get_value(cursor_, &v) != 0) break;
      sink.take(bytes_of(k), bytes_of(v));
      if (taken + 1 < count) rc = cursor_->next(cursor_);
    }
    cursor_->reset(cursor_);
    return taken;
  }

 private:
  bool seek(std::string_view key) {
    if (cursor_ == nullptr) return false;
    const WT_ITEM k = item_of(key);
    cursor_->set_key(cursor_, &k);
    return true;
  }
  // With two writers of one record, one is rolled back and must try again.
  template <class Body>
  static bool again(Body&& body) {
    constexpr int kTriesMax = 10'000;
    for (int i = 0; i < kTriesMax; ++i) {
      const int rc = body();
      if (rc != WT_ROLLBACK) return rc == 0;
    }
    return false;
  }

  WT_SESSION* session_ = nullptr;
  WT_CURSOR* cursor_ = nullptr;
};

std::string configuration(const EngineOptions& options) {
  return "create,session_max=200,eviction=(threads_min=1,threads_max=2),cache_size=" +
         std::to_string(options.cache_bytes()) +
         ",log=(enabled=true,file_max=64MB),transaction_sync=(enabled=true,method=" +
         (options.sync ? "fsync" : "none") + ")";
}

class TigerEngine final : public Engine {
 public:
  ~TigerEngine() override { close(); }

  bool open(const EngineOptions& options) override {
    const OpenFunction open_it = find_open(error_);
    if (open_it == nullptr) return false;
    const std::string home = options.dir + "/wiredtiger";
    ::mkdir(home.c_str(), 0755);
    const int rc = open_it(home.c_str(), nullptr, configuration(options).c_str(), &connection_);
    if (rc != 0) return refuse("wiredtiger_open", rc);
    WT_SESSION* session = nullptr;
    int made = connection_->open_session(connection_, nullptr, nullptr, &session);
    if (made != 0) return refuse("open_session", made);
    made = session->create(session, kTable, "key_format=u,value_format=u");
    session->close(session, nullptr);
    return made == 0 || refuse("create", made);
  }
  std::unique_ptr<Session> session() override {
    return std::make_unique<TigerSession>(connection_);
  }
  bool close() override {
    if (connection_ == nullptr) return true;
    const int rc = connection_->close(connection_, nullptr);
    connection_ = nullptr;
    return rc == 0 || refuse("close", rc);
  }

 private:
  bool refuse(const char* what, int rc) {
    error_ = std::string(what) + ": error " + std::to_string(rc);
    return false;
  }

  WT_CONNECTION* connection_ = nullptr;
};

}  // namespace

std::unique_ptr<Engine> make_wiredtiger() { return std::make_unique<TigerEngine>(); }

std::string wiredtiger_settings(const EngineOptions& options) {
  return std::string("log on, transaction_sync ") +
         (options.sync ? "fsync" : "none (survives kill -9, not a power cut)") +
         ", B-tree, no compression, cache " + std::to_string(options.cache_bytes() >> 20) +
         " MiB, one cursor a thread, autocommit, values read in place";
}

}  // namespace bench
