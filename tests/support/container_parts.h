// A root object with containers of all kinds, and a fixture that compares its contents before and
// after, for tests of containers.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "support/tx_parts.h"
#include "tenuto/inline_string.h"
#include "tenuto/queue.h"
#include "tenuto/string.h"
#include "tenuto/vector.h"

namespace tenuto::test {

using Numbers = Vector<std::uint64_t>;

// An element that contains containers.
struct Person {
  String name;
  Vector<std::uint64_t> scores;
  p<std::uint64_t> age;

  Person() = default;
  Person(Relocation r, Person& from) noexcept
      : name(r, from.name), scores(r, from.scores), age(from.age) {}
  Status construct(Transaction& tx, std::string_view text,
                   const std::vector<std::uint64_t>& numbers = {}) {
    TENUTO_TRY(name.construct(tx, text));
    return scores.construct(tx, numbers);
  }
  Status release(Transaction& tx) {
    TENUTO_TRY(name.release(tx));
    return scores.release(tx);
  }
  void references(const References& visit) const { visit(name, scores); }
};
struct Tree {
  Vector<Tree> children;
  p<std::uint64_t> value;
  Tree() = default;
  Tree(Relocation r, Tree& from) noexcept : children(r, from.children), value(from.value) {}
  Status release(Transaction& tx) { return children.release(tx); }
  void references(const References& visit) const { visit(children); }
};

struct ContainerRoot {
  Numbers numbers;
  Numbers others;
  Vector<p<std::uint64_t>> fields;
  Vector<String> texts;
  Vector<Vector<std::uint64_t>> rows;
  Vector<Person> people;
  Tree tree;
  String text;
  String text2;
  Queue<std::uint64_t> queue;
  Queue<Vector<std::uint64_t>> row_queue;
  Queue<String> lines;
  p<InlineString<31>> label;

  void references(const References& visit) const {
    visit(numbers, others, fields, texts, rows, people, tree, text, text2, queue, row_queue, lines);
  }
};

// Calls f(block) for each block that the container owns, or its elements own.
template <class F>
void for_each_block(const String& s, F&& f) {
  if (s.capacity() > String::kInlineMax) f(s.data());
}
template <class T, class F>
void for_each_block(const Vector<T>& v, F&& f) {
  if (v.capacity() > 0) f(v.data());
  if constexpr (Owner<T>) {
    for (const T& element : v) for_each_block(element, f);
  }
}
template <class T, class F>
void for_each_block(const Queue<T>& q, F&& f) {
  static_assert(sizeof q == sizeof(tx::Chain));
  const auto* s = reinterpret_cast<const tx::Chain&>(q).view().first;
  for (; s != nullptr; s = s->next) f(s);
  if constexpr (Owner<T>) {
    for (const T& element : q) for_each_block(element, f);
  }
}
template <class F>
void for_each_block(const Person& person, F&& f) {
  for_each_block(person.name, f);
  for_each_block(person.scores, f);
}
template <class F>
void for_each_block(const Tree& tree, F&& f) {
  for_each_block(tree.children, f);
}
template <class F>
void for_each_block(const ContainerRoot& r, F&& f) {
  for_each_block(r.numbers, f);
  for_each_block(r.others, f);
  for_each_block(r.fields, f);
  for_each_block(r.texts, f);
  for_each_block(r.rows, f);
  for_each_block(r.people, f);
  for_each_block(r.tree, f);
  for_each_block(r.text, f);
  for_each_block(r.text2, f);
  for_each_block(r.queue, f);
  for_each_block(r.row_queue, f);
  for_each_block(r.lines, f);
}
template <class C>
std::size_t blocks_of(const C& c) {
  std::size_t n = 0;
  for_each_block(c, [&n](const void*) { ++n; });
  return n;
}

class ContainersTest : public ::testing::Test {
 protected:
  void SetUp() override { create(TxParts::small_options()); }
  void create(const PoolOptions& options) {
    ASSERT_EQ(parts_.create(path_.str(), options), Status::ok) << parts_.report.text();
    root_ = &parts_.make_root<ContainerRoot>(0);
  }
  template <class Body>
  Status run(Body&& body) {
    return parts_.run(body);
  }
  // Runs it twice: rolled back, after which nothing is changed, then committed.
  template <class Body>
  void twice(Body&& body) {
    const std::string before = shown();
    EXPECT_EQ(run([&](Transaction& tx) {
                const Status s = body(tx);
                return s == Status::ok ? Status::conflict : s;
              }),
              Status::conflict);
    EXPECT_EQ(shown(), before);
    expect_no_leak();
    EXPECT_EQ(run(body), Status::ok);
    expect_no_leak();
  }
  // All contents, as text.
  std::string shown() const {
    std::string s;
    const auto list = [&s](const auto& values) {
      for (const auto& v : values) s += std::to_string(v) + ' ';
      s += '|';
    };
    list(root_->numbers);
    list(root_->others);
    for (const auto& f : root_->fields) s += std::to_string(f.get()) + ' ';
    for (const String& t : root_->texts) s += std::string(t.view()) + ' ';
    for (const auto& row : root_->rows) list(row);
    for (const Person& p : root_->people) {
      s += std::string(p.name.view()) + std::to_string(p.age);
      list(p.scores);
    }
    s += std::to_string(root_->tree.children.size());
    s += std::string(root_->text.c_str()) + '|' + root_->text2.c_str() + '|';
    list(root_->queue);
    for (const auto& row : root_->row_queue) list(row);
    for (const String& t : root_->lines) s += std::string(t.view()) + ' ';
    return s + std::string(root_->label.get().view());
  }
  void expect_no_leak() { EXPECT_EQ(parts_.allocated_blocks().size(), 1 + blocks()); }
  std::size_t blocks() const { return blocks_of(*root_); }

  TempPath path_{"containers"};
  TxParts parts_;
  ContainerRoot* root_ = nullptr;
};

}  // namespace tenuto::test
