// LevelDB behind the adapter. It has no read without a copy; the copy's buffer is reused.
#include <leveldb/cache.h>
#include <leveldb/db.h>
#include <leveldb/filter_policy.h>
#include <leveldb/write_batch.h>

#include <algorithm>

#include "bench/support/engine.h"

namespace bench {
namespace {

leveldb::Slice slice(std::string_view s) { return {s.data(), s.size()}; }
std::string_view bytes_of(const leveldb::Slice& s) { return {s.data(), s.size()}; }

class LevelSession final : public Session {
 public:
  LevelSession(leveldb::DB* db, bool sync) : db_(db) { write_.sync = sync; }

  bool read(std::string_view key, std::string_view& value) override {
    if (!db_->Get(read_, slice(key), &copy_).ok()) return false;
    value = copy_;
    return true;
  }
  void release() override {}
  bool write(std::string_view key, std::string_view value) override {
    return db_->Put(write_, slice(key), slice(value)).ok();
  }
  bool write_group(std::span<const KeyAndValue> records) override {
    batch_.Clear();
    for (const KeyAndValue& r : records) batch_.Put(slice(r.key), slice(r.value));
    return db_->Write(write_, &batch_).ok();
  }
  bool erase(std::string_view key) override { return db_->Delete(write_, slice(key)).ok(); }
  std::uint64_t scan(std::string_view start, std::uint64_t count, Sink& sink) override {
    const std::unique_ptr<leveldb::Iterator> at(db_->NewIterator(read_));
    std::uint64_t taken = 0;
    for (at->Seek(slice(start)); taken < count && at->Valid(); ++taken) {
      sink.take(bytes_of(at->key()), bytes_of(at->value()));
      if (taken + 1 < count) at->Next();
    }
    return taken;
  }

 private:
  leveldb::DB* db_;
  leveldb::ReadOptions read_;
  leveldb::WriteOptions write_;
  leveldb::WriteBatch batch_;
  std::string copy_;
};

class LevelEngine final : public Engine {
 public:
  bool open(const EngineOptions& options) override {
    sync_ = options.sync;
    cache_.reset(leveldb::NewLRUCache(options.cache_bytes()));
    filter_.reset(leveldb::NewBloomFilterPolicy(10));
    leveldb::Options o;
    o.create_if_missing = true;
    o.compression = leveldb::kNoCompression;
    o.write_buffer_size = 64u << 20;
    o.max_file_size = 32u << 20;
    o.block_cache = cache_.get();
    o.filter_policy = filter_.get();
    leveldb::DB* db = nullptr;
    const leveldb::Status s = leveldb::DB::Open(o, options.dir + "/leveldb", &db);
    db_.reset(db);
    if (!s.ok()) error_ = s.ToString();
    return s.ok();
  }
  std::unique_ptr<Session> session() override {
    return std::make_unique<LevelSession>(db_.get(), sync_);
  }
  bool compact() override {
    db_->CompactRange(nullptr, nullptr);
    return true;
  }
  bool close() override {
    db_.reset();
    return true;
  }

 private:
  std::unique_ptr<leveldb::Cache> cache_;  // outlives the database
  std::unique_ptr<const leveldb::FilterPolicy> filter_;
  std::unique_ptr<leveldb::DB> db_;
  bool sync_ = false;
};

}  // namespace

std::unique_ptr<Engine> make_leveldb() { return std::make_unique<LevelEngine>(); }

std::string leveldb_settings(const EngineOptions& options) {
  return std::string("log on, ") +
         (options.sync ? "sync on" : "sync off (survives kill -9, not a power cut)") +
         ", no compression, bloom 10 bits, block cache " +
         std::to_string(options.cache_bytes() >> 20) + " MiB, 64 MiB memtable, copying reads";
}

}  // namespace bench
