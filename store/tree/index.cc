#include "store/tree/index.h"

#include <unistd.h>

#include <array>
#include <mutex>

#include "pm/assert.h"
#include "pm/plant.h"

namespace TENUTO_NS::store {

namespace {

// Where a node with one child too many is cut. If the new child is the last one, it gets a node
// with one other child, so that ascending loads leave full nodes.
std::size_t cut(std::size_t children, std::size_t added) {
  return added == children - 1 ? children - 2 : children / 2;
}

}  // namespace

Place Index::locate(std::string_view key, Aim aim, UpperBound* upper) const {
  for (Backoff wait;; wait.pause()) {
    Node* n = root_.load(std::memory_order_acquire);
    const Node* bound_node = nullptr;
    unsigned bound = 0;
    for (;;) {
      const unsigned i = aim == Aim::at       ? n->find(key)
                         : aim == Aim::before ? n->find_before(key)
                                              : n->count() - 1u;
      if (i + 1 < n->count()) {
        bound_node = n;
        bound = i;
      }
      if (n->level() == 1) {
        ShadowLeaf* const leaf = leaf_of(n, i);
        if (leaf == nullptr) [[unlikely]]
          break;
        if (maker_ != nullptr) maker_->shadows().prefetch_words(*leaf);
        const std::uint64_t v = leaf->read_version();
        if (ShadowLeaf::dead(v) || n->obsolete()) break;
        if (upper != nullptr) {
          upper->bounded = bound_node != nullptr;
          upper->key.clear();
          if (bound_node != nullptr) bound_node->append_separator(bound, upper->key);
          upper->next = bound_node == n ? n->child(bound + 1) : nullptr;
        }
        return {leaf, v};
      }
      n = n->node(i);
      __builtin_prefetch(reinterpret_cast<const char*>(n) + kLineBytes);
    }
  }
}

void Index::locate_many(std::span<const std::string_view> keys, Place* out) const {
  TENUTO_ASSERT(keys.size() <= kLocatedAtOnce);
  std::array<const Node*, kLocatedAtOnce> at;
  std::array<unsigned, kLocatedAtOnce> child;
  at.fill(root_.load(std::memory_order_acquire));
  for (unsigned level = at[0]->level(); level > 1; --level) {
    for (std::size_t i = 0; i < keys.size(); ++i) {
      at[i] = at[i]->node(at[i]->find(keys[i]));
      __builtin_prefetch(at[i]);
      __builtin_prefetch(reinterpret_cast<const char*>(at[i]) + kLineBytes);
    }
  }
  std::array<PoolOffset, kLocatedAtOnce> unmade;
  std::size_t unmades = 0;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    child[i] = at[i]->find(keys[i]);
    const void* const leaf = at[i]->child(child[i]);
    __builtin_prefetch(leaf);
    if (UnmadeLeaf::is(leaf)) unmade[unmades++] = UnmadeLeaf::of(leaf).at();
  }
  if (unmades != 0) maker_->read_ahead({unmade.data(), unmades});
  for (std::size_t i = 0; i < keys.size(); ++i) {
    void* const found = at[i]->child(child[i]);
    if (UnmadeLeaf::is(found)) {
      out[i] = {};
      continue;
    }
    auto* const leaf = static_cast<ShadowLeaf*>(found);
    // As read_version(), without its wait.
    const std::uint64_t v = leaf->version.load(std::memory_order_seq_cst);
    const bool locked = ShadowLeaf::locked(v) && !TENUTO_PLANT("store_located_while_locked");
    const bool usable = !locked && !ShadowLeaf::dead(v) && !at[i]->obsolete();
    out[i] = usable ? Place{leaf, v} : Place{};
  }
}

ShadowLeaf* Index::route(std::string_view key) const {
  for (Backoff wait;; wait.pause()) {
    Node* n = root_.load(std::memory_order_acquire);
    while (n->level() > 1) n = n->node(n->find(key));
    if (ShadowLeaf* const leaf = leaf_of(n, n->find(key)); leaf != nullptr) return leaf;
  }
}

bool Index::leads_to(std::string_view key, const ShadowLeaf* leaf) const {
  const Node* n = root_.load(std::memory_order_acquire);
  while (n->level() > 1) n = n->node(n->find(key));
  return n->child(n->find(key)) == leaf;
}

ShadowLeaf* Index::make_leaf(Node* n, unsigned i, UnmadeLeaf leaf) const {
  ShadowLeafWithWords filled;
  const char* const damage = maker_->fill(leaf, n->kept(i), filled);
  if (TENUTO_PLANT("store_leaf_made_without_the_lock")) {
    ::usleep(20);
    ShadowLeaf& made = maker_->shadows().put(filled);
    n->set_child(i, &made);
    return &made;
  }
  if (!n->lock()) return nullptr;
  void* child = n->child(i);
  const bool first = UnmadeLeaf::is(child);
  if (first) n->set_child(i, child = &maker_->shadows().put(filled));
  n->unlock();
  if (first || TENUTO_PLANT("store_leaf_judged_without_the_lock")) maker_->note(leaf, damage);
  return static_cast<ShadowLeaf*>(child);
}

