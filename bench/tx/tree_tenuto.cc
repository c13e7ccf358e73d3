// Tenuto's crit-bit tree. A fork has the highest bit in which the keys below it differ, and forks
// of lower bits below it. An insert makes a leaf and a fork and stores one pointer; so does a
// removal in reverse.
#include <bit>

#include "bench/tx/parts_tenuto.h"
#include "bench/tx/structure.h"
#include "tenuto/p.h"

namespace bench {
namespace {

using tenuto::p;
using tenuto::Pool;
using tenuto::Result;
using tenuto::Status;
using tenuto::Transaction;

// A leaf or a fork.
struct TenutoTwig {
  static constexpr std::int64_t kLeaf = -1;
  std::int64_t bit = kLeaf;  // of a fork: 63..0
};

template <std::uint64_t kBytes>
struct TenutoLeaf : TenutoTwig {
  TenutoLeaf(std::uint64_t k, const std::byte* bytes) : key(k) {
    std::memcpy(value, bytes, kBytes);
  }
  std::uint64_t key;
  std::byte value[kBytes];
};

struct TenutoFork : TenutoTwig {
  TenutoFork(std::int64_t at, TenutoTwig* zero, TenutoTwig* one)
      : TenutoTwig{at}, child{zero, one} {}
  p<TenutoTwig*> child[2];
};

template <std::uint64_t kBytes>
class TenutoTree {
 public:
  using Twig = TenutoTwig;
  using Leaf = TenutoLeaf<kBytes>;
  using Fork = TenutoFork;
  struct Area {
    p<Twig*> top;
  };
  TenutoTree(Pool& pool, Area& area) : pool_(pool), area_(area) {}

  bool insert(std::uint64_t key, const std::byte* value) {
    const Leaf* const near = nearest(key);
    if (near == nullptr)
      return put(area_.top, [&](Transaction& tx) -> Result<Twig*> { return leaf(tx, key, value); });
    if (near->key == key) return false;
    const std::int64_t bit = 63 - std::countl_zero(near->key ^ key);
    p<Twig*>* at = &area_.top;
    while ((*at)->bit > bit) at = &child(*at, key);
    Twig* const below = *at;
    return put(*at, [&](Transaction& tx) -> Result<Twig*> {
      const Result<Twig*> fresh = leaf(tx, key, value);
      if (!fresh) return fresh.error();
      const bool one = (key >> bit & 1) != 0;
      const Result<Fork*> fork = tx.make<Fork>(bit, one ? below : *fresh, one ? *fresh : below);
      if (!fork) return fork.error();
      return static_cast<Twig*>(*fork);
    });
  }
  const std::byte* lookup(std::uint64_t key) {
    const Leaf* const near = nearest(key);
    return near != nullptr && near->key == key ? near->value : nullptr;
  }
  bool remove(std::uint64_t key) {
    p<Twig*>* at = &area_.top;  // leads to the twig looked at
    p<Twig*>* above = nullptr;  // leads to the fork that `at` is in
    for (; at->get() != nullptr && (*at)->bit != Twig::kLeaf; at = &child(*at, key)) above = at;
    Leaf* const found = static_cast<Leaf*>(at->get());
    if (found == nullptr || found->key != key) return false;
    Fork* const fork = above == nullptr ? nullptr : static_cast<Fork*>(above->get());
    Twig* const other =
        fork == nullptr ? nullptr : fork->child[at == &fork->child[0] ? 1 : 0].get();
    return pool_.run([&](Transaction& tx) {
      (fork == nullptr ? area_.top : *above) = other;
      if (fork != nullptr) TENUTO_TRY(tx.destroy(fork));
      return tx.destroy(found);
    }) == Status::ok;
  }
  template <class Visit>
  void walk(Visit&& visit) const {
    if (area_.top.get() != nullptr) walk_from(area_.top, visit);
  }

 private:
  static p<Twig*>& child(Twig* fork, std::uint64_t key) {
    return static_cast<Fork*>(fork)->child[key >> fork->bit & 1];
  }
  // The leaf at which the key's own bits end; null: there is none.
  const Leaf* nearest(std::uint64_t key) {
    Twig* twig = area_.top;
    while (twig != nullptr && twig->bit != Twig::kLeaf) twig = child(twig, key);
    return static_cast<const Leaf*>(twig);
  }
  static Result<Twig*> leaf(Transaction& tx, std::uint64_t key, const std::byte* value) {
    const Result<Leaf*> fresh = tx.make<Leaf>(key, value);
    if (!fresh) return fresh.error();
    return static_cast<Twig*>(*fresh);
  }
  // Stores what make() gives.
  template <class Make>
  bool put(p<Twig*>& at, Make&& make) {
    return pool_.run([&](Transaction& tx) {
      const Result<Twig*> made = make(tx);
      if (!made) return made.error();
      at = *made;
      return Status::ok;
    }) == Status::ok;
  }
  // At most 64 deep, as there are so many bits.
  template <class Visit>
  static void walk_from(const Twig* twig, Visit&& visit) {
    if (twig->bit == Twig::kLeaf) {
      const auto* const found = static_cast<const Leaf*>(twig);
      return visit(found->key, found->value);
    }
    for (const p<Twig*>& below : static_cast<const Fork*>(twig)->child) walk_from(below, visit);
  }

  Pool& pool_;
  Area& area_;
};

template <std::uint64_t kBytes>
std::unique_ptr<Work> make_tree(const TxCase& what, Pool& pool, void* area, const WorkSize& size) {
  using S = TenutoTree<kBytes>;
  return std::make_unique<StructureWork<S, kBytes>>(S(pool, *static_cast<typename S::Area*>(area)),
                                                    what, size);
}

}  // namespace

std::unique_ptr<Work> make_tenuto_tree(const TxCase& what, Pool& pool, void* area,
                                       const WorkSize& size) {
  return size.value_bytes == 64 ? make_tree<64>(what, pool, area, size)
                                : make_tree<1024>(what, pool, area, size);
}

}  // namespace bench
