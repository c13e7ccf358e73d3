// Tenuto behind the adapter, using only the public header. Reads are Views: the value is checked in
// place in the pool.
#include <optional>

#include "bench/support/engine.h"
#include "bench/support/io_meter.h"
#include "bench/support/tenuto_medium.h"
#include "tenuto/kv.h"

namespace bench {
namespace {

using tenuto::Durability;
using tenuto::Medium;
using tenuto::Status;
using tenuto::Store;

class TenutoSession final : public Session {
 public:
  TenutoSession(Store& store, Durability durability) : store_(store), write_{durability} {}

  bool read(std::string_view key, std::string_view& value) override {
    tenuto::Result<tenuto::View> found = store_.view(key);
    if (!found) return false;
    view_.emplace(std::move(*found));
    value = view_->value();
    return true;
  }
  void release() override { view_.reset(); }
  bool write(std::string_view key, std::string_view value) override {
    return store_.put(key, value, write_) == Status::ok;
  }
  bool write_group(std::span<const KeyAndValue> records) override {
    batch_.clear();
    for (const KeyAndValue& r : records) batch_.put(r.key, r.value);
    return store_.write(batch_, write_) == Status::ok;
  }
  void read_group(std::span<const std::string_view> keys, const EachFound& each) override {
    static_cast<void>(store_.multi_get(keys, [&](std::size_t i, Status s, std::string_view value) {
      if (s == Status::ok) each(i, value);
    }));
  }
  bool erase(std::string_view key) override { return store_.erase(key, write_) == Status::ok; }
  std::uint64_t scan(std::string_view start, std::uint64_t count, Sink& sink) override {
    tenuto::Iterator at = store_.iterator();
    start.empty() ? at.seek_first() : at.seek(start);
    std::uint64_t taken = 0;
    while (taken < count && at.valid()) {
      sink.take(at.key(), at.value());
      if (++taken < count) at.next();
    }
    return taken;
  }

 private:
  Store& store_;
  tenuto::WriteOptions write_;
  std::optional<tenuto::View> view_;
  tenuto::WriteBatch batch_;
};

class TenutoEngine final : public Engine {
 public:
  bool open(const EngineOptions& options) override {
    const std::optional<Medium> medium = medium_of(options.medium);
    if (!medium) return refuse("no medium is called " + options.medium);
    const std::optional<JournalWrites> writes = journal_writes_of(options.journal_writes);
    if (!writes) return refuse("a journal is not written by " + options.journal_writes);
    set_journal_writes(*writes);
    tenuto::StoreOptions how;
    how.pool.medium = *medium;
    how.order = options.integer_keys ? tenuto::KeyOrder::u64 : tenuto::KeyOrder::bytes;
    how.check_order = true;
    how.verify_reads = true;
    tenuto::Report report;
    tenuto::Result<Store> opened = Store::open(options.dir + "/store.tnt", how, &report);
    if (!opened) {
      return refuse(std::string(tenuto::status_name(opened.error())) + ": " + report.text());
    }
    store_.emplace(std::move(*opened));
    durability_ = options.sync ? Durability::sync : Durability::buffered;
    return true;
  }
  std::unique_ptr<Session> session() override {
    return std::make_unique<TenutoSession>(*store_, durability_);
  }
  bool close() override {
    const Status s = store_->close();
    store_.reset();
    return s == Status::ok || refuse(std::string("close: ") + tenuto::status_name(s));
  }
  EngineCounters counters() override {
    // First: the statistics look at the pool, and a phase may have to begin cold.
    if (store_->pool().info().medium != Medium::model) return {};
    const tenuto::PoolStats pool = store_->stats().pool;
    return {static_cast<double>(pool.lines_flushed), static_cast<double>(pool.fences),
            static_cast<double>(pool.reflushes)};
  }
  JournalCounters journal_counters() override {
    if (store_->pool().info().medium != Medium::journal) return {};
    const tenuto::PoolStats pool = store_->stats().pool;
    return {static_cast<double>(pool.journal_commits), static_cast<double>(pool.journal_lines),
            static_cast<double>(pool.journal_payload_bytes),
            static_cast<double>(pool.journal_written_bytes),
            static_cast<double>(pool.journal_checkpoint_bytes)};
  }
  std::string medium() override { return tenuto::medium_name(store_->pool().info().medium); }
  bool compact() override {
    tenuto::Report report;
    const auto done = store_->compact({.in_key_order = true}, &report);
    return done || refuse(std::string(tenuto::status_name(done.error())) + ": " + report.text());
  }
  bool validate() override {
    tenuto::Report report;
    const Status s = store_->validate(&report);
    return s == Status::ok ||
           refuse(std::string("validate: ") + tenuto::status_name(s) + ": " + report.text());
  }

 private:
  bool refuse(std::string why) {
    error_ = std::move(why);
    return false;
  }

  std::optional<Store> store_;
  Durability durability_ = Durability::sync;
};

}  // namespace

std::unique_ptr<Engine> make_tenuto() { return std::make_unique<TenutoEngine>(); }

std::string tenuto_settings(const EngineOptions& options) {
  std::string survives = "survives kill -9; a power cut where CPU caches are persistent";
  if (options.medium == "line" || options.medium == "model") {
    survives = "every line flushed: survives a power cut on persistent memory";
  } else if (options.medium == "auto") {
    survives = "line on persistent memory, cache in memory, elsewhere journal";
  } else if (options.medium == "journal") {
    survives = options.sync ? "one device write a group of commits: survives a power cut"
                            : "a power cut or kill -9 loses at most the last 100 ms";
    if (options.journal_writes != "direct") survives += ", written by " + options.journal_writes;
  }
  return "medium " + options.medium + " (" + survives + "), " +
         (options.sync ? "sync" : "buffered") +
         " writes, each read verified by its checksum, zero-copy views, the pool grows from its "
         "default size" +
         (options.integer_keys ? ", integer keys" : "") +
         (options.compacted ? ", compacted in key order after the load" : "");
}

}  // namespace bench
