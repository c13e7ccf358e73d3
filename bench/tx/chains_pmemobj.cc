// libpmemobj's list, hash map and queue: the same steps as chains_tenuto.cc, with its 16-byte
// pointers and a range added before each store.
#include <type_traits>

#include "bench/tx/parts_pmemobj.h"
#include "bench/tx/structure.h"

namespace bench {
namespace {

template <std::uint64_t kBytes>
struct PmemobjNode {
  PmemobjNode(std::uint64_t k, PMEMoid after, const std::byte* bytes) : key(k), next(after) {
    std::memcpy(value, bytes, kBytes);
  }
  std::uint64_t key;
  PMEMoid next;
  std::byte value[kBytes];
};

template <std::uint64_t kBytes>
class PmemobjChain {
 public:
  using Node = PmemobjNode<kBytes>;

 protected:
  explicit PmemobjChain(const PmemobjPool& pool) : p_(pool) {}
  Node* node(PMEMoid oid) const { return p_.at<Node>(oid); }

  bool put_before(PMEMoid& at, std::uint64_t key, const std::byte* value) {
    return p_.run([&] {
      PMEMoid fresh;
      if (!p_.make<Node>(fresh, key, at, value) || !p_.add(at)) return false;
      at = fresh;
      return true;
    });
  }
  bool take_out(PMEMoid& at) {
    return p_.run([&] {
      const PMEMoid old = at;
      if (!p_.add(at)) return false;
      at = node(old)->next;
      return p_.free(old);
    });
  }
  template <class Visit>
  void walk_from(PMEMoid first, Visit&& visit) const {
    for (const Node* n = node(first); n != nullptr; n = node(n->next)) visit(n->key, n->value);
  }

  const PmemobjPool& p_;
};

template <std::uint64_t kBytes>
class PmemobjList : PmemobjChain<kBytes> {
 public:
  using typename PmemobjChain<kBytes>::Node;
  struct Area {
    PMEMoid head;
  };
  PmemobjList(const PmemobjPool& pool, Area& area) : PmemobjChain<kBytes>(pool), area_(area) {}

  bool insert(std::uint64_t key, const std::byte* value) {
    PMEMoid& at = place_of(key);
    const Node* const there = this->node(at);
    return (there == nullptr || there->key != key) && this->put_before(at, key, value);
  }
  const std::byte* lookup(std::uint64_t key) {
    const Node* const node = this->node(place_of(key));
    return node != nullptr && node->key == key ? node->value : nullptr;
  }
  bool remove(std::uint64_t key) {
    PMEMoid& at = place_of(key);
    const Node* const node = this->node(at);
    return node != nullptr && node->key == key && this->take_out(at);
  }
  template <class Visit>
  void walk(Visit&& visit) const {
    this->walk_from(area_.head, visit);
  }

 private:
  // The pointer to the first node whose key is not less.
  PMEMoid& place_of(std::uint64_t key) {
    PMEMoid* at = &area_.head;
    for (Node* n = this->node(*at); n != nullptr && n->key < key; n = this->node(*at)) {
      at = &n->next;
    }
    return *at;
  }

  Area& area_;
};

template <std::uint64_t kBytes>
class PmemobjMap : PmemobjChain<kBytes> {
 public:
  using typename PmemobjChain<kBytes>::Node;
  static constexpr std::uint64_t kChains = 16384;
  struct Area {
    PMEMoid chain[kChains];
  };
  PmemobjMap(const PmemobjPool& pool, Area& area) : PmemobjChain<kBytes>(pool), area_(area) {}

  bool insert(std::uint64_t key, const std::byte* value) {
    return OID_IS_NULL(place_of(key)) && this->put_before(chain_of(key), key, value);
  }
  const std::byte* lookup(std::uint64_t key) {
    const Node* const node = this->node(place_of(key));
    return node == nullptr ? nullptr : node->value;
  }
  bool remove(std::uint64_t key) {
    PMEMoid& at = place_of(key);
    return !OID_IS_NULL(at) && this->take_out(at);
  }
  template <class Visit>
  void walk(Visit&& visit) const {
    for (const PMEMoid& chain : area_.chain) this->walk_from(chain, visit);
  }

 private:
  PMEMoid& chain_of(std::uint64_t key) { return area_.chain[mix64(key) % kChains]; }
  // The pointer to the key's node, or the null one at the end of its chain.
  PMEMoid& place_of(std::uint64_t key) {
    PMEMoid* at = &chain_of(key);
    for (Node* n = this->node(*at); n != nullptr && n->key != key; n = this->node(*at)) {
      at = &n->next;
    }
    return *at;
  }

  Area& area_;
};

template <std::uint64_t kBytes>
class PmemobjQueue : PmemobjChain<kBytes> {
 public:
  using typename PmemobjChain<kBytes>::Node;
  // Both ends are in one range: whoever changes both adds them with one call.
  struct Area {
    PMEMoid first;
    PMEMoid last;
  };
  PmemobjQueue(const PmemobjPool& pool, Area& area) : PmemobjChain<kBytes>(pool), area_(area) {}

  bool insert(std::uint64_t key, const std::byte* value) {
    return this->p_.run([&] {
      PMEMoid fresh;
      if (!this->p_.template make<Node>(fresh, key, OID_NULL, value)) return false;
      PMEMoid& before = OID_IS_NULL(area_.last) ? area_.first : this->node(area_.last)->next;
      if (!this->p_.add(before) || !this->p_.add(area_.last)) return false;
      before = fresh;
      area_.last = fresh;
      return true;
    });
  }
  const std::byte* lookup(std::uint64_t key) {
    const Node* const first = this->node(area_.first);
    return first != nullptr && first->key == key ? first->value : nullptr;
  }
  bool remove(std::uint64_t key) {
    const Node* const first = this->node(area_.first);
    if (first == nullptr || first->key != key) return false;
    return this->p_.run([&] {
      const PMEMoid old = area_.first;
      const bool only = OID_IS_NULL(first->next);
      if (only ? !this->p_.add(area_) : !this->p_.add(area_.first)) return false;
      area_.first = first->next;
      if (only) area_.last = OID_NULL;
      return this->p_.free(old);
    });
  }
  template <class Visit>
  void walk(Visit&& visit) const {
    this->walk_from(area_.first, visit);
  }

 private:
  Area& area_;
};

template <std::uint64_t kBytes>
std::unique_ptr<Work> make_chain(const TxCase& what, const PmemobjPool& pool, void* area,
                                 const WorkSize& size) {
  const auto made = [&]<class S>(std::type_identity<S>) -> std::unique_ptr<Work> {
    static_assert(sizeof(typename S::Area) <= kThreadAreaBytes);
    return std::make_unique<StructureWork<S, kBytes>>(
        S(pool, *static_cast<typename S::Area*>(area)), what, size);
  };
  if (what.part == Part::list) return made(std::type_identity<PmemobjList<kBytes>>());
  if (what.part == Part::map) return made(std::type_identity<PmemobjMap<kBytes>>());
  return made(std::type_identity<PmemobjQueue<kBytes>>());
}

}  // namespace

std::unique_ptr<Work> make_pmemobj_chain(const TxCase& what, const PmemobjPool& pool, void* area,
                                         const WorkSize& size) {
  return size.value_bytes == 64 ? make_chain<64>(what, pool, area, size)
                                : make_chain<1024>(what, pool, area, size);
}

}  // namespace bench
