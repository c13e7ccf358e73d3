// The writing process; see kill_writer.h. It checks what it reads. A value must be whole. A value
// of the thread's own share must be exactly the last version written.
#include "bench/main_job/kill_writer.h"

#include <cstdio>
#include <mutex>
#include <thread>

#include "bench/support/workload.h"
#include "bench/support/zipf.h"
#include "tenuto/kv.h"

namespace bench {
namespace {

using tenuto::Status;
using tenuto::Store;

class WriterThread {
 public:
  WriterThread(Store& store, const PackageRecords& records, const KillOptions& options,
               unsigned thread, unsigned kill, AckChannel& channel, KnownVersions known)
      : store_(store),
        records_(records),
        options_(options),
        thread_(thread),
        ring_(channel.rings[thread]),
        known_(known),
        rng_(options.seed * 1000 + kill * kWriterThreadsMax + thread),
        chooser_(options.records),
        key_(records.key_bytes_max(), '\0'),
        value_(records.value_bytes_max(), '\0') {}

  bool load() {
    const std::uint64_t share =
        (options_.records - thread_ + options_.threads - 1) / options_.threads;
    while (ring_.loaded < share) {
      if (!write(ring_.loaded * options_.threads + thread_)) return false;
      ++ring_.loaded;
    }
    return true;
  }

  bool run_ycsb_a() {
    while (true) {
      const std::uint64_t record = chooser_.next(rng_);
      const bool fine = rng_.below(2) == 0 ? read(record) : write(own(record));
      if (!fine) return false;
    }
  }

  const std::string& problem() const { return problem_; }

 private:
  // The nearest record in this thread's share.
  std::uint64_t own(std::uint64_t record) const {
    const std::uint64_t r = record - record % options_.threads + thread_;
    return r < options_.records ? r : thread_;
  }

  bool write(std::uint64_t record) {
    const std::string_view key(key_.data(), records_.make_key(record, key_.data()));
    const std::uint32_t version = make_version(ring_.sequence++, thread_);
    const std::size_t n = records_.make_value(record, key, version, value_.data());
    const AckEntry entry{static_cast<std::uint32_t>(record), version};
    ring_.begin(entry);
    const Status s = store_.put(key, {value_.data(), n});
    if (s != Status::ok) return stop("put", key, tenuto::status_name(s));
    ring_.acknowledge(entry);
    known_.version[record] = version;
    return true;
  }

  bool read(std::uint64_t record) {
    const std::string_view key(key_.data(), records_.make_key(record, key_.data()));
    const tenuto::Result<tenuto::View> found = store_.view(key);
    if (!found) return stop("get", key, tenuto::status_name(found.error()));
    std::uint32_t version = 0;
    if (!records_.check_value(key, found->value(), version)) {
      return stop("get", key, "a value that nobody wrote");
    }
    if (record % options_.threads == thread_ && version != known_.version[record]) {
      return stop("get", key, "a stale version");
    }
    ++ring_.reads;
    return true;
  }

  bool stop(const char* what, std::string_view key, const char* why) {
    problem_ = std::string(what) + " " + std::string(key) + ": " + why;
    return false;
  }

  Store& store_;
  const PackageRecords& records_;
  const KillOptions& options_;
  unsigned thread_;
  AckRing& ring_;
  KnownVersions known_;
  Rng rng_;
  ScrambledZipfian chooser_;
  std::string key_;
  std::string value_;
  std::string problem_;
};

}  // namespace

std::string store_path(const KillOptions& options) { return options.dir + "/packages.tnt"; }

int run_writer(const PackageRecords& records, const KillOptions& options, unsigned kill,
               AckChannel& channel, KnownVersions known) {
  tenuto::Report report;
  tenuto::Result<Store> store = Store::open(store_path(options), {}, &report);
  if (!store) {
    std::snprintf(channel.error, sizeof channel.error, "open: %s: %s",
                  tenuto::status_name(store.error()), report.text().c_str());
    return 1;
  }
  channel.writer_open.store(true, std::memory_order_release);
  std::mutex mu;  // guards channel.error
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < options.threads; ++t) {
    threads.emplace_back([&, t] {
      WriterThread writer(*store, records, options, t, kill, channel, known);
      bool fine = writer.load();
      channel.writers_loading.fetch_sub(1, std::memory_order_relaxed);
      fine = fine && writer.run_ycsb_a();
      const std::lock_guard lock(mu);
      if (!fine && channel.error[0] == '\0') {
        std::snprintf(channel.error, sizeof channel.error, "%s", writer.problem().c_str());
      }
    });
  }
  for (std::thread& t : threads) t.join();
  return 1;
}

}  // namespace bench
