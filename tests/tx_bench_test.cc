// The transaction benchmark itself: its counter of instructions, its checks of contents, and the
// program, which must run every case on both engines, count what tx_cost_test asserts, and refuse
// what it cannot do.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "bench/support/step_counter.h"
#include "bench/tx/structure.h"

namespace bench {
namespace {

TEST(StepCounter, knows_fences_flushes_and_streaming_stores_by_their_bytes) {
  const auto of = [](std::vector<std::uint8_t> bytes) {
    bytes.resize(16);
    const StepCounts c = classify(bytes.data());
    EXPECT_EQ(c.instructions, 1u);
    return std::vector<std::uint64_t>{c.fences, c.flushes, c.streamed_bytes};
  };
  using Counts = std::vector<std::uint64_t>;
  EXPECT_EQ(of({0x0f, 0xae, 0xf8}), (Counts{1, 0, 0}));                     // sfence
  EXPECT_EQ(of({0x0f, 0xae, 0xf0}), (Counts{1, 0, 0}));                     // mfence
  EXPECT_EQ(of({0x0f, 0xae, 0xe8}), (Counts{0, 0, 0}));                     // lfence
  EXPECT_EQ(of({0x66, 0x0f, 0xae, 0x30}), (Counts{0, 1, 0}));               // clwb (%rax)
  EXPECT_EQ(of({0x66, 0x41, 0x0f, 0xae, 0x75, 0x00}), (Counts{0, 1, 0}));   // clwb 0(%r13)
  EXPECT_EQ(of({0x66, 0x0f, 0xae, 0x38}), (Counts{0, 1, 0}));               // clflushopt (%rax)
  EXPECT_EQ(of({0x0f, 0xae, 0x38}), (Counts{0, 1, 0}));                     // clflush (%rax)
  EXPECT_EQ(of({0x0f, 0xae, 0x30}), (Counts{0, 0, 0}));                     // xsaveopt (%rax)
  EXPECT_EQ(of({0xf3, 0x0f, 0xae, 0xe8}), (Counts{0, 0, 0}));               // incsspd %eax
  EXPECT_EQ(of({0x0f, 0xc3, 0x08}), (Counts{0, 0, 4}));                     // movnti %ecx,(%rax)
  EXPECT_EQ(of({0x48, 0x0f, 0xc3, 0x08}), (Counts{0, 0, 8}));               // movnti %rcx,(%rax)
  EXPECT_EQ(of({0x66, 0x0f, 0xe7, 0x00}), (Counts{0, 0, 16}));              // movntdq %xmm0,(%rax)
  EXPECT_EQ(of({0xf3, 0x0f, 0xe6, 0xc0}), (Counts{0, 0, 0}));               // cvtdq2pd
  EXPECT_EQ(of({0xc5, 0xfd, 0xe7, 0x00}), (Counts{0, 0, 32}));              // vmovntdq %ymm0,(%rax)
  EXPECT_EQ(of({0xc4, 0xc1, 0x7d, 0xe7, 0x00}), (Counts{0, 0, 32}));        // vmovntdq %ymm0,(%r8)
  EXPECT_EQ(of({0x62, 0xf1, 0x7d, 0x48, 0xe7, 0x00}), (Counts{0, 0, 64}));  // vmovntdq %zmm0,(%rax)
}

TEST(StepCounter, knows_locked_instructions_by_their_bytes) {
  const auto locked = [](std::vector<std::uint8_t> bytes) {
    bytes.resize(16);
    return classify(bytes.data()).locked;
  };
  EXPECT_EQ(locked({0xf0, 0x48, 0x0f, 0xb1, 0x11}), 1u);  // lock cmpxchg %rdx,(%rcx)
  EXPECT_EQ(locked({0xf0, 0x0f, 0xc1, 0x01}), 1u);        // lock xadd %eax,(%rcx)
  EXPECT_EQ(locked({0xf0, 0x83, 0x0c, 0x24, 0x00}), 1u);  // lock orl $0,(%rsp)
  EXPECT_EQ(locked({0x66, 0xf0, 0xff, 0x01}), 1u);        // lock incw (%rcx)
  EXPECT_EQ(locked({0x48, 0x87, 0x01}), 1u);              // xchg %rax,(%rcx)
  EXPECT_EQ(locked({0x87, 0xc1}), 0u);                    // xchg %eax,%ecx
  EXPECT_EQ(locked({0x48, 0x0f, 0xb1, 0x11}), 0u);        // cmpxchg %rdx,(%rcx)
  EXPECT_EQ(locked({0x0f, 0x87, 0, 0, 0, 0}), 0u);        // ja
  EXPECT_EQ(locked({0xc5, 0xfd, 0x86, 0x00}), 0u);        // of vectors
}

TEST(StepCounter, counts_each_instruction_once_and_a_string_instruction_once) {
  StepCounter steps;
  const StepCounts own = steps.count([] {});
  static char from[4096];
  static char to[4096];
  const StepCounts c = steps.count([] {
    const char* source = from;
    char* target = to;
    std::size_t n = sizeof from;
    asm volatile(
        "rep movsb\n\t"
        "movnti %%rax, (%3)\n\t"
        "clflush (%3)\n\t"
        "sfence\n\t"
        "nop"
        : "+S"(source), "+D"(target), "+c"(n)
        : "r"(from)
        : "memory");
  });
  EXPECT_GE(c.instructions - own.instructions, 5u);
  EXPECT_LE(c.instructions - own.instructions, 60u);  // the body is not optimised
  EXPECT_EQ(c.fences, 1u);
  EXPECT_EQ(c.flushes, 1u);
  EXPECT_EQ(c.streamed_bytes, 8u);
  EXPECT_EQ(own.fences + own.flushes + own.streamed_bytes, 0u);
}

// A structure in DRAM that makes one mistake.
struct Faulty {
  enum class Fault { none, loses, alters, adds } fault = Fault::none;
  std::map<std::uint64_t, std::vector<std::byte>> elements;

