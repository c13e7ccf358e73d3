#include "support/isolation.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <set>
#include <utility>

namespace tenuto::test {

const char* anomaly_name(Anomaly a) {
  constexpr const char* kNames[] = {"none", "garbage", "order", "internal", "G0",
                                    "G1a",  "G1b",     "G1c",   "G-single", "G2"};
  return kNames[static_cast<std::size_t>(a)];
}

namespace {

using Verb = TxnOp::Verb;

enum EdgeKind : unsigned { kWw = 1, kWr = 2, kRw = 4, kRt = 8 };

struct Edge {
  std::size_t to;
  EdgeKind kind;
  std::uint32_t key;
  std::uint64_t value;
};

// The dependency graph. Nodes after those of the transactions are points in real time. An ended
// transaction has an edge to its point, each point to the next, and a point to the transactions
// that begin after it.
class Graph {
 public:
  explicit Graph(const std::vector<Txn>& txns) : txns_(txns), edges_(txns.size()) {}

  void add(std::size_t from, std::size_t to, EdgeKind kind, std::uint32_t key,
           std::uint64_t value) {
    if (from != to) edges_[from].push_back({to, kind, key, value});
  }

  void add_real_time(const std::vector<bool>& counts) {
    std::vector<std::pair<std::uint64_t, std::size_t>> ends;
    for (std::size_t i = 0; i < txns_.size(); ++i) {
      if (counts[i]) ends.push_back({txns_[i].end, i});
    }
    std::sort(ends.begin(), ends.end());
    const std::size_t first = edges_.size();
    edges_.resize(first + ends.size());
    for (std::size_t i = 0; i < ends.size(); ++i) {
      edges_[ends[i].second].push_back({first + i, kRt, 0, 0});
      if (i + 1 < ends.size()) edges_[first + i].push_back({first + i + 1, kRt, 0, 0});
    }
    for (std::size_t i = 0; i < txns_.size(); ++i) {
      if (!counts[i]) continue;
      const auto after =
          std::lower_bound(ends.begin(), ends.end(), std::pair{txns_[i].begin, std::size_t{0}});
      if (after == ends.begin()) continue;
      edges_[first + static_cast<std::size_t>(after - ends.begin()) - 1].push_back({i, kRt, 0, 0});
    }
  }

  // A cycle with edges of these kinds, of which at least one is of `needs`.
  std::string cycle(unsigned kinds, unsigned needs) const {
    const std::vector<std::size_t> component = components(kinds);
    for (std::size_t from = 0; from < edges_.size(); ++from) {
      for (const Edge& e : edges_[from]) {
        if ((e.kind & needs) == 0 || component[from] != component[e.to]) continue;
        return path_text(from, e, kinds);
      }
    }
    return {};
  }
  std::string cycle_with_one_rw(unsigned others) const {
    const std::vector<std::size_t> component = components(others | kRw);
    for (std::size_t from = 0; from < edges_.size(); ++from) {
      for (const Edge& e : edges_[from]) {
        if (e.kind != kRw || component[from] != component[e.to]) continue;
        if (std::string text = path_text(from, e, others); !text.empty()) return text;
      }
    }
    return {};
  }

 private:
  // Tarjan's algorithm, without recursion.
  std::vector<std::size_t> components(unsigned kinds) const {
    const std::size_t n = edges_.size();
    std::vector<std::size_t> index(n, 0), low(n, 0), component(n, n);
    std::vector<std::size_t> stack;
    std::vector<std::pair<std::size_t, std::size_t>> calls;
    std::size_t next = 1;
    std::size_t found = 0;
    for (std::size_t root = 0; root < n; ++root) {
      if (index[root] != 0) continue;
      calls.push_back({root, 0});
      while (!calls.empty()) {
        auto& [v, i] = calls.back();
        if (i == 0) {
          index[v] = low[v] = next++;
          stack.push_back(v);
        }
        bool descended = false;
        while (i < edges_[v].size()) {
          const Edge& e = edges_[v][i++];
          if ((e.kind & kinds) == 0) continue;
          if (index[e.to] == 0) {
            calls.push_back({e.to, 0});
            descended = true;
            break;
          }
          if (component[e.to] == n) low[v] = std::min(low[v], index[e.to]);
        }
        if (descended) continue;
        const std::size_t done = v;
        if (low[done] == index[done]) {
          for (std::size_t w = n; w != done;) {
            w = stack.back();
            stack.pop_back();
            component[w] = found;
          }
          ++found;
        }
        calls.pop_back();
        if (!calls.empty()) low[calls.back().first] = std::min(low[calls.back().first], low[done]);
      }
    }
    return component;
  }

