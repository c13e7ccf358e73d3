// The layers up to tx, connected by hand, for tests below the public Pool.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "pm/metadata_key.h"
#include "support/pool_parts.h"
#include "tenuto/tx.h"
#include "tx/engine.h"

namespace tenuto::test {

struct TxParts : PoolParts {
  std::unique_ptr<tx::Engine> engine;
  std::uint64_t rolled_back = 0;
  // As PoolImpl, which looks at the logs of a clean pool, too. false: it believes the superblock.
  bool recovers_clean_pools = true;

  Status create(const std::string& path, const PoolOptions& options = small_options()) {
    TENUTO_TRY(PoolParts::create(path, options));
    engine = std::make_unique<tx::Engine>(*file, *lanes, *heap);
    return Status::ok;
  }
  Status open(const std::string& path, const PoolOptions& options = small_options()) {
    TENUTO_TRY(begin_open(path, options));
    engine = std::make_unique<tx::Engine>(*file, *lanes, *heap);
    if (recovers_clean_pools || !file->was_clean())
      TENUTO_TRY(engine->recover(&report, &rolled_back, options.in_doubt));
    return end_open(options);
  }
  Status close() {
    TENUTO_TRY(engine->drain());
    engine.reset();
    return PoolParts::close();
  }
  void crash() {
    engine.reset();
    PoolParts::crash();
  }

  // As Pool::run.
  template <class Body>
  Status run(Body&& body) {
    Transaction tx(engine->mine());
    TENUTO_TRY(tx.status());
    const Status s = body(tx);
    if (s != Status::ok) {
      tx.abort();
      return s;
    }
    return tx.commit();
  }

  // The offsets of all allocated logged blocks.
  std::vector<PoolOffset> allocated_blocks() {
    std::vector<PoolOffset> all;
    heap->for_each(heap::Kind::logged, [&](PoolOffset b, std::uint64_t) { all.push_back(b); });
    std::erase_if(all, [&](PoolOffset b) { return !heap->find_allocated(b); });
    return all;
  }

  // A zero-filled block named by root word i.
  template <class T>
  T& make_root(std::size_t i, std::size_t count = 1) {
    EXPECT_EQ(heap->malloc_to(sizeof(T) * count, root(i)), Status::ok);
    T& t = get_root<T>(i);
    zero_flush(static_cast<void*>(&t), sizeof(T) * count);
    fence("test root", "test");
    return t;
  }
  template <class T>
  T& get_root(std::size_t i) {
    const pm::MetadataOpen rights;
    return *static_cast<T*>(PtrWord::decode(&root(i), root(i).raw));
  }
};

}  // namespace tenuto::test
