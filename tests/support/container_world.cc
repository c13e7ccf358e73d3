#include "support/container_world.h"

#include <random>

#include "support/explored_medium.h"

namespace tenuto::test {

namespace {

using List = std::vector<std::uint64_t>;
constexpr std::size_t kFill = 130;  // more than a segment has slots

PoolOptions tiny() {
  PoolOptions o = PoolParts::small_options();
  o.size = o.size_max = kPoolBytesMin;
  return on_explored_medium(o);
}

std::string short_text(std::uint64_t n) { return "s" + std::to_string(n % 1000); }
std::string long_text(std::uint64_t n) { return "a text in a block " + std::to_string(n); }

template <class C>
auto place(C& c, std::uint64_t choice) {
  return c.begin() + static_cast<std::ptrdiff_t>(choice % c.size());
}

// What a step does to what std has. `abort` does nothing.
void apply(ContainerModel& m, Change change, std::uint64_t n) {
  switch (change) {
    case Change::push:
      m.numbers.push_back(n);
      break;
    case Change::append:
      m.numbers.insert(m.numbers.end(), m.numbers.size() + 12, n);
      break;
    case Change::pop_push:
      m.numbers.back() = n;
      break;
    case Change::insert:
      m.numbers.insert(place(m.numbers, n), n);
      break;
    case Change::erase:
      m.numbers.erase(place(m.numbers, n));
      break;
    case Change::assign:
      m.numbers = {n, n + 1, n + 2};
      break;
    case Change::clear:
      m.numbers.clear();
      break;
    case Change::fields:
      m.fields.push_back(n);
      m.fields[0] = n + 1;
      m.fields.insert(m.fields.begin(), n + 2);
      break;
    case Change::fields_erase:
      m.fields.back() = n;
      m.fields.erase(m.fields.begin());
      break;
    case Change::texts:
      m.texts.push_back(short_text(n));
      m.texts.push_back(long_text(n));
      break;
    case Change::texts_insert:
      m.texts.insert(m.texts.begin(), long_text(n));
      break;
    case Change::texts_erase:
      m.texts.erase(m.texts.begin());
      break;
    case Change::texts_grow:
      m.texts.insert(m.texts.end(), 4, short_text(n));
      break;
    case Change::text_short:
      m.text = short_text(n);
      break;
    case Change::text_long:
      m.text = long_text(n);
      break;
    case Change::text_append:
      m.text += short_text(n);
      break;
    case Change::text_swap:
      std::swap(m.text, m.texts[0]);
      break;
    case Change::rows:
      m.rows.push_back({n, n});
      m.rows[0].insert(m.rows[0].end(), 5, n);
      break;
    case Change::queue_push:
      m.queue.push_back(n);
      m.queue.push_back(n + 1);
      break;
    case Change::queue_fill:
      m.queue.insert(m.queue.end(), kFill, n);
      break;
    case Change::queue_pop:
      m.queue.pop_front();
      break;
    case Change::queue_drain:
      m.queue.erase(m.queue.begin(), m.queue.end() - 1);
      break;
    case Change::lines_push:
      m.lines.push_back(long_text(n));
      m.lines.push_back(short_text(n));
      break;
    case Change::lines_pop:
      m.lines.pop_front();
      break;
    case Change::abort:
      break;
  }
}

// All that changes in place, in an order in which each step uses what the one before it left.
Status many_changes(Transaction& tx, ContainerRoot& r, std::uint64_t n) {
  for (int i = 0; i < 2 && !r.numbers.empty(); ++i) TENUTO_TRY(r.numbers.pop_back(tx));
  for (int i = 0; i < 3; ++i) TENUTO_TRY(r.numbers.push_back(tx, n));
  TENUTO_TRY(r.numbers.insert(tx, 0, n));
  TENUTO_TRY(r.numbers.erase(tx, 1));
  TENUTO_TRY(r.text.append(tx, short_text(n)));
  TENUTO_TRY(r.text.assign(tx, short_text(n)));
  TENUTO_TRY(r.text.append(tx, long_text(n)));
  if (!r.texts.empty()) TENUTO_TRY(r.texts.erase(tx, 0));
  TENUTO_TRY(r.texts.emplace_back(tx, short_text(n)).error());
  if (!r.queue.empty()) TENUTO_TRY(r.queue.pop_front(tx));
  TENUTO_TRY(r.queue.push(tx, n));
  if (!r.lines.empty()) TENUTO_TRY(r.lines.pop_front(tx));
  return r.lines.emplace(tx, long_text(n)).error();
}

Status perform(Transaction& tx, ContainerRoot& r, Change change, std::uint64_t n,
               std::size_t numbers_after) {
  const auto at = [n](const auto& v) { return n % v.size(); };
  switch (change) {
    case Change::push:
      return r.numbers.push_back(tx, n);
    case Change::append:
      return r.numbers.append(tx, List(numbers_after - r.numbers.size(), n));
    case Change::pop_push:
      TENUTO_TRY(r.numbers.pop_back(tx));
      return r.numbers.push_back(tx, n);
    case Change::insert:
      return r.numbers.insert(tx, at(r.numbers), n);
    case Change::erase:
      return r.numbers.erase(tx, at(r.numbers));
    case Change::assign:
      return r.numbers.assign(tx, List{n, n + 1, n + 2});
    case Change::clear:
      return r.numbers.clear(tx);
    case Change::fields:
      TENUTO_TRY(r.fields.push_back(tx, n));
      r.fields[0] = n + 1;
      return r.fields.insert(tx, 0, n + 2);
    case Change::fields_erase:
      r.fields.back() = n;
      return r.fields.erase(tx, 0);
    case Change::texts:
      TENUTO_TRY(r.texts.emplace_back(tx, short_text(n)).error());
      return r.texts.emplace_back(tx, long_text(n)).error();
    case Change::texts_insert:
      return r.texts.emplace(tx, 0, long_text(n)).error();
    case Change::texts_erase:
      return r.texts.erase(tx, 0);
    case Change::texts_grow:
      for (int i = 0; i < 4; ++i) TENUTO_TRY(r.texts.emplace_back(tx, short_text(n)).error());
      return Status::ok;
    case Change::text_short:
      return r.text.assign(tx, short_text(n));
    case Change::text_long:
      return r.text.assign(tx, long_text(n));
    case Change::text_append:
      return r.text.append(tx, short_text(n));
    case Change::text_swap:
      return r.text.swap(tx, r.texts[0]);
    case Change::rows:
      TENUTO_TRY(r.rows.emplace_back(tx, List{n, n}).error());
      return r.rows[0].append(tx, List(5, n));
    case Change::queue_push:
      TENUTO_TRY(r.queue.push(tx, n));
      return r.queue.push(tx, n + 1);
    case Change::queue_fill:
      for (std::size_t i = 0; i < kFill; ++i) TENUTO_TRY(r.queue.push(tx, n));
      return Status::ok;
    case Change::queue_pop:
      return r.queue.pop_front(tx);
    case Change::queue_drain:
      while (r.queue.size() > 1) TENUTO_TRY(r.queue.pop_front(tx));
      return Status::ok;
    case Change::lines_push:
      TENUTO_TRY(r.lines.emplace(tx, long_text(n)).error());
      return r.lines.emplace(tx, short_text(n)).error();
    case Change::lines_pop:
      return r.lines.pop_front(tx);
    case Change::abort:
      TENUTO_TRY(many_changes(tx, r, n));
      return Status::aborted;
  }
  return Status::ok;
}

Status take_step(TxParts& p, Change change, std::uint64_t n, const ContainerModel& after) {
  ContainerRoot& r = p.get_root<ContainerRoot>(0);
  const Status s =
      p.run([&](Transaction& tx) { return perform(tx, r, change, n, after.numbers.size()); });
  return s == Status::aborted && change == Change::abort ? Status::ok : s;
}

void setup(const std::string& path, const PoolOptions& options) {
  TxParts p;
  ASSERT_EQ(p.create(path, options), Status::ok) << p.report.text();
  p.make_root<ContainerRoot>(0);
  ASSERT_EQ(p.close(), Status::ok);
}

}  // namespace

ContainerCrash::ContainerCrash(ContainerScript script, std::uint64_t seed, bool collected)
    : script_(std::move(script)), seed_(seed), options_(tiny()) {
  if (!collected) return;
  options_.consistency = Consistency::gc;
  options_.root_filter = reference_filter<ContainerRoot>();
}

void ContainerCrash::workload(CrashContext& c) const {
  c.update([&] { states_.assign(1, ContainerModel{}); });
  TxParts p;
  ASSERT_EQ(p.open(c.path(), options_), Status::ok) << p.report.text();
  std::mt19937_64 rng(seed_);
  for (const Change change : script_) {
    const std::uint64_t n = rng();
    ContainerModel after = states_.back();
    apply(after, change, n);
    c.update([&] { states_.push_back(after); });
    c.invoke();
    EXPECT_EQ(take_step(p, change, n, after), Status::ok) << static_cast<int>(change);
    c.ack();
  }
  ASSERT_EQ(p.close(), Status::ok);
}

std::string ContainerCrash::check_blocks(TxParts& p, const ContainerRoot& r) const {
  std::size_t owned = 1;
  for_each_block(r, [&](const void* block) {
    owned += block != nullptr && p.file->contains(block) &&
             static_cast<bool>(p.heap->find_allocated(p.file->offset_of(block)));
  });
  if (owned != 1 + blocks_of(r)) return "a reachable block is free";
  if (p.allocated_blocks().size() != owned) return "a block leaked";
  if (p.heap->validate(&p.report) != Status::ok) return "heap: " + p.report.text();
  if (p.engine->validate(&p.report) != Status::ok) return "tx: " + p.report.text();
  return {};
}

std::string ContainerCrash::check(const CrashImage& image) const {
  TxParts p;
  if (p.open(image.path(), options_) != Status::ok) return "open: " + p.report.text();
  ContainerRoot& r = p.get_root<ContainerRoot>(0);
  const ContainerModel* found = nullptr;
  for (std::size_t n = image.acknowledged(); n <= image.invoked(); ++n) {
    if (states_.at(n).shown_by(r)) found = &states_[n];
  }
  if (found == nullptr) return "the containers after no number of steps";
  if (std::string e = check_blocks(p, r); !e.empty()) return e;
  image.recovered();
  if (image.invoked() % 3 != 0) return {};  // saves half of the time
  // They work, and the next open does not undo that.
  ContainerModel after = *found;
  for (const Change change : {Change::push, Change::text_append, Change::queue_push}) {
    apply(after, change, seed_);
    if (take_step(p, change, seed_, after) != Status::ok) return "a change after recovery failed";
  }
  p.crash();
  if (p.open(image.path(), options_) != Status::ok) return "open again: " + p.report.text();
  ContainerRoot& again = p.get_root<ContainerRoot>(0);
  if (!after.shown_by(again)) return "a later open changed the containers";
  if (std::string e = check_blocks(p, again); !e.empty()) return "later open: " + e;
  return p.close() == Status::ok ? "" : "close failed";
}

CrashResult ContainerCrash::run(CrashOptions options) const {
  options.seed = seed_;
  return CrashRunner(options).run([this](const std::string& path) { setup(path, options_); },
                                  [this](CrashContext& c) { workload(c); },
                                  [this](const CrashImage& i) { return check(i); });
}

}  // namespace tenuto::test
