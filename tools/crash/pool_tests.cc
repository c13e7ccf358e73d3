// Pools: transactions over linked blocks, and blocks by reserve, publish and free_from.
#include <array>
#include <memory>
#include <random>
#include <string>

#include "tenuto/pool.h"
#include "tenuto/tx.h"
#include "tests.h"

namespace tenuto::crash_tool {

namespace {

constexpr std::size_t kPlaces = 24;
constexpr std::uint64_t kBalance = 100;

struct Block {
  std::uint64_t number;
  std::uint64_t filler[5];
};

struct Root {
  std::array<std::uint64_t, kPlaces> balance;
  std::array<Ptr<Block>, kPlaces> block;
};

// The contents of the root: the number of each block, 0 for none.
using Numbers = std::array<std::uint64_t, kPlaces>;
struct PoolModel {
  Numbers before{}, after{};
};

struct Opened {
  Pool pool;
  Root& root;
  static Opened at(const std::string& path) {
    Pool pool = Pool::open(path, {.recovery_threads = 1}).value();
    Root& root = *pool.root<Root>("tenuto-crash").value();
    return {std::move(pool), root};
  }
};

void setup(const std::string& path) {
  Pool pool = Pool::create(path, {.size = kPoolBytesMin}).value();
  Root& root = *pool.root<Root>("tenuto-crash").value();
  Transaction tx(pool);
  (void)tx.add(root.balance);
  root.balance.fill(kBalance);
  (void)tx.commit();
}

// Moves money between two places and replaces the block of a third.
void transact(Opened& o, std::mt19937_64& rng, std::size_t place, std::uint64_t number) {
  Root& root = o.root;
  Transaction tx(o.pool);
  std::uint64_t& from = root.balance[rng() % kPlaces];
  std::uint64_t& to = root.balance[rng() % kPlaces];
  (void)tx.add(from);
  (void)tx.add(to);
  from -= 1;
  to += 1;
  Ptr<Block>& dest = root.block[place];
  (void)tx.add(dest);
  if (dest) (void)tx.destroy(dest.get());
  dest = number == 0 ? nullptr : tx.make<Block>(Block{number, {}}).value();
  (void)tx.commit();
}

void allocate(Opened& o, std::size_t place, std::uint64_t number) {
  Ptr<Block>& dest = o.root.block[place];
  if (number == 0) {
    (void)o.pool.free_from(dest);
    return;
  }
  const Reserved r = o.pool.reserve(sizeof(Block)).value();
  auto& block = *static_cast<Block*>(r.data);
  block.number = number;
  flush(block);
  (void)o.pool.publish(r, dest.word());
}

std::string check_root(const std::string& path, const PoolModel& model) {
  const Opened o = Opened::at(path);
  Report report;
  if (o.pool.validate(&report) != Status::ok) return "validate: " + report.text();
  std::uint64_t sum = 0;
  for (const std::uint64_t b : o.root.balance) sum += b;
  if (sum != kPlaces * kBalance) return "balances sum up to " + std::to_string(sum);
  Numbers seen{};
  for (std::size_t i = 0; i < kPlaces; ++i) {
    const Ptr<Block>& p = o.root.block[i];
    if (p && o.pool.usable_size(p.get()) < sizeof(Block)) {
      return "place " + std::to_string(i) + " points to a block that is not allocated";
    }
    seen[i] = p ? p->number : 0;
  }
  if (seen == model.before || seen == model.after) return {};
  for (std::size_t i = 0; i < kPlaces; ++i) {
    if (seen[i] != model.before[i] && seen[i] != model.after[i]) {
      return "place " + std::to_string(i) + " holds block " + std::to_string(seen[i]) + ", not " +
             std::to_string(model.before[i]) + " or " + std::to_string(model.after[i]);
    }
  }
  return "half an operation";
}

CrashTest pool_test(const char* name, const char* what, const WorkloadOptions& options,
                    bool transactions) {
  const auto model = std::make_shared<PoolModel>();
  const auto workload = [=](CrashContext& context) {
    *model = {};
    std::mt19937_64 rng(options.seed);
    Opened o = Opened::at(context.path());
    for (std::uint64_t n = 1; n <= options.operations; ++n) {
      const std::size_t place = rng() % kPlaces;
      const std::uint64_t number = model->after[place] == 0 ? n : 0;
      context.update([&] {
        model->before = model->after;
        model->after[place] = number;
      });
      context.invoke();
      if (transactions) {
        transact(o, rng, place, number);
      } else {
        allocate(o, place, number);
      }
      context.update([&] { model->before = model->after; });
      context.ack();
    }
  };
  const auto check = [=](const CrashImage& image) { return check_root(image.path(), *model); };
  return {name, what, setup, workload, check, {}};
}

}  // namespace

void add_pool_tests(const WorkloadOptions& options, std::vector<CrashTest>& tests) {
  tests.push_back(
      pool_test("tx", "transactions that move money and replace blocks", options, true));
  tests.push_back(pool_test("heap", "reserve, publish and free_from", options, false));
}

}  // namespace tenuto::crash_tool
