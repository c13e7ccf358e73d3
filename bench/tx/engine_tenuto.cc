// Tenuto, by its public headers.
#include <optional>

#include "bench/support/tenuto_medium.h"
#include "bench/tx/parts_tenuto.h"

namespace bench {
namespace {

class TenutoTx final : public TxEngine {
 public:
  bool open(const TxPlace& place) override {
    const std::optional<tenuto::Medium> medium = medium_of(place.medium);
    if (!medium) return refuse("no medium is called " + place.medium);
    tenuto::PoolOptions how;
    how.medium = *medium;
    tenuto::Report report;
    tenuto::Result<tenuto::Pool> pool = tenuto::Pool::create(place.dir + "/tx.tnt", how, &report);
    if (!pool) return fail(pool.error(), report);
    pool_.emplace(std::move(*pool));
    const tenuto::Result<void*> root =
        pool_->root("tx_bench", place.threads * kThreadAreaBytes, &report);
    if (!root) return fail(root.error(), report);
    root_ = static_cast<std::byte*>(*root);
    return true;
  }
  bool close() override {
    const tenuto::Status s = pool_->close();
    return s == tenuto::Status::ok || refuse(std::string("close: ") + tenuto::status_name(s));
  }
  std::unique_ptr<Work> work(const TxCase& what, const WorkSize& size, unsigned thread) override {
    void* const area = root_ + thread * kThreadAreaBytes;
    if (what.part == Part::row) return make_tenuto_row(what.name, *pool_, area, size);
    if (what.part == Part::tree) return make_tenuto_tree(what, *pool_, area, size);
    return make_tenuto_chain(what, *pool_, area, size);
  }
  EngineCounters counters() override {
    if (pool_->info().medium != tenuto::Medium::model) return {};
    const tenuto::PoolStats s = pool_->stats();
    return {static_cast<double>(s.lines_flushed), static_cast<double>(s.fences),
            static_cast<double>(s.reflushes)};
  }
  bool validate() override {
    tenuto::Report report;
    const tenuto::Status s = pool_->validate(&report);
    return s == tenuto::Status::ok || fail(s, report);
  }

 private:
  bool fail(tenuto::Status s, const tenuto::Report& report) {
    return refuse(std::string(tenuto::status_name(s)) + ": " + report.text());
  }

  std::optional<tenuto::Pool> pool_;
  std::byte* root_ = nullptr;
};

}  // namespace

std::unique_ptr<TxEngine> make_tenuto_tx() { return std::make_unique<TenutoTx>(); }

std::string tenuto_tx_settings(const std::string& medium) {
  const std::string what = "Pool::run, fields (p<T>) for pointers; medium " + medium;
  if (medium == "model") return what + ", which counts each flush and fence";
  return what + (medium == "cache" ? ", no flush: survives kill -9" : ", every line flushed");
}

}  // namespace bench
