// libpmemobj's crit-bit tree: the same steps as tree_tenuto.cc, with its 16-byte pointers and a
// range added before the store.
#include <bit>

#include "bench/tx/parts_pmemobj.h"
#include "bench/tx/structure.h"

namespace bench {
namespace {

constexpr std::int64_t kPmemobjLeaf = -1;

// A leaf or a fork, told by `bit`: of a fork it is 63..0.
struct PmemobjTwig {
  std::int64_t bit;
};

template <std::uint64_t kBytes>
struct PmemobjLeaf : PmemobjTwig {
  PmemobjLeaf(std::uint64_t k, const std::byte* bytes) : PmemobjTwig{kPmemobjLeaf}, key(k) {
    std::memcpy(value, bytes, kBytes);
  }
  std::uint64_t key;
  std::byte value[kBytes];
};

struct PmemobjFork : PmemobjTwig {
  PmemobjFork(std::int64_t at, PMEMoid zero, PMEMoid one) : PmemobjTwig{at}, child{zero, one} {}
  PMEMoid child[2];
};

template <std::uint64_t kBytes>
class PmemobjTree {
 public:
  using Twig = PmemobjTwig;
  using Leaf = PmemobjLeaf<kBytes>;
  using Fork = PmemobjFork;
  struct Area {
    PMEMoid top;
  };
  PmemobjTree(const PmemobjPool& pool, Area& area) : p_(pool), area_(area) {}

  bool insert(std::uint64_t key, const std::byte* value) {
    const Leaf* const near = nearest(key);
    if (near != nullptr && near->key == key) return false;
    const std::int64_t bit = near == nullptr ? 0 : 63 - std::countl_zero(near->key ^ key);
    PMEMoid* at = &area_.top;
    if (near != nullptr) {
      for (Twig* t = twig(*at); t->bit > bit; t = twig(*at)) at = &child(t, key);
    }
    return p_.run([&] {
      PMEMoid fresh;
      if (!p_.make<Leaf>(fresh, key, value)) return false;
      PMEMoid top = fresh;
      const bool one = (key >> bit & 1) != 0;
      if (near != nullptr && !p_.make<Fork>(top, bit, one ? *at : fresh, one ? fresh : *at)) {
        return false;
      }
      if (!p_.add(*at)) return false;
      *at = top;
      return true;
    });
  }
  const std::byte* lookup(std::uint64_t key) {
    const Leaf* const near = nearest(key);
    return near != nullptr && near->key == key ? near->value : nullptr;
  }
  bool remove(std::uint64_t key) {
    PMEMoid* at = &area_.top;  // leads to the twig looked at
    PMEMoid* above = nullptr;  // leads to the fork that `at` is in
    for (Twig* t = twig(*at); t != nullptr && t->bit != kPmemobjLeaf; t = twig(*at)) {
      above = at;
      at = &child(t, key);
    }
    const PMEMoid found = *at;
    const Leaf* const leaf = p_.at<Leaf>(found);
    if (leaf == nullptr || leaf->key != key) return false;
    PMEMoid& to = above == nullptr ? area_.top : *above;
    const PMEMoid fork = above == nullptr ? OID_NULL : *above;
    const Fork* const forked = p_.at<Fork>(fork);
    const PMEMoid other =
        forked == nullptr ? OID_NULL : forked->child[at == &forked->child[0] ? 1 : 0];
    return p_.run([&] {
      if (!p_.add(to)) return false;
      to = other;
      return (forked == nullptr || p_.free(fork)) && p_.free(found);
    });
  }
  template <class Visit>
  void walk(Visit&& visit) const {
    if (!OID_IS_NULL(area_.top)) walk_from(twig(area_.top), visit);
  }

 private:
  Twig* twig(PMEMoid oid) const { return p_.at<Twig>(oid); }
  static PMEMoid& child(Twig* fork, std::uint64_t key) {
    return static_cast<Fork*>(fork)->child[key >> fork->bit & 1];
  }
  // The leaf at which the key's own bits end; null: there is none.
  const Leaf* nearest(std::uint64_t key) {
    Twig* t = twig(area_.top);
    while (t != nullptr && t->bit != kPmemobjLeaf) t = twig(child(t, key));
    return static_cast<const Leaf*>(t);
  }
  // At most 64 deep, as there are so many bits.
  template <class Visit>
  void walk_from(const Twig* t, Visit&& visit) const {
    if (t->bit == kPmemobjLeaf) {
      const auto* const found = static_cast<const Leaf*>(t);
      return visit(found->key, found->value);
    }
    for (const PMEMoid& below : static_cast<const Fork*>(t)->child) walk_from(twig(below), visit);
  }

  const PmemobjPool& p_;
  Area& area_;
};

template <std::uint64_t kBytes>
std::unique_ptr<Work> make_tree(const TxCase& what, const PmemobjPool& pool, void* area,
                                const WorkSize& size) {
  using S = PmemobjTree<kBytes>;
  return std::make_unique<StructureWork<S, kBytes>>(S(pool, *static_cast<typename S::Area*>(area)),
                                                    what, size);
}

}  // namespace

std::unique_ptr<Work> make_pmemobj_tree(const TxCase& what, const PmemobjPool& pool, void* area,
                                        const WorkSize& size) {
  return size.value_bytes == 64 ? make_tree<64>(what, pool, area, size)
                                : make_tree<1024>(what, pool, area, size);
}

}  // namespace bench
