// LMDB behind the adapter. Each write is one transaction. Each session has one read transaction and
// renews it for each read, which is LMDB's cheapest way to see every committed write. Values are
// read in the map itself.
//
// buffered: MDB_NOSYNC with MDB_WRITEMAP, which survives kill -9 but not a power cut. It is LMDB's
// fastest mode. MDB_MAPASYNC would start write-back; MDB_NOSYNC implies MDB_NOMETASYNC.
// sync: full sync without WRITEMAP, since pwrite and fdatasync of the dirty pages are faster than
// msync of the map. MDB_NOMETASYNC would lose the last acknowledged write in a power cut.
#include <lmdb.h>

#include <algorithm>
#include <cstring>

#include "bench/support/engine.h"

namespace bench {
namespace {

// LMDB compares integer keys in the processor's byte order.
class KeyForm {
 public:
  KeyForm(std::string_view key, bool integer) {
    if (integer) {
      std::memcpy(&number_, key.data(), sizeof number_);
      number_ = __builtin_bswap64(number_);
      value_ = {sizeof number_, &number_};
    } else {
      value_ = {key.size(), const_cast<char*>(key.data())};
    }
  }
  KeyForm(const KeyForm&) = delete;
  KeyForm& operator=(const KeyForm&) = delete;
  MDB_val* get() { return &value_; }

 private:
  std::uint64_t number_ = 0;
  MDB_val value_{};
};

std::string_view bytes_of(const MDB_val& v) {
  return {static_cast<const char*>(v.mv_data), v.mv_size};
}

class LmdbSession final : public Session {
 public:
  LmdbSession(MDB_env* env, MDB_dbi dbi, bool integer) : env_(env), dbi_(dbi), integer_(integer) {
    if (mdb_txn_begin(env_, nullptr, MDB_RDONLY, &reader_) != 0) reader_ = nullptr;
    if (reader_ == nullptr) return;
    if (mdb_cursor_open(reader_, dbi_, &cursor_) != 0) cursor_ = nullptr;
    mdb_txn_reset(reader_);
  }
  ~LmdbSession() override {
    if (cursor_ != nullptr) mdb_cursor_close(cursor_);
    if (reader_ != nullptr) mdb_txn_abort(reader_);
  }

  bool read(std::string_view key, std::string_view& value) override {
    if (reader_ == nullptr || mdb_txn_renew(reader_) != 0) return false;
    KeyForm k(key, integer_);
    MDB_val v;
    if (mdb_get(reader_, dbi_, k.get(), &v) != 0) {
      mdb_txn_reset(reader_);
      return false;
    }
    value = bytes_of(v);
    return true;
  }
  void release() override { mdb_txn_reset(reader_); }
  bool write(std::string_view key, std::string_view value) override {
    KeyForm k(key, integer_);
    MDB_val v{value.size(), const_cast<char*>(value.data())};
    return change([&](MDB_txn* txn) { return mdb_put(txn, dbi_, k.get(), &v, 0); });
  }
  bool erase(std::string_view key) override {
    KeyForm k(key, integer_);
    return change([&](MDB_txn* txn) { return mdb_del(txn, dbi_, k.get(), nullptr); });
  }
  std::uint64_t scan(std::string_view start, std::uint64_t count, Sink& sink) override {
    if (reader_ == nullptr || cursor_ == nullptr || mdb_txn_renew(reader_) != 0) return 0;
    std::uint64_t taken = 0;
    if (mdb_cursor_renew(reader_, cursor_) == 0) taken = walk(start, count, sink);
    mdb_txn_reset(reader_);
    return taken;
  }

 private:
  template <class Body>
  bool change(Body&& body) {
    MDB_txn* txn = nullptr;
    if (mdb_txn_begin(env_, nullptr, 0, &txn) != 0) return false;
    if (body(txn) != 0) {
      mdb_txn_abort(txn);
      return false;
    }
    return mdb_txn_commit(txn) == 0;
  }
  std::uint64_t walk(std::string_view start, std::uint64_t count, Sink& sink) {
    KeyForm from(start.empty() && integer_ ? std::string_view("\0\0\0\0\0\0\0\0", 8) : start,
                 integer_);
    MDB_val k = *from.get();
    MDB_val v;
    const MDB_cursor_op first = start.empty() ? MDB_FIRST : MDB_SET_RANGE;
    std::uint64_t taken = 0;
    for (int rc = mdb_cursor_get(cursor_, &k, &v, first); rc == 0 && taken < count; ++taken) {
      if (integer_) {
        std::uint64_t number = 0;
        std::memcpy(&number, k.mv_data, sizeof number);
        number = __builtin_bswap64(number);
        sink.take({reinterpret_cast<const char*>(&number), sizeof number}, bytes_of(v));
      } else {
        sink.take(bytes_of(k), bytes_of(v));
      }
      if (taken + 1 < count) rc = mdb_cursor_get(cursor_, &k, &v, MDB_NEXT);
    }
    return taken;
  }

  MDB_env* env_;
  MDB_dbi dbi_;
  bool integer_;
  MDB_txn* reader_ = nullptr;
  MDB_cursor* cursor_ = nullptr;
};

class LmdbEngine final : public Engine {
 public:
  ~LmdbEngine() override { close(); }

  bool open(const EngineOptions& options) override {
    integer_ = options.integer_keys;
    int rc = mdb_env_create(&env_);
    if (rc != 0) return refuse(rc);
    constexpr std::uint64_t kMapBytesMin = 1ull << 30;
    mdb_env_set_mapsize(env_, std::max(kMapBytesMin, 8 * options.data_bytes));
    mdb_env_set_maxreaders(env_, 512);
    const unsigned flags = MDB_NORDAHEAD | MDB_NOMEMINIT | MDB_NOTLS;
    const unsigned durable = options.sync ? 0 : MDB_NOSYNC | MDB_WRITEMAP;
    rc = mdb_env_open(env_, options.dir.c_str(), flags | durable, 0644);
    if (rc != 0) return refuse(rc);
    MDB_txn* txn = nullptr;
    rc = mdb_txn_begin(env_, nullptr, 0, &txn);
    if (rc != 0) return refuse(rc);
    rc = mdb_dbi_open(txn, nullptr, integer_ ? MDB_INTEGERKEY | MDB_CREATE : MDB_CREATE, &dbi_);
    if (rc == 0)
      rc = mdb_txn_commit(txn);
    else
      mdb_txn_abort(txn);
    return rc == 0 || refuse(rc);
  }
  std::unique_ptr<Session> session() override {
    return std::make_unique<LmdbSession>(env_, dbi_, integer_);
  }
  bool close() override {
    if (env_ != nullptr) mdb_env_close(env_);
    env_ = nullptr;
    return true;
  }

 private:
  bool refuse(int rc) {
    error_ = mdb_strerror(rc);
    return false;
  }

  MDB_env* env_ = nullptr;
  MDB_dbi dbi_ = 0;
  bool integer_ = false;
};

}  // namespace

std::unique_ptr<Engine> make_lmdb() { return std::make_unique<LmdbEngine>(); }

std::string lmdb_settings(const EngineOptions& options) {
  return std::string(options.sync
                         ? "full sync (pwrite + fdatasync), no writemap"
                         : "MDB_NOSYNC + MDB_WRITEMAP (survives kill -9, not a power cut)") +
         ", one transaction a write, read transaction renewed for each read, zero-copy reads, "
         "NORDAHEAD, NOMEMINIT" +
         (options.integer_keys ? ", MDB_INTEGERKEY" : "");
}

}  // namespace bench
