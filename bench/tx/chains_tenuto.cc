// Tenuto's list, hash map and queue, of fields that add themselves. Each searches first and changes
// then: a field is read for less outside a transaction, and a single thread may do so.
#include <type_traits>

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

template <std::uint64_t kBytes>
struct TenutoNode {
  TenutoNode(std::uint64_t k, TenutoNode* after, const std::byte* bytes) : key(k), next(after) {
    std::memcpy(value, bytes, kBytes);
  }
  std::uint64_t key;
  p<TenutoNode*> next;
  std::byte value[kBytes];
};

// Puts a new node before the one that `at` leads to.
template <class Node>
bool put_before(Pool& pool, p<Node*>& at, std::uint64_t key, const std::byte* value) {
  return pool.run([&](Transaction& tx) {
    const Result<Node*> fresh = tx.make<Node>(key, at.get(), value);
    if (!fresh) return fresh.error();
    at = *fresh;
    return Status::ok;
  }) == Status::ok;
}

// Takes the node that `at` leads to out.
template <class Node>
bool take_out(Pool& pool, p<Node*>& at) {
  Node* const node = at;
  return pool.run([&](Transaction& tx) {
    at = node->next.get();
    return tx.destroy(node);
  }) == Status::ok;
}

template <std::uint64_t kBytes>
class TenutoList {
 public:
  using Node = TenutoNode<kBytes>;
  struct Area {
    p<Node*> head;
  };
  TenutoList(Pool& pool, Area& area) : pool_(pool), area_(area) {}

  bool insert(std::uint64_t key, const std::byte* value) {
    p<Node*>& at = place_of(key);
    if (at.get() != nullptr && at->key == key) return false;
    return put_before(pool_, at, key, value);
  }
  const std::byte* lookup(std::uint64_t key) {
    const Node* const node = place_of(key);
    return node != nullptr && node->key == key ? node->value : nullptr;
  }
  bool remove(std::uint64_t key) {
    p<Node*>& at = place_of(key);
    return at.get() != nullptr && at->key == key && take_out(pool_, at);
  }
  template <class Visit>
  void walk(Visit&& visit) const {
    for (const Node* n = area_.head; n != nullptr; n = n->next) visit(n->key, n->value);
  }

 private:
  // The pointer to the first node whose key is not less.
  p<Node*>& place_of(std::uint64_t key) {
    p<Node*>* at = &area_.head;
    for (Node* n = *at; n != nullptr && n->key < key; n = *at) at = &n->next;
    return *at;
  }

  Pool& pool_;
  Area& area_;
};

template <std::uint64_t kBytes>
class TenutoMap {
 public:
  using Node = TenutoNode<kBytes>;
  static constexpr std::uint64_t kChains = 16384;
  struct Area {
    p<Node*> chain[kChains];
  };
  TenutoMap(Pool& pool, Area& area) : pool_(pool), area_(area) {}

  bool insert(std::uint64_t key, const std::byte* value) {
    return place_of(key).get() == nullptr && put_before(pool_, chain_of(key), key, value);
  }
  const std::byte* lookup(std::uint64_t key) {
    const Node* const node = place_of(key);
    return node == nullptr ? nullptr : node->value;
  }
  bool remove(std::uint64_t key) {
    p<Node*>& at = place_of(key);
    return at.get() != nullptr && take_out(pool_, at);
  }
  template <class Visit>
  void walk(Visit&& visit) const {
    for (const p<Node*>& chain : area_.chain) {
      for (const Node* n = chain; n != nullptr; n = n->next) visit(n->key, n->value);
    }
  }

 private:
  p<Node*>& chain_of(std::uint64_t key) { return area_.chain[mix64(key) % kChains]; }
  // The pointer to the key's node, or the null one at the end of its chain.
  p<Node*>& place_of(std::uint64_t key) {
    p<Node*>* at = &chain_of(key);
    for (Node* n = *at; n != nullptr && n->key != key; n = *at) at = &n->next;
    return *at;
  }

  Pool& pool_;
  Area& area_;
};

template <std::uint64_t kBytes>
class TenutoQueue {
 public:
  using Node = TenutoNode<kBytes>;
  struct Area {
    p<Node*> first;
    p<Node*> last;
  };
  TenutoQueue(Pool& pool, Area& area) : pool_(pool), area_(area) {}

  bool insert(std::uint64_t key, const std::byte* value) {
    Node* const last = area_.last;
    return pool_.run([&](Transaction& tx) {
      const Result<Node*> fresh = tx.make<Node>(key, nullptr, value);
      if (!fresh) return fresh.error();
      (last == nullptr ? area_.first : last->next) = *fresh;
      area_.last = *fresh;
      return Status::ok;
    }) == Status::ok;
  }
  const std::byte* lookup(std::uint64_t key) {
    const Node* const first = area_.first;
    return first != nullptr && first->key == key ? first->value : nullptr;
  }
  bool remove(std::uint64_t key) {
    Node* const first = area_.first;
    if (first == nullptr || first->key != key) return false;
    Node* const second = first->next;
    return pool_.run([&](Transaction& tx) {
      area_.first = second;
      if (second == nullptr) area_.last = nullptr;
      return tx.destroy(first);
    }) == Status::ok;
  }
  template <class Visit>
  void walk(Visit&& visit) const {
    for (const Node* n = area_.first; n != nullptr; n = n->next) visit(n->key, n->value);
  }

 private:
  Pool& pool_;
  Area& area_;
};

template <std::uint64_t kBytes>
std::unique_ptr<Work> make_chain(const TxCase& what, Pool& pool, void* area, const WorkSize& size) {
  const auto made = [&]<class S>(std::type_identity<S>) -> std::unique_ptr<Work> {
    static_assert(sizeof(typename S::Area) <= kThreadAreaBytes);
    return std::make_unique<StructureWork<S, kBytes>>(
        S(pool, *static_cast<typename S::Area*>(area)), what, size);
  };
  if (what.part == Part::list) return made(std::type_identity<TenutoList<kBytes>>());
  if (what.part == Part::map) return made(std::type_identity<TenutoMap<kBytes>>());
  return made(std::type_identity<TenutoQueue<kBytes>>());
}

}  // namespace

std::unique_ptr<Work> make_tenuto_chain(const TxCase& what, Pool& pool, void* area,
                                        const WorkSize& size) {
  return size.value_bytes == 64 ? make_chain<64>(what, pool, area, size)
                                : make_chain<1024>(what, pool, area, size);
}

}  // namespace bench
