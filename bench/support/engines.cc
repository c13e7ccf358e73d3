// The list of engines, and the engine `null`.
#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>

#include "bench/support/engine.h"

namespace bench {
namespace {

class NullSession final : public Session {
 public:
  explicit NullSession(std::size_t value_bytes) : some_(value_bytes, '\0') {}

  bool read(std::string_view, std::string_view& value) override {
    value = some_;
    return true;
  }
  void release() override {}
  bool write(std::string_view, std::string_view) override { return true; }
  bool erase(std::string_view) override { return true; }
  std::uint64_t scan(std::string_view start, std::uint64_t count, Sink& sink) override {
    for (std::uint64_t i = 0; i < count; ++i) sink.take(start, some_);
    return count;
  }

 private:
  std::string some_;
};

class NullEngine final : public Engine {
 public:
  bool open(const EngineOptions& options) override {
    value_bytes_ = options.value_bytes;
    return true;
  }
  std::unique_ptr<Session> session() override {
    return std::make_unique<NullSession>(value_bytes_);
  }
  bool close() override { return true; }

 private:
  std::size_t value_bytes_ = 0;
};

constexpr EngineKind volatile_kind(const char* name, std::unique_ptr<Engine> (*make)(),
                                   std::string (*settings)(const EngineOptions&)) {
  return {.name = name,
          .make = make,
          .settings = settings,
          .file_writes_are_all = false,
          .is_volatile = true};
}

constexpr EngineKind fptree_kind(const char* name, std::unique_ptr<Engine> (*make)(),
                                 std::string (*settings)(const EngineOptions&)) {
  return {.name = name,
          .make = make,
          .settings = settings,
          .file_writes_are_all = false,
          .has_media = true,
          .writes_after_reopen = false};
}

constexpr std::array kKinds = {
    EngineKind{"tenuto", make_tenuto, tenuto_settings, false, true, true},
#ifdef TENUTO_PEER_ROCKSDB
    EngineKind{"rocksdb", make_rocksdb, rocksdb_settings, true},
#endif
#ifdef TENUTO_PEER_LMDB
    EngineKind{"lmdb", make_lmdb, lmdb_settings, false},
    EngineKind{"lmdb-large", make_lmdb_large, lmdb_large_settings, false},
#endif
#ifdef TENUTO_PEER_LEVELDB
    EngineKind{"leveldb", make_leveldb, leveldb_settings, true},
#endif
#ifdef TENUTO_PEER_WIREDTIGER
    EngineKind{"wiredtiger", make_wiredtiger, wiredtiger_settings, true},
#endif
#ifdef TENUTO_PEER_SQLITE3
    EngineKind{"sqlite", make_sqlite, sqlite_settings, true},
#endif
    fptree_kind("fptree-tenuto", make_fptree_tenuto, fptree_tenuto_settings),
    fptree_kind("fptree-tenuto-v", make_fptree_tenuto_versioned, fptree_tenuto_versioned_settings),
#ifdef TENUTO_PEER_PMEMOBJ
    fptree_kind("fptree-pmdk", make_fptree_pmdk, fptree_pmdk_settings),
#endif
#ifdef TENUTO_PEER_ABSL
    volatile_kind("volatile-btree", make_absl_btree, absl_btree_settings),
#endif
    volatile_kind("volatile-map", make_std_map, std_map_settings),
    volatile_kind("volatile-tbb", make_tbb_map, tbb_map_settings),
    EngineKind{"bare", make_bare, bare_settings, true, false},
    EngineKind{"null", make_null, null_settings, false, false},
};

}  // namespace

std::unique_ptr<Engine> make_null() { return std::make_unique<NullEngine>(); }

std::string null_settings(const EngineOptions&) {
  return "stores nothing, answers at once: the client's own ceiling; answers are not checked";
}

std::span<const EngineKind> engine_kinds() { return kKinds; }

const EngineKind* find_engine(std::string_view name) {
  const auto at = std::find_if(kKinds.begin(), kKinds.end(),
                               [&](const EngineKind& kind) { return name == kind.name; });
  return at == kKinds.end() ? nullptr : &*at;
}

std::vector<std::string> engines_of(std::initializer_list<const char*> names) {
  std::vector<std::string> built;
  std::copy_if(names.begin(), names.end(), std::back_inserter(built),
               [](const char* name) { return find_engine(name) != nullptr; });
  return built;
}

}  // namespace bench