Index::Parent Index::lock_parent(const Node* node, std::string_view key) {
  Backoff wait;
  for (;;) {
    Node* n = root_.load(std::memory_order_acquire);
    if (n == node) {
      root_mu_.lock();
      if (root_.load(std::memory_order_relaxed) == node) return {};
      root_mu_.unlock();
      continue;
    }
    while (n->level() > node->level() + 1) n = n->node(n->find(key));
    if (n->level() == node->level() + 1 && n->lock()) {
      const unsigned i = n->find(key);
      if (n->node(i) == node) return {n, i};
      n->unlock();
    }
    wait.pause();
  }
}

// REQUIRES: root_mu_ is held. Unlocks it.
void Index::set_root(Node* root) {
  root_.store(root, std::memory_order_release);
  root_mu_.unlock();
}

// A change of shape: the locked nodes that are replaced, and the nodes made for them. Until it is
// shown, the destructor undoes all of it, also after a failed allocation. From then on only the
// retiring of nodes may allocate.
class Index::Change {
 public:
  explicit Change(Index& index) : index_(index) {}
  ~Change() {
    if (shown_) return;
    for (unsigned i = 0; i < olds_; ++i) old_[i]->unlock();
    for (unsigned i = 0; i < news_; ++i) Node::destroy(new_[i]);
  }
  Change(const Change&) = delete;
  Change& operator=(const Change&) = delete;

  // REQUIRES: locked.
  void will_go(Node* node) { old_[olds_++] = node; }
  Node* made(Node* node) {
    if (node != nullptr) new_[news_++] = node;
    return node;
  }

  // `with` takes the place of the last replaced node, which covers `key`.
  void show(std::string_view key, Node* with) {
    Node* const last = old_[olds_ - 1];
    const Parent p = index_.lock_parent(last, key);
    const bool too_late = TENUTO_PLANT("store_node_obsolete_after_its_successor");
    if (!too_late) end_old();
    if (p.node == nullptr) {
      index_.set_root(with);
    } else {
      p.node->set_child(p.child, with);
      p.node->unlock();
    }
    if (too_late) {
      ::usleep(20);
      end_old();
    }
    retire();
  }
  // The same if that node was the root. REQUIRES: root_mu_ is held. Unlocks it.
  void show_root(Node* with) {
    end_old();
    index_.set_root(with);
    retire();
  }

 private:
  void end_old() {
    for (unsigned i = 0; i < olds_; ++i) old_[i]->set_obsolete();
  }
  void retire() {
    shown_ = true;
    for (unsigned i = 0; i < olds_; ++i) index_.retire_(old_[i]);
  }

  Index& index_;
  bool shown_ = false;
  unsigned olds_ = 0;
  unsigned news_ = 0;
  std::array<Node*, kLevelsMax> old_;
  std::array<Node*, 2 * kLevelsMax> new_;
};

// Replaces `old`, which has the shape `s`, by two nodes cut at `at`. The parent gets one more
// child. If that is too many, it is split in the same way.
void Index::split(Change& change, Node* old, std::string_view key, NodeShape s, std::size_t at) {
  for (;;) {
    const unsigned level = old->level();
    Node* const low = change.made(Node::make(level, s, 0, at));
    Node* const high = change.made(Node::make(level, s, at, s.children.size()));
    const std::string separator = s.seps[at - 1];
    const Parent p = lock_parent(old, key);
    if (p.node == nullptr) {
      TENUTO_ASSERT(level + 1u < kLevelsMax);
      std::unique_lock root(root_mu_, std::adopt_lock);
      s = {{separator}, {low, high}};
      Node* const top = change.made(Node::make(level + 1u, s, 0, 2));
      root.release();
      change.show_root(top);
      return;
    }
    change.will_go(p.node);
    s = p.node->shape();
    s.children[p.child] = low;
    s.insert(p.child + 1, high);
    s.seps.insert(s.seps.begin() + p.child, separator);
    const std::size_t n = s.children.size();
    if (n <= kFanout) {
      change.show(key, change.made(Node::make(p.node->level(), s, 0, n)));
      return;
    }
    old = p.node;
    at = cut(n, p.child + 1);
  }
}