  // The edge and the shortest path back to its start. Empty if there is none.
  std::string path_text(std::size_t from, const Edge& first, unsigned kinds) const {
    std::vector<std::optional<std::pair<std::size_t, Edge>>> came(edges_.size());
    std::deque<std::size_t> queue{first.to};
    while (!queue.empty() && !came[from]) {
      const std::size_t v = queue.front();
      queue.pop_front();
      for (const Edge& e : edges_[v]) {
        if ((e.kind & kinds) == 0 || came[e.to] || e.to == first.to) continue;
        came[e.to] = {v, e};
        queue.push_back(e.to);
      }
    }
    if (!came[from]) return {};
    std::string text;
    for (std::size_t v = from; v != first.to; v = came[v]->first) {
      text = edge_text(came[v]->first, came[v]->second) + text;
    }
    return edge_text(from, first) + text;
  }

  std::string name(std::size_t v) const {
    return v < txns_.size()
               ? "T" + std::to_string(v) + " (thread " + std::to_string(txns_[v].thread) + ", " +
                     std::to_string(txns_[v].begin) + ".." + std::to_string(txns_[v].end) + ")"
               : std::string("time");
  }
  std::string edge_text(std::size_t from, const Edge& e) const {
    const char* kind = e.kind == kWw ? "ww" : e.kind == kWr ? "wr" : e.kind == kRw ? "rw" : "rt";
    std::string text = "  " + name(from) + " -" + kind + "-> " + name(e.to);
    if (e.kind != kRt) text += ", key " + std::to_string(e.key) + ", " + std::to_string(e.value);
    return text + "\n";
  }

  const std::vector<Txn>& txns_;
  std::vector<std::vector<Edge>> edges_;
};

struct Written {
  std::size_t txn;
  bool last;  // the transaction's last write to the key
};
using Place = std::pair<std::uint32_t, std::uint64_t>;  // key, value

class Checker {
 public:
  Checker(const std::vector<Txn>& txns,
          const std::map<std::uint32_t, std::vector<std::uint64_t>>& orders)
      : txns_(txns), orders_(orders), counts_(txns.size()), graph_(txns) {}

  IsolationFinding run() {
    find_writers();
    judge_unknown();
    for (std::size_t i = 0; i < txns_.size() && worst_.anomaly == Anomaly::none; ++i) {
      if (counts_[i]) look_at_reads(i);
    }
    if (worst_.anomaly != Anomaly::none) return worst_;
    find_orders();
    if (worst_.anomaly != Anomaly::none) return worst_;
    add_edges();
    return find_cycle();
  }

 private:
  static bool writes(const TxnOp& op) { return op.verb == Verb::append || op.verb == Verb::write; }
  // The last value that a read saw. 0: nothing.
  static std::uint64_t seen(const TxnOp& op) {
    if (op.verb == Verb::read) return op.value;
    return op.values.empty() ? 0 : op.values.back();
  }

  void found(Anomaly a, std::size_t txn, const TxnOp& op, const std::string& why) {
    worst_ = {a, false,
              "T" + std::to_string(txn) + ", key " + std::to_string(op.key) + ": " + why + "\n"};
  }

  void find_writers() {
    for (std::size_t i = 0; i < txns_.size(); ++i) {
      std::map<std::uint32_t, std::uint64_t> last;
      for (const TxnOp& op : txns_[i].ops) {
        if (writes(op)) last[op.key] = op.value;
      }
      for (const TxnOp& op : txns_[i].ops) {
        if (writes(op)) writers_[{op.key, op.value}] = {i, last[op.key] == op.value};
      }
    }
  }

