#include "shrink.h"

#include <algorithm>
#include <chrono>

namespace tenuto::life {
namespace {

using Clock = std::chrono::steady_clock;

class Shrinker {
 public:
  Shrinker(std::string kind, const ShrinkOptions& options, LifeResult& result)
      : kind_(std::move(kind)),
        options_(options),
        result_(result),
        until_(Clock::now() +
               std::chrono::milliseconds(static_cast<std::int64_t>(options.seconds * 1000))) {}

  Story run(Story story) {
    cut_tail(story);
    for (bool again = true; again && !late();) {
      again = take_out(story);
      again = simplify(story) || again;
    }
    return story;
  }

 private:
  bool late() const { return Clock::now() > until_; }

  bool fails(const Story& story) {
    for (unsigned i = 0; i < options_.tries; ++i) {
      const LifeResult r = run_story(story, options_.life, nullptr);
      // After damage to memory it is random which call crashes.
      const bool crashes = r.kind.starts_with("crash") && kind_.starts_with("crash");
      if (crashes || r.kind == kind_) {
        result_ = r;
        return true;
      }
    }
    return false;
  }

  // Removes the steps behind the finding.
  void cut_tail(Story& story) {
    if (result_.step >= story.steps.size()) return;
    Story shorter = story;
    shorter.steps.resize(result_.step);
    if (fails(shorter)) story = std::move(shorter);
  }

  // Removes pieces of half the story, then smaller ones.
  bool take_out(Story& story) {
    bool any = false;
    for (std::size_t piece = std::max<std::size_t>(1, story.steps.size() / 2); piece > 0;
         piece /= 2) {
      for (std::size_t end = story.steps.size(); end > 0 && !late();) {
        const std::size_t from = end > piece ? end - piece : 0;
        Story shorter = story;
        shorter.steps.erase(shorter.steps.begin() + static_cast<std::ptrdiff_t>(from),
                            shorter.steps.begin() + static_cast<std::ptrdiff_t>(end));
        if (fails(shorter)) {
          story = std::move(shorter);
          any = true;
        }
        end = std::min(from, story.steps.size());
      }
      if (late()) break;
    }
    return any;
  }

  // Tries smaller arguments, one thread, and a smaller pool.
  bool simplify(Story& story) {
    bool any = false;
    const auto try_it = [&](const Story& s) {
      if (late() || !fails(s)) return;
      story = s;
      any = true;
    };
    if (story.threads > 1) {
      Story s = story;
      s.threads = 1;
      s.at_once = false;
      try_it(s);
    }
    if (story.at_once) {
      Story s = story;
      s.at_once = false;
      try_it(s);
    }
    for (std::size_t i = 0; i < story.steps.size(); ++i) {
      for (std::size_t a = 0; a < kArguments; ++a) {
        for (const std::int64_t n : {std::int64_t{0}, std::int64_t{1}, story.steps[i].a[a] / 2}) {
          if (n >= story.steps[i].a[a]) continue;
          Story s = story;
          s.steps[i].a[a] = n;
          const std::size_t before = story.steps[i].a[a] != n;
          try_it(s);
          if (before != 0 && story.steps[i].a[a] == n) break;
        }
      }
    }
    return any;
  }

  const std::string kind_;
  const ShrinkOptions& options_;
  LifeResult& result_;
  const Clock::time_point until_;
};

}  // namespace

Story shrink(Story story, const std::string& kind, const ShrinkOptions& options,
             LifeResult& result) {
  return Shrinker(kind, options, result).run(std::move(story));
}

}  // namespace tenuto::life
