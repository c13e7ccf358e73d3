// The main of a fuzz target in builds without libFuzzer. It runs every file of the given corpus
// folders, and then a fixed number of seeded mutations of them. A crash or a hang (an alarm) prints
// the name of the input, and keeps the input as crash-TARGET.
//   fuzz_NAME [--mutations N] [--seed N] FOLDER|FILE...
// TENUTO_MUTATIONS and TENUTO_SEED override both numbers, for longer runs.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes);
extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*)());

namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<std::uint8_t>;

constexpr unsigned kAlarmSeconds = 60;  // for one input, with sanitizers
constexpr std::size_t kBytesMax = 4096;

// The input that runs now, for the signal handlers.
const Bytes* current = nullptr;
char current_name[512];
char crash_name[512];

// Makes only calls that a signal handler may make.
void keep_current() {
  if (current == nullptr) return;
  const auto say = [](const char* text) {
    if (::write(STDERR_FILENO, text, std::strlen(text)) < 0) return;
  };
  const int fd = ::open(crash_name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd >= 0 && ::write(fd, current->data(), current->size()) >= 0) {
    say("input kept in ");
    say(crash_name);
  }
  say("\nwhile running ");
  say(current_name);
  say("\n");
  current = nullptr;
}

void on_signal(int number) {
  keep_current();
  ::signal(number, SIG_DFL);
  ::raise(number);
}

void run(const Bytes& input, const std::string& name) {
  std::snprintf(current_name, sizeof current_name, "%s", name.c_str());
  current = &input;
  ::alarm(kAlarmSeconds);
  // A copy of exactly this size, so that AddressSanitizer sees a read past its end.
  const Bytes exact(input.begin(), input.end());
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
  current = nullptr;
}

std::vector<std::string> files_of(const std::vector<std::string>& places) {
  std::vector<std::string> files;
  for (const std::string& place : places) {
    if (!fs::is_directory(place)) {
      files.push_back(place);
      continue;
    }
    for (const auto& entry : fs::directory_iterator(place)) {
      if (entry.is_regular_file()) files.push_back(entry.path().string());
    }
  }
  std::sort(files.begin(), files.end());  // so that a seed means the same on every machine
  return files;
}

void mutate(Bytes& b, const std::vector<Bytes>& corpus, std::mt19937_64& rng) {
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(rng() % n); };
  const auto place = [&](std::size_t i) { return b.begin() + static_cast<std::ptrdiff_t>(i); };
  for (std::size_t times = 1 + below(6); times > 0; --times) {
    const std::size_t at = below(b.size() + 1);
    const std::size_t some = std::min(b.size() - at, 1 + below(8));
    switch (below(8)) {
      case 0:
        if (at < b.size()) b[at] ^= static_cast<std::uint8_t>(1u << below(8));
        break;
      case 1:
        if (at < b.size()) b[at] = static_cast<std::uint8_t>(rng());
        break;
      case 2:
        if (at < b.size()) b[at] = static_cast<std::uint8_t>(b[at] + below(9) - 4);
        break;
      case 3:
        b.insert(place(at), 1 + below(4), static_cast<std::uint8_t>(rng()));
        break;
      case 4:
        b.erase(place(at), place(at + some));
        break;
      case 5: {
        const Bytes piece(place(at), place(at + some));
        b.insert(place(below(b.size() + 1)), piece.begin(), piece.end());
        break;
      }
      case 6: {
        static constexpr std::uint64_t kWords[] = {0, ~0ull, 1ull << 63, 0xffff, 4096, 64};
        const std::uint64_t word = kWords[below(std::size(kWords))];
        if (some == 8) std::memcpy(&b[at], &word, 8);
        break;
      }
      default: {
        const Bytes& other = corpus[below(corpus.size())];
        if (other.empty()) break;
        const std::size_t from = below(other.size());
        b.resize(at);
        b.insert(b.end(), other.begin() + static_cast<std::ptrdiff_t>(from), other.end());
      }
    }
    if (b.size() > kBytesMax) b.resize(kBytesMax);
  }
}

std::uint64_t number(const char* environment, std::uint64_t otherwise) {
  const char* text = std::getenv(environment);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t mutations = 0;
  std::uint64_t seed = 1;
  std::vector<std::string> places;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--mutations" && i + 1 < argc) {
      mutations = std::strtoull(argv[++i], nullptr, 10);
    } else if (word == "--seed" && i + 1 < argc) {
      seed = std::strtoull(argv[++i], nullptr, 10);
    } else {
      places.push_back(word);
    }
  }
  mutations = number("TENUTO_MUTATIONS", mutations);
  seed = number("TENUTO_SEED", seed);
  std::snprintf(crash_name, sizeof crash_name, "crash-%s", fs::path(argv[0]).filename().c_str());
  // Sanitizers end the process themselves, and catch these other signals.
  if (__sanitizer_set_death_callback != nullptr) {
    __sanitizer_set_death_callback(keep_current);
  } else {
    ::signal(SIGSEGV, on_signal);
    ::signal(SIGBUS, on_signal);
  }
  for (const int s : {SIGABRT, SIGALRM}) ::signal(s, on_signal);

  std::vector<Bytes> corpus;
  for (const std::string& file : files_of(places)) {
    std::ifstream in(file, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    if (!in) {
      std::fprintf(stderr, "%s: cannot read %s\n", argv[0], file.c_str());
      return 2;
    }
    run(corpus.back(), file);
  }
  if (corpus.empty()) {
    std::fprintf(stderr, "%s: no corpus given, or an empty one\n", argv[0]);
    return 2;
  }
  const auto begin = std::chrono::steady_clock::now();
  std::mt19937_64 rng(seed);
  for (std::uint64_t i = 0; i < mutations; ++i) {
    Bytes input = corpus[rng() % corpus.size()];
    mutate(input, corpus, rng);
    run(input, "mutation " + std::to_string(i) + " of seed " + std::to_string(seed));
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  std::printf("%zu inputs of the corpus, %llu mutations of seed %llu in %.1f s\n", corpus.size(),
              static_cast<unsigned long long>(mutations), static_cast<unsigned long long>(seed),
              took.count());
  return 0;
}