void Index::add(ShadowLeaf* left, std::string_view separator, ShadowLeaf* right) {
  Backoff wait;
  for (;;) {
    Node* n = root_.load(std::memory_order_acquire);
    while (n->level() > 1) n = n->node(n->find(separator));
    if (!n->lock()) {
      wait.pause();
      continue;
    }
    Change change(*this);
    change.will_go(n);
    const unsigned i = n->find(separator);
    // `left` is locked, so it is still the leaf of these keys. n is live, so it leads to `left`.
    TENUTO_ASSERT(n->child(i) == left);
    if (Node* with = change.made(n->with_child(i, separator, right)); with != nullptr) {
      change.show(separator, with);
      return;
    }
    NodeShape s = n->shape();
    s.insert(i + 1, right);
    s.seps.insert(s.seps.begin() + i, std::string(separator));
    const std::size_t count = s.children.size();
    if (count <= kFanout) {
      change.show(separator, change.made(Node::make(1, s, 0, count)));
    } else {
      split(change, n, separator, std::move(s), cut(count, i + 1));
    }
    return;
  }
}

// Needs no new node: readers that still find the old leaf see that it is dead, and start again.
void Index::exchange(ShadowLeaf* leaf, std::string_view key, ShadowLeaf* with) {
  Backoff wait;
  for (;;) {
    Node* n = root_.load(std::memory_order_acquire);
    while (n->level() > 1) n = n->node(n->find(key));
    if (n->lock()) {
      const unsigned i = n->find(key);
      TENUTO_ASSERT(n->child(i) == leaf);
      n->set_child(i, with);
      n->unlock();
      return;
    }
    wait.pause();
  }
}

Status Index::remove(ShadowLeaf* leaf, std::string_view separator,
                     const std::function<Status()>& unlink) {
  Backoff wait;
  for (;;) {
    Node* n = root_.load(std::memory_order_acquire);
    while (n->level() > 1) n = n->node(n->find(separator));
    if (!n->lock()) {
      wait.pause();
      continue;
    }
    Change change(*this);
    change.will_go(n);
    const unsigned i = n->find(separator);
    TENUTO_ASSERT(n->child(i) == leaf);
    Node* with = nullptr;
    if (i == 0) {
      with = without_leftmost(change, n, separator);
    } else {
      NodeShape s = n->shape();
      s.erase(i);
      s.seps.erase(s.seps.begin() + (i - 1));
      with = change.made(Node::make(1, s, 0, s.children.size()));
    }
    TENUTO_TRY(unlink());
    change.show(separator, with);
    return Status::ok;
  }
}

// Drops the first child of `n` (locked). Its range is given to the left. So a separator moves: the
// one before us in the first ancestor in which we are not the first child becomes the separator
// after the dropped child. Every node on the way up is made anew, because its range shrinks. The
// swap of that ancestor shows them all at once.
Node* Index::without_leftmost(Change& change, Node* n, std::string_view key) {
  std::string moved_up;
  Node* with = nullptr;  // null: no child is left in the nodes below
  for (unsigned child = 0;;) {
    NodeShape s = n->shape();
    const bool at_edge = child == 0;
    if (with != nullptr) {
      s.children[child] = with;
      if (!at_edge) s.seps[child - 1] = moved_up;
    } else {
      s.erase(child);
      if (at_edge && !s.seps.empty()) moved_up = s.seps[0];
      if (!s.seps.empty()) s.seps.erase(s.seps.begin() + (at_edge ? 0 : child - 1));
    }
    with =
        s.children.empty() ? nullptr : change.made(Node::make(n->level(), s, 0, s.children.size()));
    if (!at_edge) break;
    const Parent p = lock_parent(n, key);
    TENUTO_ASSERT(p.node != nullptr);  // the first leaf of the tree is never removed
    change.will_go(p.node);
    n = p.node;
    child = p.child;
  }
  return with;
}

Index::Shape Index::shape() const {
  Shape total;
  const Node* root = root_.load(std::memory_order_acquire);
  total.levels = root->level();
  const std::function<void(const Node*)> walk = [&](const Node* n) {
    ++total.nodes;
    total.bytes += n->bytes();
    for (unsigned i = 0; n->level() > 1 && i < n->count(); ++i) walk(n->node(i));
  };
  walk(root);
  return total;
}

void Index::each_low_node(const std::function<void(Node&, std::string_view)>& f) const {
  std::string low;
  const std::function<void(Node*)> below = [&](Node* n) {
    if (n->level() == 1) return f(*n, low);
    for (unsigned i = 0; i < n->count(); ++i) {
      if (i > 0) {
        low.clear();
        n->append_separator(i - 1, low);
      }
      below(n->node(i));
    }
  };
  below(root_.load(std::memory_order_acquire));
}

void Index::for_each(const std::function<void(ShadowLeaf*, std::string_view)>& f) const {
  each_low_node([&](Node& n, std::string_view first) {
    std::string low(first);
    for (unsigned i = 0; i < n.count(); ++i) {
      if (i > 0) {
        low.clear();
        n.append_separator(i - 1, low);
      }
      f(leaf_of(&n, i), low);
    }
  });
}

}  // namespace TENUTO_NS::store
