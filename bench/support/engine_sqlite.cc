// SQLite behind the adapter: one table {key, value}, statements prepared once a connection, a
// connection a session, each write a transaction of its own, values read where SQLite has them.
//
// Byte keys are the primary key of a WITHOUT ROWID table, so a record lies in one tree. Integer
// keys are the row's id; they are 64 bits with a sign, so the top bit is turned. A page is as small
// as holds a record without an overflow page.
//
// buffered: write-ahead log with synchronous=OFF: the log is written by write(2), which survives
// kill -9. sync: synchronous=FULL, one fsync of the log a commit. One thread locks the files once
// (locking_mode=EXCLUSIVE). With several, writers take turns by a mutex of the process: SQLite's
// own way of waiting for a writer is to sleep a millisecond.
#include <sqlite3.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <mutex>
#include <utility>
#include <vector>

#include "bench/support/engine.h"

namespace bench {
namespace {

constexpr std::uint64_t kTopBit = 1ull << 63;
constexpr int kBusyMs = 10'000;
constexpr std::uint64_t kCacheKiB = 256 << 10;

// The bytes of a record that stay in a page of a WITHOUT ROWID table (file format, 1.6).
constexpr std::uint64_t local_bytes_max(std::uint64_t page) { return (page - 12) * 64 / 255 - 23; }

std::uint64_t page_bytes(const EngineOptions& options) {
  constexpr std::uint64_t kKeyAndHeaderBytes = 40;
  std::uint64_t page = 4096;
  while (page < 65536 && local_bytes_max(page) < options.value_bytes + kKeyAndHeaderBytes)
    page *= 2;
  return page;
}

std::string pragmas(const EngineOptions& options) {
  return "PRAGMA page_size=" + std::to_string(page_bytes(options)) + ";" +
         (options.threads == 1 ? "PRAGMA locking_mode=EXCLUSIVE;" : "") +
         "PRAGMA journal_mode=WAL; PRAGMA synchronous=" + (options.sync ? "FULL" : "OFF") +
         "; PRAGMA mmap_size=" + std::to_string(16 * options.data_bytes) + "; PRAGMA cache_size=-" +
         std::to_string(kCacheKiB) + ";";
}

// A connection with its statements.
class Connection {
 public:
  ~Connection() {
    for (sqlite3_stmt* s : {get, put, erase, scan}) sqlite3_finalize(s);
    sqlite3_close(db);
  }

  bool open(const std::string& path, const EngineOptions& options) {
    const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    const std::string table = options.integer_keys ? "(k INTEGER PRIMARY KEY, v BLOB)"
                                                   : "(k BLOB PRIMARY KEY, v BLOB) WITHOUT ROWID";
    return sqlite3_open_v2(path.c_str(), &db, flags, nullptr) == SQLITE_OK &&
           sqlite3_busy_timeout(db, kBusyMs) == SQLITE_OK && run(pragmas(options)) &&
           run("CREATE TABLE IF NOT EXISTS kv" + table) &&
           prepare("SELECT v FROM kv WHERE k=?1", get) &&
           prepare("INSERT INTO kv VALUES(?1,?2) ON CONFLICT(k) DO UPDATE SET v=excluded.v", put) &&
           prepare("DELETE FROM kv WHERE k=?1", erase) &&
           prepare("SELECT k,v FROM kv WHERE k>=?1 ORDER BY k LIMIT ?2", scan);
  }

  sqlite3* db = nullptr;
  sqlite3_stmt* get = nullptr;
  sqlite3_stmt* put = nullptr;
  sqlite3_stmt* erase = nullptr;
  sqlite3_stmt* scan = nullptr;

 private:
  bool run(const std::string& sql) {
    return sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK;
  }
  bool prepare(const char* sql, sqlite3_stmt*& to) {
    return sqlite3_prepare_v3(db, sql, -1, SQLITE_PREPARE_PERSISTENT, &to, nullptr) == SQLITE_OK;
  }
};

std::string_view blob(sqlite3_stmt* s, int column) {
  const void* at = sqlite3_column_blob(s, column);
  return {static_cast<const char*>(at), static_cast<std::size_t>(sqlite3_column_bytes(s, column))};
}

// What the sessions share. Connections are opened when they are needed and closed with the store:
// the last one that closes writes the log back.
struct Shared {
  EngineOptions options;
  std::string path;
  std::mutex write_turn;
  std::vector<std::unique_ptr<Connection>> idle;