  bool insert(std::uint64_t key, const std::byte* value) {
    std::vector<std::byte> bytes(value, value + 64);
    if (elements.size() == 5 && fault == Fault::alters) bytes[33] ^= std::byte{1};
    if (elements.size() == 5 && fault == Fault::adds) elements[~key] = bytes;
    elements[key] = bytes;
    if (elements.size() == 6 && fault == Fault::loses) elements.erase(elements.begin());
    return true;
  }
  const std::byte* lookup(std::uint64_t key) {
    const auto at = elements.find(key);
    return at == elements.end() ? nullptr : at->second.data();
  }
  bool remove(std::uint64_t key) { return elements.erase(key) == 1; }
  template <class Visit>
  void walk(Visit&& visit) const {
    for (const auto& [key, bytes] : elements) visit(key, bytes.data());
  }
};

std::string after_inserts(Faulty::Fault fault) {
  const TxCase what{"map-insert", "", Part::map, Phase::insert};
  StructureWork<Faulty, 64> work(Faulty{fault, {}}, what, {20, 64});
  EXPECT_TRUE(work.run(0, 20));
  const char* const wrong = work.settle();
  return wrong == nullptr ? "" : wrong;
}

TEST(StructureWork, finds_lost_added_and_altered_elements) {
  EXPECT_EQ(after_inserts(Faulty::Fault::none), "");
  EXPECT_EQ(after_inserts(Faulty::Fault::loses), "the structure has another number of elements");
  EXPECT_EQ(after_inserts(Faulty::Fault::adds), "the structure has another number of elements");
  EXPECT_EQ(after_inserts(Faulty::Fault::alters), "the structure has other contents");
}

struct Ran {
  int code = -1;
  std::string text;
  std::vector<nlohmann::json> lines;
};

// `to`: what the shell does with the two outputs. `before`: a command of the same shell.
Ran run_bench(const std::string& arguments, const char* to, const std::string& before = "") {
  Ran ran;
  const std::string command = before + TENUTO_TX_BENCH " " + arguments + " " + to;
  std::FILE* const pipe = ::popen(command.c_str(), "r");
  EXPECT_NE(pipe, nullptr);
  if (pipe == nullptr) return ran;
  char buffer[4096];
  for (std::size_t n = 0; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) {
    ran.text.append(buffer, n);
  }
  const int status = ::pclose(pipe);
  ran.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return ran;
}

Ran run_json(const std::string& arguments) {
  Ran ran = run_bench(arguments + " --json -", "2>/dev/null");
  EXPECT_EQ(ran.code, 0) << arguments;
  std::istringstream in(ran.text);
  for (std::string line; std::getline(in, line);) {
    ran.lines.push_back(nlohmann::json::parse(line, nullptr, false));
    EXPECT_FALSE(ran.lines.back().is_discarded()) << line;
  }
  return ran;
}

TEST(TxBench, runs_every_case_on_both_engines_with_two_threads) {
  for (const std::string medium : {"line", "cache"}) {
    std::map<std::string, int> seen;
    for (const auto& line : run_json("--quick --samples 0 --threads 2 --medium " + medium).lines) {
      EXPECT_EQ(line["bench"], "tx");
      EXPECT_EQ(line["medium"], medium);
      EXPECT_GT(line["mops"]["median"], 0) << line;
      EXPECT_GT(line["cpu_ns_per_op"]["median"], 0) << line;
      EXPECT_FALSE(line.contains("fences_per_op"));
      ++seen[line["engine"].get<std::string>() + " " + line["case"].get<std::string>()];
    }
    for (const TxCase& what : tx_cases()) {
      const int sizes = what.part == Part::row ? 1 : 2;
      EXPECT_EQ(seen[std::string("tenuto ") + what.name], sizes) << what.name;
      EXPECT_EQ(seen[std::string("pmemobj ") + what.name], sizes) << what.name;
    }
  }
}

struct Cost {
  const char* name;
  double fences;
  double lines;
};
// As tx_cost_test.cc asserts them for transactions like these.
constexpr Cost kCosts[] = {
    {"empty", 0, 0},           {"add-8", 3, 3},        {"add-64", 3, 4},
    {"add-10x8", 12, 21},      {"fields-10x8", 3, 21}, {"together-10x8", 3, 21},
    {"together-10x64", 3, 31}, {"overwrite-64", 1, 1}, {"link", 3, 6},
    {"unlink", 3, 5},          {"replace", 3, 8},      {"nested", 3, 5},
    {"abort", 3, 3},
};

TEST(TxBench, counts_by_steps_and_by_the_medium_what_tx_cost_test_asserts) {
  std::string names;
  for (const Cost& c : kCosts) names += (names.empty() ? "" : ",") + std::string(c.name);
  const Ran ran =
      run_json("--quick --rounds 0 --engine tenuto --medium line,model --bench " + names);
  std::map<std::string, int> seen;
  for (const auto& line : ran.lines) {
    const std::string name = line["case"];
    const bool steps = line["medium"] == "line";
    for (const Cost& c : kCosts) {
      if (name != c.name) continue;
      EXPECT_EQ(line["fences_per_op"], c.fences) << line;
      EXPECT_EQ(line["lines_per_op"], c.lines) << line;
      ++seen[name];
    }
    EXPECT_EQ(line.contains("instructions_per_op"), steps);
    EXPECT_FALSE(line.contains("mops"));
  }
  for (const Cost& c : kCosts) EXPECT_EQ(seen[c.name], 2) << c.name;
}

TEST(TxBench, counts_the_peer_by_the_same_means) {
  const Ran ran = run_json("--quick --rounds 0 --bench empty,add-8 --engine tenuto,pmemobj");
  ASSERT_EQ(ran.lines.size(), 4u);
  EXPECT_EQ(ran.lines[1]["engine"], "pmemobj");
  EXPECT_EQ(ran.lines[1]["fences_per_op"], 2);
  EXPECT_EQ(ran.lines[3]["fences_per_op"], 5);
  EXPECT_EQ(ran.lines[3]["lines_per_op"], 4);
  EXPECT_GT(ran.lines[3]["instructions_per_op"], 1000);
  EXPECT_TRUE(ran.lines[2]["instructions_ratio_to"].contains("pmemobj"));
}

TEST(TxBench, has_the_drop_in_where_it_is_built) {
  if (run_bench("--list", "").text.find("drop-in") == std::string::npos) {
    GTEST_SKIP() << "the drop-in for libpmemobj is not built";
  }
  const Ran ran = run_json("--quick --rounds 0 --bench add-8,add-10x8,link --engine drop-in");
  ASSERT_EQ(ran.lines.size(), 3u);
  EXPECT_EQ(ran.lines[0]["fences_per_op"], 3);
  EXPECT_EQ(ran.lines[1]["fences_per_op"], 12);
  EXPECT_EQ(ran.lines[2]["fences_per_op"], 3);
}

TEST(TxBench, refuses_what_it_cannot_do_and_says_why) {
  const std::pair<const char*, const char*> wrong[] = {
      {"--bench nothing", "no benchmark is called nothing"},
      {"--engine sqlite", "no engine is called sqlite"},
      {"--medium paper", "no medium is called paper"},
      {"--engine pmemobj --medium model", "none of the engines has medium model"},
      {"--threads 0", "--threads must be 1..64"},
      {"--value 65", "--value must be 64 or 1024"},
      {"--samples 100000", "--samples must be 0..4096"},
      {"--rounds 1001", "--rounds must be 0..1000"},
      {"--rounds 0 --samples 0", "nothing to measure"},
      {"--transactions 0", "--transactions must be 1..1000000000"},
      {"--elements 0", "--elements must be 1..1000000"},
      {"--unknown", "--unknown"},
      {"--threads one", "one"},
  };
  for (const auto& [arguments, message] : wrong) {
    const Ran ran = run_bench(arguments, "2>&1 >/dev/null");
    EXPECT_EQ(ran.code, 2) << arguments;
    EXPECT_NE(ran.text.find(message), std::string::npos) << arguments << ": " << ran.text;
  }
  const Ran ran = run_bench("--quick --dir /nowhere", "2>&1 >/dev/null");
  EXPECT_EQ(ran.code, 8);
  EXPECT_NE(ran.text.find("cannot make a directory in /nowhere"), std::string::npos);
}

TEST(TxBench, a_turn_that_does_not_finish_fails_the_run_and_gives_no_figure) {
  // No pool fits into files of this size.
  const std::string arguments = "--quick --bench empty --engine tenuto --json -";
  const Ran wrong = run_bench(arguments, "2>&1 >/dev/null", "ulimit -f 1000; ");
  EXPECT_EQ(wrong.code, 1);
  EXPECT_NE(wrong.text.find("FAILED empty, tenuto, line, 1 threads: "), std::string::npos);
  const Ran figures = run_bench(arguments, "2>/dev/null", "ulimit -f 1000; ");
  EXPECT_EQ(figures.text, "");
}

}  // namespace
}  // namespace bench
