// What the containers of a ContainerRoot must hold, in containers of std.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

namespace tenuto::test {

struct ContainerModel {
  std::vector<std::uint64_t> numbers, fields;
  std::vector<std::string> texts;
  std::string text;
  std::vector<std::vector<std::uint64_t>> rows;
  std::deque<std::uint64_t> queue;
  std::deque<std::string> lines;

  template <class Root>
  bool shown_by(const Root& r) const {
    const auto same = [](const auto& a, const auto& b) {
      return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), b.end());
    };
    const auto all_same = [&same](const auto& a, const auto& b) {
      return std::equal(a.begin(), a.end(), b.begin(), b.end(), same);
    };
    return same(r.numbers, numbers) && same(r.fields, fields) && same(r.texts, texts) &&
           r.text.view() == text && r.text.c_str()[text.size()] == 0 && all_same(r.rows, rows) &&
           same(r.queue, queue) && same(r.lines, lines);
  }
};

}  // namespace tenuto::test
