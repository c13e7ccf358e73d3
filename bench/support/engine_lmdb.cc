// LMDB behind the adapter. Each write is one transaction. Each session has one read transaction and
// renews it for each read, which is LMDB's cheapest way to see every committed write. Values are
// read in the map itself.
//
// buffered: MDB_NOSYNC with MDB_WRITEMAP, which survives kill -9 but not a power cut. It is LMDB's
// fastest mode. MDB_MAPASYNC would start write-back; MDB_NOSYNC implies MDB_NOMETASYNC.
// sync: full sync without WRITEMAP, since pwrite and fdatasync of the dirty pages are faster than
// msync of the map. MDB_NOMETASYNC would lose the last acknowledged write in a power cut.
#include <fcntl.h>
#include <lmdb.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "bench/support/engine.h"
#include "bench/support/process.h"

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
  bool write_group(std::span<const KeyAndValue> records) override {
    return change([&](MDB_txn* txn) {
      int rc = 0;
      for (const KeyAndValue& r : records) {
        KeyForm k(r.key, integer_);
        MDB_val v{r.value.size(), const_cast<char*>(r.value.data())};
        if (rc == 0) rc = mdb_put(txn, dbi_, k.get(), &v, 0);
      }
      return rc;
    });
  }
  void read_group(std::span<const std::string_view> keys, const EachFound& each) override {
    if (reader_ == nullptr || mdb_txn_renew(reader_) != 0) return;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      KeyForm k(keys[i], integer_);
      MDB_val v;
      if (mdb_get(reader_, dbi_, k.get(), &v) == 0) each(i, bytes_of(v));
    }
    mdb_txn_reset(reader_);
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

constexpr std::uint64_t kLargePage = 2u << 20;

std::uint64_t round_up(std::uint64_t bytes) {
  return (bytes + kLargePage - 1) / kLargePage * kLargePage;
}

class LmdbEngine : public Engine {
 public:
  ~LmdbEngine() override { close(); }

  bool open(const EngineOptions& options) override {
    integer_ = options.integer_keys;
    int rc = mdb_env_create(&env_);
    if (rc != 0) return refuse(rc);
    mdb_env_set_mapsize(env_, map_bytes(options));
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

 protected:
  static std::uint64_t map_bytes(const EngineOptions& options) {
    constexpr std::uint64_t kMapBytesMin = 1ull << 30;
    return round_up(std::max(kMapBytesMin, 8 * options.data_bytes));
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

// LMDB with its map in large pages, as far as the kernel agrees: the first part of the file, twice
// the data, gets its blocks at open and is collapsed (MADV_COLLAPSE). note() says what came of it.
class LargeLmdbEngine final : public LmdbEngine {
 public:
  bool open(const EngineOptions& options) override {
    const std::string file = options.dir + "/data.mdb";
    if (!LmdbEngine::open(options)) return false;
    const MappedFile found = mapped_file(file);
    if (found.start % kLargePage != 0 && !open_lower(options, found)) return false;
    file_ = file;
    collapse(mapped_file(file), std::min(round_up(2 * options.data_bytes), map_bytes(options)));
    return true;
  }
  std::string note() override {
    const std::uint64_t large = mapped_file(file_).large_bytes;
    return std::to_string(large >> 20) + " MiB of the map are in large pages; " + outcome_;
  }

 private:
  // LMDB leaves the map's address to the kernel, which fills a gap from its end. So the map becomes
  // aligned when the excess is taken from that end first.
  bool open_lower(const EngineOptions& options, const MappedFile& was) {
    close();
    const std::uint64_t excess = was.start % kLargePage;
    void* const at = reinterpret_cast<void*>(was.end - excess);
    void* const held =
        ::mmap(at, excess, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    const bool opened = LmdbEngine::open(options);
    if (held != MAP_FAILED) ::munmap(held, excess);
    return opened;
  }
  void collapse(const MappedFile& map, std::uint64_t bytes) {
    constexpr int kCollapse = 25;  // MADV_COLLAPSE, which Debian 12's headers lack
    if (map.start % kLargePage != 0) {
      outcome_ = "the map is not aligned to them";
      return;
    }
    std::uint64_t done = 0;
    int error = allocate(bytes);
    while (error == 0 && done < bytes) {
      void* const piece = reinterpret_cast<void*>(map.start + done);
      if (::madvise(piece, kLargePage, kCollapse) != 0) {
        error = errno;
      } else {
        done += kLargePage;
      }
    }
    outcome_ = "MADV_COLLAPSE did " + std::to_string(done >> 20) + " of " +
               std::to_string(bytes >> 20) + " MiB";
    if (error != 0) outcome_ += std::string(" (") + std::strerror(error) + ")";
  }
  int allocate(std::uint64_t bytes) const {
    const int fd = ::open(file_.c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0) return errno;
    const int rc = ::fallocate(fd, 0, 0, static_cast<off_t>(bytes));
    const int error = rc == 0 ? 0 : errno;
    ::close(fd);
    return error;
  }

  std::string file_;
  std::string outcome_;
};

}  // namespace

std::unique_ptr<Engine> make_lmdb() { return std::make_unique<LmdbEngine>(); }

std::unique_ptr<Engine> make_lmdb_large() { return std::make_unique<LargeLmdbEngine>(); }

std::string lmdb_large_settings(const EngineOptions& options) {
  return lmdb_settings(options) + ", map collapsed into large pages (MADV_COLLAPSE)";
}

std::string lmdb_settings(const EngineOptions& options) {
  return std::string(options.sync
                         ? "full sync (pwrite + fdatasync), no writemap"
                         : "MDB_NOSYNC + MDB_WRITEMAP (survives kill -9, not a power cut)") +
         ", one transaction a write, read transaction renewed for each read, zero-copy reads, "
         "NORDAHEAD, NOMEMINIT" +
         (options.integer_keys ? ", MDB_INTEGERKEY" : "");
}

}  // namespace bench
