// The text of stories: one line of options for the life, then one line a step: thread, verb, and
// the names and values of all arguments that are not zero.
#include "story.h"

#include <charconv>
#include <cstring>
#include <sstream>

namespace tenuto::life {
namespace {

constexpr VerbInfo kInfo[] = {
#define TENUTO_LIFE(name, where, ...) {#name, Where::where, {__VA_ARGS__}},
#include "verbs.inc"
#undef TENUTO_LIFE
};

bool number(std::string_view text, std::int64_t& n) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  return error == std::errc() && end == text.data() + text.size();
}

struct Option {
  const char* name;
  std::uint64_t (*get)(const Story&);
  void (*set)(Story&, std::uint64_t);
};
constexpr Option kOptions[] = {
    {"seed", [](const Story& s) { return s.seed; }, [](Story& s, std::uint64_t n) { s.seed = n; }},
    {"threads", [](const Story& s) { return std::uint64_t{s.threads}; },
     [](Story& s, std::uint64_t n) { s.threads = static_cast<unsigned>(n % (kThreadsMax + 1)); }},
    {"at_once", [](const Story& s) { return std::uint64_t{s.at_once}; },
     [](Story& s, std::uint64_t n) { s.at_once = n != 0; }},
    {"gusts_us", [](const Story& s) { return s.gusts_us; },
     [](Story& s, std::uint64_t n) { s.gusts_us = n; }},
    {"pool_bytes", [](const Story& s) { return s.pool_bytes; },
     [](Story& s, std::uint64_t n) { s.pool_bytes = n; }},
    {"pool_bytes_max", [](const Story& s) { return s.pool_bytes_max; },
     [](Story& s, std::uint64_t n) { s.pool_bytes_max = n; }},
    {"numbers", [](const Story& s) { return std::uint64_t{s.numbers}; },
     [](Story& s, std::uint64_t n) { s.numbers = n != 0; }},
    {"sync_ms", [](const Story& s) { return s.sync_ms; },
     [](Story& s, std::uint64_t n) { s.sync_ms = n; }},
    {"reclaim_ms", [](const Story& s) { return s.reclaim_ms; },
     [](Story& s, std::uint64_t n) { s.reclaim_ms = n; }},
    {"snapshot_bytes_max", [](const Story& s) { return s.snapshot_bytes_max; },
     [](Story& s, std::uint64_t n) { s.snapshot_bytes_max = n; }},
    {"lookup_bytes", [](const Story& s) { return s.lookup_bytes; },
     [](Story& s, std::uint64_t n) { s.lookup_bytes = n; }},
    {"records_from", [](const Story& s) { return s.records_from; },
     [](Story& s, std::uint64_t n) { s.records_from = n; }},
    {"consistency", [](const Story& s) { return s.consistency; },
     [](Story& s, std::uint64_t n) { s.consistency = n; }},
    {"nodes", [](const Story& s) { return s.nodes; },
     [](Story& s, std::uint64_t n) { s.nodes = n; }},
    {"canaries", [](const Story& s) { return s.canaries; },
     [](Story& s, std::uint64_t n) { s.canaries = n; }},
    {"wear", [](const Story& s) { return s.wear; }, [](Story& s, std::uint64_t n) { s.wear = n; }},
    {"side", [](const Story& s) { return s.side; }, [](Story& s, std::uint64_t n) { s.side = n; }},
    {"unread", [](const Story& s) { return s.unread; },
     [](Story& s, std::uint64_t n) { s.unread = n; }},
};

std::string set_option(const std::string& word, Story& story) {
  const std::size_t at = word.find('=');
  if (at == word.npos) return "no '=' in " + word;
  const std::string name = word.substr(0, at), value = word.substr(at + 1);
  if (name == "medium") {
    for (const Medium m : {Medium::cache, Medium::line, Medium::model, Medium::journal}) {
      if (value != medium_name(m)) continue;
      story.medium = m;
      return {};
    }
    return "no medium " + value;
  }
  for (const Option& o : kOptions) {
    std::int64_t n = 0;
    if (name != o.name) continue;
    if (!number(value, n)) return "no number: " + word;
    o.set(story, static_cast<std::uint64_t>(n));
    return {};
  }
  return "no option of a life: " + name;
}

std::string read_step(std::istringstream& words, const std::string& first, Step& step) {
  std::int64_t thread = 0;
  if (!number(first, thread) || thread < 0 || thread >= kThreadsMax) return "no thread: " + first;
  step.thread = static_cast<unsigned>(thread);
  std::string verb, word;
  words >> verb;
  for (unsigned v = 0; v <= kVerbs; ++v) {
    if (v == kVerbs) return "no step is called " + verb;
    if (verb != kInfo[v].name) continue;
    step.verb = static_cast<Verb>(v);
    break;
  }
  const VerbInfo& info = info_of(step.verb);
  while (words >> word) {
    const std::size_t at = word.find('=');
    if (at == word.npos) return "no '=' in " + word;
    bool known = false;
    for (std::size_t i = 0; i < kArguments && info.arguments[i] != nullptr; ++i) {
      if (word.substr(0, at) != info.arguments[i]) continue;
      known = number(std::string_view(word).substr(at + 1), step.a[i]);
    }
    if (!known) return verb + " has no argument like " + word;
  }
  return {};
}

}  // namespace

const VerbInfo& info_of(Verb v) { return kInfo[static_cast<std::size_t>(v)]; }

std::string text_of(const Step& step) {
  const VerbInfo& info = info_of(step.verb);
  std::string text = std::to_string(step.thread) + " " + info.name;
  for (std::size_t i = 0; i < kArguments && info.arguments[i] != nullptr; ++i) {
    if (step.a[i] == 0) continue;
    text += std::string(" ") + info.arguments[i] + "=" + std::to_string(step.a[i]);
  }
  return text;
}

std::string text_of(const Story& story) {
  std::string text = std::string("life medium=") + medium_name(story.medium);
  for (const Option& o : kOptions)
    text += std::string(" ") + o.name + "=" + std::to_string(o.get(story));
  text += "\n";
  for (const Step& step : story.steps) text += text_of(step) + "\n";
  return text;
}

std::string read_story(const std::string& text, Story& story) {
  story = {};
  std::istringstream lines(text);
  std::string line;
  for (std::size_t at = 1; std::getline(lines, line); ++at) {
    std::istringstream words(line);
    std::string word, wrong;
    if (!(words >> word) || word[0] == '#') continue;
    if (word == "life") {
      while (wrong.empty() && words >> word) wrong = set_option(word, story);
    } else {
      story.steps.emplace_back();
      wrong = read_step(words, word, story.steps.back());
    }
    if (!wrong.empty()) return "line " + std::to_string(at) + ": " + wrong;
  }
  return {};
}

}  // namespace tenuto::life
