#include "powercut/judge.h"

#include <algorithm>
#include <map>

namespace tenuto::powercut {

namespace {

// Erases leave no stamp. So the judge tries this many operations behind the last one with a stamp.
constexpr std::uint64_t kUnstampedMax = 64;
constexpr unsigned kDifferencesShown = 4;

std::string of_thread(unsigned thread, const std::string& what) {
  return "thread " + std::to_string(thread) + ": " + what;
}

struct Found {
  KeyStamps stamps{};
  Written last;  // the youngest of the values that are there
};

// Reads the records of all threads. There must be no others.
std::string read_keys(const Store& store, std::array<Found, kKeyThreads>& found) {
  std::map<std::string, std::pair<unsigned, unsigned>> whose;
  for (unsigned t = 0; t < kKeyThreads; ++t) {
    for (unsigned k = 0; k < kKeys; ++k) whose[key_of(t, k)] = {t, k};
  }
  Iterator at = store.iterator();
  for (at.seek_first(); at.valid(); at.next()) {
    const auto is = whose.find(std::string(at.key()));
    if (is == whose.end()) return "a key that nobody wrote, or twice the same";
    const auto [t, k] = is->second;
    whose.erase(is);
    const auto written = read_value(t, k, at.value());
    if (!written) return of_thread(t, "key " + std::to_string(k) + " has a value nobody wrote");
    found[t].stamps[k] = written->stamp;
    if (written->stamp.op > found[t].last.stamp.op) found[t].last = *written;
  }
  return at.status() == Status::ok ? "" : std::string("iteration: ") + status_name(at.status());
}

std::string judge_keys(const Found& found, unsigned thread, const Story& story, KeyModel& model) {
  const std::uint64_t least = std::max(story.durable()[thread], found.last.stamp.op);
  const auto advance = [&](KeyModel& m) { m.next(story.life_of(thread, m.done() + 1)); };
  while (model.done() < least) advance(model);
  // If several operations end in the same state, takes the last: the others had no effect.
  std::optional<KeyModel> right;
  for (KeyModel m = model; m.done() <= least + kUnstampedMax; advance(m)) {
    if (m.stamps() == found.stamps) right.emplace(m);
  }
  if (right) {
    while (model.done() < right->done()) advance(model);
    return "";
  }
  std::string wrong = "no prefix of at least " + std::to_string(story.durable()[thread]) +
                      " operations; at operation " + std::to_string(model.done());
  unsigned shown = 0;
  for (unsigned k = 0; k < kKeys && shown < kDifferencesShown; ++k) {
    const Stamp there = found.stamps[k];
    const Stamp meant = model.stamps()[k];
    if (there == meant) continue;
    shown += 1;
    wrong += ", key " + std::to_string(k) + " is of " + std::to_string(there.op) + " (life " +
             std::to_string(there.life) + "), not of " + std::to_string(meant.op) + " (life " +
             std::to_string(meant.life) + ")";
  }
  return wrong;
}

std::string judge_objects(const Pool& pool, const ThreadObjects& there, unsigned thread,
                          const Story& story, ObjectModel& model) {
  const Stamp last = there.last;
  if (last.op < story.durable()[thread]) {
    return "ends at operation " + std::to_string(last.op) + ", and " +
           std::to_string(story.durable()[thread]) + " is durable";
  }
  if (last.op != 0 && last.life != story.life_of(thread, last.op)) {
    return "operation " + std::to_string(last.op) + " is of life " + std::to_string(last.life) +
           ", not " + std::to_string(story.life_of(thread, last.op));
  }
  while (model.done() < last.op) model.next(story.life_of(thread, model.done() + 1));
  const std::string wrong = model.compare(pool, there);
  return wrong.empty() ? "" : "at operation " + std::to_string(last.op) + ", " + wrong;
}

std::string judge_accounts(const Objects& objects, const Models& models) {
  for (unsigned a = 0; a < kAccounts; ++a) {
    std::uint64_t meant = 0;
    for (const ObjectModel& m : models.objects) meant += m.transferred()[a];
    if (objects.account[a] == meant) continue;
    return "account " + std::to_string(a) + " holds " + std::to_string(objects.account[a]) +
           ", not " + std::to_string(meant);
  }
  return "";
}

}  // namespace

Models::Models(std::uint64_t seed) {
  for (unsigned t = 0; t < kKeyThreads; ++t) keys.emplace_back(seed, t);
  for (unsigned t = kKeyThreads; t < kThreads; ++t) objects.emplace_back(seed, t);
}

Progress Models::done() const {
  Progress p{};
  for (unsigned t = 0; t < kThreads; ++t) {
    p[t] = t < kKeyThreads ? keys[t].done() : objects[t - kKeyThreads].done();
  }
  return p;
}

std::string judge(const Store& store, const Objects& objects, const Story& story, Models& models) {
  std::array<Found, kKeyThreads> found;
  if (std::string wrong = read_keys(store, found); !wrong.empty()) return wrong;
  std::array<Progress, kThreads> before{};
  for (unsigned t = 0; t < kThreads; ++t) {
    std::string wrong;
    if (t < kKeyThreads) {
      wrong = judge_keys(found[t], t, story, models.keys[t]);
      before[t] = found[t].last.before;
    } else {
      const ThreadObjects& own = objects.thread[t - kKeyThreads];
      wrong = judge_objects(store.pool(), own, t, story, models.objects[t - kKeyThreads]);
      before[t] = own.before;
    }
    if (!wrong.empty()) return of_thread(t, wrong);
  }
  if (std::string wrong = judge_accounts(objects, models); !wrong.empty()) return wrong;
  const Progress done = models.done();
  for (unsigned t = 0; t < kThreads; ++t) {
    for (unsigned other = 0; other < kThreads; ++other) {
      if (done[other] >= before[t][other]) continue;
      return of_thread(other, "ends at operation " + std::to_string(done[other]) + ", but thread " +
                                  std::to_string(t) + " has one that began after operation " +
                                  std::to_string(before[t][other]) + " had returned");
    }
  }
  return "";
}

}  // namespace tenuto::powercut
