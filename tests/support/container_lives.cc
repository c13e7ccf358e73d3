// Random transactions of random operations on a vector, a vector of fields, a vector of strings, a
// string and queues, beside those of std. What std has, the pool must have: inside the transaction,
// after its commit, after an abort or a way back to a savepoint, and after a kill and recovery.
// Nothing leaks.
#include "support/container_lives.h"

#include <algorithm>
#include <random>
#include <vector>

#include "support/container_model.h"
#include "support/container_parts.h"

namespace tenuto::test {

namespace {

class Life {
 public:
  Life(std::uint64_t seed, LifeKind kind)
      : path_("containerlife" + std::to_string(seed)), rng_(seed), kind_(kind) {
    if (kind == LifeKind::collected) {
      options_.consistency = Consistency::gc;
      options_.root_filter = reference_filter<ContainerRoot>();
    }
    EXPECT_EQ(parts_.create(path_.str(), options_), Status::ok) << parts_.report.text();
    root_ = &parts_.make_root<ContainerRoot>(0);
    watch();
  }

  void step() {
    now_ = kept_;
    tx::Txn& outermost = parts_.engine->mine();  // no guard ends it when it is killed
    ASSERT_EQ(outermost.begin(), Status::ok);
    {
      Transaction tx(outermost);
      for (std::uint64_t n = below(12); n > 0; --n) {
        ASSERT_EQ(operation(tx), Status::ok);
        if (below(8) == 0) compare(now_);
        if (below(8) == 0) go_back(tx);
      }
      compare(now_);
      ASSERT_EQ(tx.commit(), Status::ok);
    }
    const std::uint64_t end = below(100);
    if (end < 60) {
      ASSERT_EQ(outermost.commit(), Status::ok);
      kept_ = now_;
      counts.commits += 1;
    } else if (end < 90) {
      outermost.abort();
      counts.aborts += 1;
    } else {
      parts_.crash();
      ASSERT_EQ(parts_.open(path_.str(), options_), Status::ok) << parts_.report.text();
      root_ = &parts_.get_root<ContainerRoot>(0);
      watch();
      counts.kills += 1;
    }
    compare(kept_);
    ASSERT_EQ(parts_.allocated_blocks().size(), 1 + blocks_of(*root_));
  }

  ContainerLives counts;

 private:
  std::uint64_t below(std::uint64_t n) { return rng_() % n; }
  std::string random_text() { return std::string(below(below(4) == 0 ? 200 : 20), letter()); }
  char letter() { return static_cast<char>('a' + below(26)); }

  // Mistakes that PoolOptions::on_mistake finds.
  void watch() {
    if (kind_ != LifeKind::watched) return;
    parts_.engine->watch([](const Report& r) { ADD_FAILURE() << r.text(); });
  }

  void go_back(Transaction& tx) {
    const Result<Transaction::Savepoint> point = tx.savepoint();
    ASSERT_TRUE(point);
    const ContainerModel then = now_;
    for (std::uint64_t n = below(6); n > 0; --n) ASSERT_EQ(operation(tx), Status::ok);
    ASSERT_EQ(tx.rollback_to(*point), Status::ok);
    now_ = then;
    compare(now_);
  }

  Status operation(Transaction& tx) {
    switch (below(6)) {
      case 0:
        return numbers_step(tx);
      case 1:
        return fields_step(tx);
      case 2:
        return texts_step(tx);
      case 3:
        return text_step(tx);
      case 4:
        return rows_step(tx);
      default:
        return below(2) == 0 ? queue_step(tx) : lines_step(tx);
    }
  }

  Status numbers_step(Transaction& tx) {
    Vector<std::uint64_t>& v = root_->numbers;
    std::vector<std::uint64_t>& m = now_.numbers;
    const std::uint64_t value = rng_();
    const std::uint64_t at = below(m.size() + 1), last = at + below(m.size() - at + 1);
    const auto it = [&](std::uint64_t i) { return m.begin() + static_cast<std::ptrdiff_t>(i); };
    const std::vector<std::uint64_t> some(below(30), value);
    switch (below(12)) {
      case 0:
        m.insert(it(at), value);
        return v.insert(tx, at, value);
      case 1:
        m.erase(it(at), it(last));
        return v.erase(tx, at, last);
      case 2:
        m.resize(last, value);
        return v.resize(tx, last, value);
      case 3:
        m = some;
        return v.assign(tx, some);
      case 4:
        m.insert(m.end(), some.begin(), some.end());
        return v.append(tx, some);
      case 5:
        if (below(4) != 0) return v.shrink_to_fit(tx);
        m.clear();
        return v.clear(tx);
      case 6:
        return v.reserve(tx, below(100));
      case 7:
        if (at == m.size()) return Status::ok;
        m[at] = value;
        return v.set(tx, at, value);
      case 8:
      case 9:
        if (m.empty()) return Status::ok;
        m.pop_back();
        return v.pop_back(tx);
      default:
        m.push_back(value);
        return v.push_back(tx, value);
    }
  }

