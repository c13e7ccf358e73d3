// RocksDB behind the adapter, tuned for a data set that fits in memory, random values and two
// cores. The reason for each choice is beside it. Reads are PinnableSlices, without a copy out of
// the cache.
#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/table.h>
#include <rocksdb/write_batch.h>

#include <algorithm>
#include <vector>

#include "bench/support/engine.h"

namespace bench {
namespace {

constexpr std::size_t kMemtableBytes = 64u << 20;

rocksdb::Slice slice(std::string_view s) { return {s.data(), s.size()}; }
std::string_view bytes_of(const rocksdb::Slice& s) { return {s.data(), s.size()}; }

rocksdb::Options tuned(const EngineOptions& options) {
  rocksdb::Options o;
  o.create_if_missing = true;
  o.max_background_jobs = 2;                // flush and compaction, one per core
  o.compression = rocksdb::kNoCompression;  // the values are noise
  o.bottommost_compression = rocksdb::kDisableCompressionOption;
  o.write_buffer_size = kMemtableBytes;
  o.max_write_buffer_number = 4;  // writers do not stall during a flush
  o.level_compaction_dynamic_level_bytes = true;
  o.memtable_whole_key_filtering = true;  // reads skip memtables that lack the key
  o.memtable_prefix_bloom_size_ratio = 0.1;
  o.max_open_files = -1;        // all tables stay open
  o.recycle_log_file_num = 2;   // a synced log append need not extend a file
  o.stats_dump_period_sec = 0;  // no statistics thread
  o.stats_persist_period_sec = 0;
  o.keep_log_file_num = 1;

  rocksdb::BlockBasedTableOptions table;
  table.block_cache = rocksdb::NewLRUCache(options.cache_bytes(), 6);
  table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
  table.data_block_index_type = rocksdb::BlockBasedTableOptions::kDataBlockBinaryAndHash;
  table.checksum = rocksdb::kXXH3;  // Debian's build has no fast CRC32
  table.format_version = 5;
  o.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  return o;
}

class RocksSession final : public Session {
 public:
  RocksSession(rocksdb::DB* db, bool sync) : db_(db) { write_.sync = sync; }

  bool read(std::string_view key, std::string_view& value) override {
    if (!db_->Get(read_, db_->DefaultColumnFamily(), slice(key), &pinned_).ok()) return false;
    value = bytes_of(pinned_);
    return true;
  }
  void release() override { pinned_.Reset(); }
  bool write(std::string_view key, std::string_view value) override {
    return db_->Put(write_, slice(key), slice(value)).ok();
  }
  bool write_group(std::span<const KeyAndValue> records) override {
    batch_.Clear();
    for (const KeyAndValue& r : records) {
      if (!batch_.Put(slice(r.key), slice(r.value)).ok()) return false;
    }
    return db_->Write(write_, &batch_).ok();
  }
  void read_group(std::span<const std::string_view> keys, const EachFound& each) override {
    const std::size_t n = keys.size();
    keys_.clear();
    for (const std::string_view key : keys) keys_.push_back(slice(key));
    if (values_.size() < n) values_ = std::vector<rocksdb::PinnableSlice>(n);
    found_.assign(n, rocksdb::Status());
    db_->MultiGet(read_, db_->DefaultColumnFamily(), n, keys_.data(), values_.data(),
                  found_.data());
    for (std::size_t i = 0; i < n; ++i) {
      if (found_[i].ok()) each(i, bytes_of(values_[i]));
      values_[i].Reset();
    }
  }
  bool erase(std::string_view key) override { return db_->Delete(write_, slice(key)).ok(); }
  std::uint64_t scan(std::string_view start, std::uint64_t count, Sink& sink) override {
    // Refresh() shows a kept iterator the newest data, more cheaply than making a new one.
    if (iterator_ == nullptr || !iterator_->Refresh().ok()) {
      iterator_.reset(db_->NewIterator(read_));
    }
    std::uint64_t taken = 0;
    for (iterator_->Seek(slice(start)); taken < count && iterator_->Valid(); ++taken) {
      sink.take(bytes_of(iterator_->key()), bytes_of(iterator_->value()));
      if (taken + 1 < count) iterator_->Next();
    }
    return taken;
  }

 private:
  rocksdb::DB* db_;
  rocksdb::ReadOptions read_;
  rocksdb::WriteOptions write_;
  rocksdb::PinnableSlice pinned_;
  std::unique_ptr<rocksdb::Iterator> iterator_;
  rocksdb::WriteBatch batch_;
  std::vector<rocksdb::Slice> keys_;  // of a group, as the next two
  std::vector<rocksdb::PinnableSlice> values_;
  std::vector<rocksdb::Status> found_;
};

class RocksEngine final : public Engine {
 public:
  bool open(const EngineOptions& options) override {
    sync_ = options.sync;
    rocksdb::DB* db = nullptr;
    const rocksdb::Status s = rocksdb::DB::Open(tuned(options), options.dir + "/rocksdb", &db);
    db_.reset(db);
    if (!s.ok()) error_ = s.ToString();
    return s.ok();
  }
  std::unique_ptr<Session> session() override {
    return std::make_unique<RocksSession>(db_.get(), sync_);
  }
  bool compact() override {
    const rocksdb::Status s = db_->CompactRange({}, nullptr, nullptr);
    if (!s.ok()) error_ = s.ToString();
    return s.ok();
  }
  bool close() override {
    const rocksdb::Status s = db_->Close();
    db_.reset();
    if (!s.ok()) error_ = s.ToString();
    return s.ok();
  }

 private:
  std::unique_ptr<rocksdb::DB> db_;
  bool sync_ = false;
};

}  // namespace

std::unique_ptr<Engine> make_rocksdb() { return std::make_unique<RocksEngine>(); }

std::string rocksdb_settings(const EngineOptions& options) {
  return std::string("WAL on, ") +
         (options.sync ? "sync on" : "sync off (survives kill -9, not a power cut)") +
         ", no compression, bloom 10 bits + memtable bloom, hash index in blocks, block cache " +
         std::to_string(options.cache_bytes() >> 20) +
         " MiB, 4 x 64 MiB memtables, 2 background jobs, pinned (zero-copy) reads; the Debian "
         "package lacks fast CRC32 (tables use XXH3, the WAL cannot)";
}

}  // namespace bench