  std::unique_ptr<Connection> take() {
    if (!idle.empty()) {
      std::unique_ptr<Connection> c = std::move(idle.back());
      idle.pop_back();
      return c;
    }
    auto c = std::make_unique<Connection>();
    if (!c->open(path, options)) error = c->db == nullptr ? "no memory" : sqlite3_errmsg(c->db);
    return c;
  }

  std::string error;
};

class SqliteSession final : public Session {
 public:
  explicit SqliteSession(Shared& shared) : shared_(shared), c_(shared.take()) {}
  ~SqliteSession() override { shared_.idle.push_back(std::move(c_)); }

  bool read(std::string_view key, std::string_view& value) override {
    bind_key(c_->get, key);
    if (sqlite3_step(c_->get) != SQLITE_ROW) {
      release();
      return false;
    }
    value = blob(c_->get, 0);
    return true;
  }
  void release() override { sqlite3_reset(c_->get); }
  bool write(std::string_view key, std::string_view value) override {
    bind_key(c_->put, key);
    sqlite3_bind_blob(c_->put, 2, value.data(), static_cast<int>(value.size()), SQLITE_STATIC);
    return change(c_->put);
  }
  bool erase(std::string_view key) override {
    bind_key(c_->erase, key);
    return change(c_->erase) && sqlite3_changes(c_->db) == 1;
  }
  std::uint64_t scan(std::string_view start, std::uint64_t count, Sink& sink) override {
    bind_key(c_->scan, start);
    constexpr std::uint64_t kMost = std::numeric_limits<sqlite3_int64>::max();
    sqlite3_bind_int64(c_->scan, 2, static_cast<sqlite3_int64>(std::min(count, kMost)));
    std::uint64_t taken = 0;
    for (; sqlite3_step(c_->scan) == SQLITE_ROW; ++taken) {
      if (!shared_.options.integer_keys) {
        sink.take(blob(c_->scan, 0), blob(c_->scan, 1));
        continue;
      }
      const auto id = static_cast<std::uint64_t>(sqlite3_column_int64(c_->scan, 0));
      const std::uint64_t number = __builtin_bswap64(id ^ kTopBit);
      sink.take({reinterpret_cast<const char*>(&number), sizeof number}, blob(c_->scan, 1));
    }
    sqlite3_reset(c_->scan);
    return taken;
  }

 private:
  // The key stays where it is until the statement is reset. An empty one is before all others.
  void bind_key(sqlite3_stmt* s, std::string_view key) {
    if (!shared_.options.integer_keys) {
      sqlite3_bind_blob(s, 1, key.empty() ? "" : key.data(), static_cast<int>(key.size()),
                        SQLITE_STATIC);
      return;
    }
    std::uint64_t number = 0;
    std::memcpy(&number, key.data(), key.size());
    sqlite3_bind_int64(s, 1, static_cast<sqlite3_int64>(__builtin_bswap64(number) ^ kTopBit));
  }
  bool change(sqlite3_stmt* s) {
    std::unique_lock<std::mutex> turn(shared_.write_turn, std::defer_lock);
    if (shared_.options.threads > 1) turn.lock();
    sqlite3_step(s);
    return sqlite3_reset(s) == SQLITE_OK;
  }

  Shared& shared_;
  std::unique_ptr<Connection> c_;
};

class SqliteEngine final : public Engine {
 public:
  bool open(const EngineOptions& options) override {
    sqlite3_config(SQLITE_CONFIG_MULTITHREAD);
    sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);  // it would be a lock for each allocation
    shared_.options = options;
    shared_.path = options.dir + "/kv.sqlite";
    shared_.idle.push_back(shared_.take());
    error_ = shared_.error;
    return error_.empty();
  }
  std::unique_ptr<Session> session() override { return std::make_unique<SqliteSession>(shared_); }
  bool close() override {
    shared_.idle.clear();
    return true;
  }

 private:
  Shared shared_;
};

}  // namespace

std::unique_ptr<Engine> make_sqlite() { return std::make_unique<SqliteEngine>(); }

std::string sqlite_settings(const EngineOptions& options) {
  return std::string("SQLite ") + sqlite3_libversion() + ", WAL, synchronous=" +
         (options.sync ? "FULL" : "OFF (survives kill -9, not a power cut)") + ", pages of " +
         std::to_string(page_bytes(options)) + " bytes, files mapped, cache " +
         std::to_string(kCacheKiB >> 10) + " MiB a connection, prepared statements, " +
         (options.integer_keys ? "integer ids" : "WITHOUT ROWID") + ", " +
         (options.threads == 1 ? "locking_mode=EXCLUSIVE" : "writers take turns by a mutex");
}

}  // namespace bench