  Status fields_step(Transaction& tx) {
    Vector<p<std::uint64_t>>& v = root_->fields;
    std::vector<std::uint64_t>& m = now_.fields;
    const std::uint64_t value = rng_() % 1000;
    const std::uint64_t at = below(m.size() + 1);
    switch (below(6)) {
      case 0:
        m.insert(m.begin() + static_cast<std::ptrdiff_t>(at), value);
        return v.insert(tx, at, value);
      case 1:
        if (at == m.size()) return Status::ok;
        m.erase(m.begin() + static_cast<std::ptrdiff_t>(at));
        return v.erase(tx, at);
      case 2:
        if (at == m.size()) return Status::ok;
        m[at] = value;
        v[at] = value;
        return tx.status();
      case 3:
        if (m.empty()) return Status::ok;
        m.pop_back();
        return v.pop_back(tx);
      case 4:
        std::sort(m.begin(), m.end());
        std::sort(v.begin(), v.end());
        return tx.status();
      default:
        m.push_back(value);
        return v.push_back(tx, value);
    }
  }

  Status texts_step(Transaction& tx) {
    Vector<String>& v = root_->texts;
    std::vector<std::string>& m = now_.texts;
    const std::string text = random_text();
    const std::uint64_t at = below(m.size() + 1);
    switch (below(7)) {
      case 0:
        m.insert(m.begin() + static_cast<std::ptrdiff_t>(at), text);
        return v.emplace(tx, at, text).error();
      case 1:
        if (at == m.size()) return Status::ok;
        m.erase(m.begin() + static_cast<std::ptrdiff_t>(at));
        return v.erase(tx, at);
      case 2:
        if (at == m.size()) return Status::ok;
        m[at] += text;
        return v[at].append(tx, text);
      case 3:
        if (at == m.size()) return Status::ok;
        m[at] = text;
        return v[at].assign(tx, text);
      case 4:
        if (at == m.size()) return Status::ok;
        std::swap(m[at], now_.text);
        return v[at].swap(tx, root_->text);
      case 5:
        m.resize(at / 2);
        return v.resize(tx, at / 2);
      default:
        m.push_back(text);
        return v.emplace_back(tx, text).error();
    }
  }

  Status rows_step(Transaction& tx) {
    Vector<Vector<std::uint64_t>>& v = root_->rows;
    std::vector<std::vector<std::uint64_t>>& m = now_.rows;
    const std::uint64_t value = rng_(), at = below(m.size() + 1);
    const std::vector<std::uint64_t> row(below(12), value);
    if (at == m.size() || below(5) == 0) {
      m.insert(m.begin() + static_cast<std::ptrdiff_t>(at), row);
      return v.emplace(tx, at, row).error();
    }
    switch (below(4)) {
      case 0:
        m.erase(m.begin() + static_cast<std::ptrdiff_t>(at));
        return v.erase(tx, at);
      case 1:
        std::swap(m[at], m[0]);
        return v[at].swap(tx, v[0]);
      case 2:
        m[at].insert(m[at].begin(), value);
        return v[at].insert(tx, 0, value);
      default:
        m[at].push_back(value);
        return v[at].push_back(tx, value);
    }
  }

  Status text_step(Transaction& tx) {
    const std::string text = random_text();
    if (below(2) == 0 || now_.text.size() > 1000) {
      now_.text = text;
      return root_->text.assign(tx, text);
    }
    now_.text += text;
    return root_->text.append(tx, text);
  }

  Status queue_step(Transaction& tx) {
    Queue<std::uint64_t>& q = root_->queue;
    std::deque<std::uint64_t>& m = now_.queue;
    for (std::uint64_t n = below(100), i = 0; i < n; ++i) {
      m.push_back(i);
      TENUTO_TRY(q.push(tx, i));
    }
    for (std::uint64_t n = below(100); n > 0 && !m.empty(); --n) {
      const Result<std::uint64_t> front = q.pop(tx);
      TENUTO_TRY(front.error());
      EXPECT_EQ(*front, m.front());
      m.pop_front();
    }
    if (below(30) != 0) return Status::ok;
    m.clear();
    return q.clear(tx);
  }

  Status lines_step(Transaction& tx) {
    for (std::uint64_t n = below(20); n > 0; --n) {
      now_.lines.push_back(random_text());
      TENUTO_TRY(root_->lines.emplace(tx, now_.lines.back()).error());
    }
    for (std::uint64_t n = below(20); n > 0 && !now_.lines.empty(); --n) {
      EXPECT_EQ(*root_->lines.front(), now_.lines.front());
      now_.lines.pop_front();
      TENUTO_TRY(root_->lines.pop_front(tx));
    }
    return Status::ok;
  }

  void compare(const ContainerModel& m) const { ASSERT_TRUE(m.shown_by(*root_)); }

  TempPath path_;
  PoolOptions options_ = PoolParts::small_options();
  TxParts parts_;
  std::mt19937_64 rng_;
  const LifeKind kind_;
  ContainerRoot* root_ = nullptr;
  ContainerModel kept_, now_;
};

}  // namespace

ContainerLives live_with_containers(std::uint64_t seed, int transactions, LifeKind kind) {
  Life life(seed, kind);
  for (int i = 0; i < transactions && !::testing::Test::HasFailure(); ++i) life.step();
  return life.counts;
}

}  // namespace tenuto::test