  // A transaction that a crash cut off counts if a transaction that counts saw it.
  void judge_unknown() {
    std::deque<std::size_t> queue;
    for (std::size_t i = 0; i < txns_.size(); ++i) {
      counts_[i] = txns_[i].how == Txn::End::committed;
      if (counts_[i]) queue.push_back(i);
    }
    const auto saw = [&](std::uint32_t key, std::uint64_t value) {
      const auto w = writers_.find({key, value});
      if (w == writers_.end() || counts_[w->second.txn]) return;
      if (txns_[w->second.txn].how != Txn::End::unknown) return;
      counts_[w->second.txn] = true;
      queue.push_back(w->second.txn);
    };
    for (; !queue.empty(); queue.pop_front()) {
      for (const TxnOp& op : txns_[queue.front()].ops) {
        if (op.verb == Verb::read && op.value != 0) saw(op.key, op.value);
        for (const std::uint64_t v : op.values) saw(op.key, v);
      }
    }
  }

  // Checks the reads of one transaction: its own writes must be in them, and other values must be
  // of transactions that it may see.
  void look_at_reads(std::size_t txn) {
    std::map<std::uint32_t, std::vector<std::uint64_t>> own;
    for (const TxnOp& op : txns_[txn].ops) {
      if (writes(op)) {
        own[op.key].push_back(op.value);
        continue;
      }
      const std::vector<std::uint64_t>& mine = own[op.key];
      std::vector<std::uint64_t> all = op.values;
      if (op.verb == Verb::read && op.value != 0) all = {op.value};
      if (op.verb == Verb::read && !mine.empty()) {
        if (op.value != mine.back()) found(Anomaly::internal, txn, op, "not its own write");
        continue;
      }
      if (op.verb == Verb::read_list) {
        const bool ends =
            all.size() >= mine.size() && std::equal(mine.rbegin(), mine.rend(), all.rbegin());
        if (!ends) return found(Anomaly::internal, txn, op, "not its own appends at the end");
        all.resize(all.size() - mine.size());
      }
      for (std::size_t i = 0; i < all.size(); ++i) {
        const auto w = writers_.find({op.key, all[i]});
        const std::string value = std::to_string(all[i]);
        if (w == writers_.end()) return found(Anomaly::garbage, txn, op, value + " of nobody");
        const Written& by = w->second;
        if (by.txn == txn) return found(Anomaly::internal, txn, op, value + " of its own future");
        if (txns_[by.txn].how == Txn::End::aborted) {
          return found(Anomaly::g1a, txn, op,
                       value + " of T" + std::to_string(by.txn) + ", aborted");
        }
        if (i + 1 == all.size() && !by.last) {
          return found(Anomaly::g1b, txn, op,
                       value + " in the middle of T" + std::to_string(by.txn));
        }
      }
    }
  }

  // after_[{key, v}] has the values that were written over v.
  void find_orders() {
    std::map<std::uint32_t, std::vector<std::uint64_t>> longest;
    std::set<std::uint32_t> lists;
    for (std::size_t i = 0; i < txns_.size(); ++i) {
      if (!counts_[i]) continue;
      for (const TxnOp& op : txns_[i].ops) {
        if (op.verb == Verb::append) lists.insert(op.key);
        if (op.verb != Verb::read_list) continue;
        lists.insert(op.key);
        std::vector<std::uint64_t>& l = longest[op.key];
        const std::size_t n = std::min(l.size(), op.values.size());
        if (!std::equal(l.begin(), l.begin() + static_cast<std::ptrdiff_t>(n), op.values.begin())) {
          return found(Anomaly::order, i, op, "a list that is no prefix of another read");
        }
        if (op.values.size() > l.size()) l = op.values;
      }
    }
    for (const std::uint32_t key : lists) chain(key, longest[key]);
    for (const auto& [key, values] : orders_) {
      std::vector<std::uint64_t> happened;
      for (const std::uint64_t v : values) {
        const auto w = writers_.find({key, v});
        if (w != writers_.end() && counts_[w->second.txn]) happened.push_back(v);
      }
      chain(key, happened);
    }
    for (std::size_t i = 0; i < txns_.size(); ++i) {
      if (!counts_[i]) continue;
      // Appends that no read saw come after all that a read saw.
      for (const TxnOp& op : txns_[i].ops) {
        if (op.verb != Verb::append) continue;
        const std::vector<std::uint64_t>& l = longest[op.key];
        if (std::find(l.begin(), l.end(), op.value) != l.end()) continue;
        after_[{op.key, l.empty() ? 0 : l.back()}].insert(op.value);
      }
      // A register that the transaction read and then wrote.
      std::map<std::uint32_t, std::uint64_t> base;
      for (const TxnOp& op : txns_[i].ops) {
        if (orders_.contains(op.key)) continue;
        if (op.verb == Verb::read) base.emplace(op.key, op.value);
        if (op.verb != Verb::write) continue;
        const auto b = base.find(op.key);
        if (b != base.end()) after_[{op.key, b->second}].insert(op.value);
        base[op.key] = op.value;
      }
    }
  }
  void chain(std::uint32_t key, const std::vector<std::uint64_t>& values) {
    std::uint64_t before = 0;
    for (const std::uint64_t v : values) {
      after_[{key, before}].insert(v);
      before = v;
    }
  }

