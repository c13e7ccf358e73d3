#include "plants.h"

#include <chrono>

#include "tenuto/crash.h"

namespace tenuto::life {

const std::vector<Plant>& plants() {
  static const std::vector<Plant> all = {
      {"store_range_read_shrinks", "a transaction's cursor that turns round forgets what it read"},
      {"store_name_created_twice", "a transaction makes two collections of one name"},
      {"store_drop_unannounced", "a drop does not say beforehand that the collection goes"},
      {"store_commit_lives_not_validated", "a commit does not ask whether its collections live"},
      {"pm_dirty_lines_flushed_and_not_fenced", "lines that did not fit are flushed and forgotten"},
      {"store_pairs_erased_unread", "an erase of duplicates does not validate what it gathered"},
  };
  return all;
}

PlantFound look_for(const std::string& name, std::uint64_t seed, double seconds_max,
                    const Wanted& wanted, const LifeOptions& options) {
  using Clock = std::chrono::steady_clock;
  const auto since = Clock::now();
  PlantFound found;
  do {
    found.seed = seed + found.lives;
    const Story story = make_story(found.seed, wanted);
    tenuto::plant(name);
    found.kind = run_story(story, options, nullptr).kind;
    tenuto::unplant_all();
    ++found.lives;
    // It is the mistake's if the same life is sound without it.
    if (!found.kind.empty()) {
      for (int i = 0; i < 3 && !found.kind.empty(); ++i) {
        if (!run_story(story, options, nullptr).ok()) found.kind.clear();
      }
    }
    found.seconds = std::chrono::duration<double>(Clock::now() - since).count();
  } while (found.kind.empty() && found.seconds < seconds_max);
  return found;
}

}  // namespace tenuto::life