  void add_edges() {
    for (const auto& [place, nexts] : after_) {
      const auto w = writers_.find(place);
      for (const std::uint64_t next : nexts) {
        const auto over = writers_.find({place.first, next});
        if (over == writers_.end() || !counts_[over->second.txn]) continue;
        if (w == writers_.end() || !counts_[w->second.txn]) continue;
        graph_.add(w->second.txn, over->second.txn, kWw, place.first, next);
      }
    }
    for (std::size_t i = 0; i < txns_.size(); ++i) {
      if (!counts_[i]) continue;
      std::set<std::uint32_t> written;
      for (const TxnOp& op : txns_[i].ops) {
        if (writes(op)) {
          written.insert(op.key);
          continue;
        }
        if (written.contains(op.key)) continue;  // it saw its own write
        const std::uint64_t value = seen(op);
        const auto w = writers_.find({op.key, value});
        if (w != writers_.end()) graph_.add(w->second.txn, i, kWr, op.key, value);
        add_overwriters(i, op.key, value);
      }
    }
    graph_.add_real_time(counts_);
  }
  // Edges to the transactions that wrote over what `reader` saw.
  void add_overwriters(std::size_t reader, std::uint32_t key, std::uint64_t value) {
    const auto nexts = after_.find({key, value});
    if (nexts == after_.end()) return;
    for (const std::uint64_t next : nexts->second) {
      const auto over = writers_.find({key, next});
      if (over == writers_.end() || !counts_[over->second.txn]) continue;
      graph_.add(reader, over->second.txn, kRw, key, next);
    }
  }

  IsolationFinding find_cycle() const {
    for (const unsigned time : {0u, static_cast<unsigned>(kRt)}) {
      const auto finding = [&](Anomaly a, std::string text) {
        return IsolationFinding{a, time != 0, std::move(text)};
      };
      if (std::string t = graph_.cycle(kWw | time, kWw); !t.empty()) return finding(Anomaly::g0, t);
      if (std::string t = graph_.cycle(kWw | kWr | time, kWr); !t.empty()) {
        return finding(Anomaly::g1c, t);
      }
      if (std::string t = graph_.cycle_with_one_rw(kWw | kWr | time); !t.empty()) {
        return finding(Anomaly::g_single, t);
      }
      if (std::string t = graph_.cycle(kWw | kWr | kRw | time, kRw); !t.empty()) {
        return finding(Anomaly::g2, t);
      }
    }
    return {};
  }

  const std::vector<Txn>& txns_;
  const std::map<std::uint32_t, std::vector<std::uint64_t>>& orders_;
  std::vector<bool> counts_;  // committed, or unknown and seen
  std::map<Place, Written> writers_;
  std::map<Place, std::set<std::uint64_t>> after_;
  Graph graph_;
  IsolationFinding worst_;
};

}  // namespace

IsolationFinding IsolationHistory::check() const { return Checker(txns_, orders_).run(); }

}  // namespace tenuto::test
