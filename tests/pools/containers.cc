#include "pools/containers.h"

#include <set>

namespace tenuto::test {

namespace {

std::string text_of(std::uint64_t n) {
  return "text " + std::to_string(n) + std::string(n * 7 % 40, 't');
}
std::int32_t small(std::uint64_t n) { return static_cast<std::int32_t>(n); }

Status fill_sequences(Transaction& tx, Containers& c) {
  for (std::uint64_t n = 0; n < 300; ++n) {
    TENUTO_TRY(c.numbers.push_back(tx, n * n));
    TENUTO_TRY(c.queue.push(tx, {small(n), -small(n)}));
    TENUTO_TRY(c.texts.emplace(tx, text_of(n)).error());
  }
  TENUTO_TRY(c.numbers.erase(tx, 20, 250));
  for (std::uint64_t n = 0; n < 200; ++n) {
    TENUTO_TRY(c.queue.pop(tx).error());
    TENUTO_TRY(c.texts.pop_front(tx));
  }
  for (std::uint64_t n = 0; n < 12; ++n) {
    const Result<Person*> person = c.people.emplace_back(tx, text_of(n));
    if (!person) return person.error();
    for (std::uint64_t i = 0; i < n; ++i) {
      TENUTO_TRY((*person)->points.push_back(tx, {small(i), small(n)}));
    }
    (*person)->visits = n * 1000;
  }
  TENUTO_TRY(c.people.erase(tx, 3));
  TENUTO_TRY(c.short_text.assign(tx, "fifteen letters"));
  TENUTO_TRY(c.long_text.assign(tx, std::string(300, 'L')));
  TENUTO_TRY(c.long_text.append(tx, " and its end"));
  c.name = InlineString<15>("a short name");
  return tx.status();
}

Status fill_maps(Transaction& tx, Containers& c, std::uint64_t first, std::uint64_t last) {
  for (std::uint64_t n = first; n < last; ++n) {
    const std::uint64_t key = n * 7919 % 10'007;
    TENUTO_TRY(c.tree.insert(tx, key, n));
    TENUTO_TRY(c.table.insert(tx, key, n));
    if (n % 8 != 0) continue;
    const auto numbers = c.text_tree.get_or_insert(tx, text_of(n));
    if (!numbers) return numbers.error();
    TENUTO_TRY((*numbers)->append(tx, {1u, static_cast<std::uint32_t>(n)}));
    TENUTO_TRY(c.text_table.insert(tx, text_of(n), n));
  }
  return Status::ok;
}

Status erase_from_maps(Transaction& tx, Containers& c, std::uint64_t first, std::uint64_t last) {
  for (std::uint64_t n = first; n < last; ++n) {
    const std::uint64_t key = n * 7919 % 10'007;
    TENUTO_TRY(c.tree.erase(tx, key));
    TENUTO_TRY(c.table.erase(tx, key));
    if (n % 8 != 0) continue;
    TENUTO_TRY(c.text_tree.erase(tx, text_of(n)));
    TENUTO_TRY(c.text_table.erase(tx, text_of(n)));
  }
  return Status::ok;
}

Result<Containers*> root_of(Pool& pool) { return pool.root<Containers>(kContainersLayout); }

std::string line(const char* name, std::uint64_t size) {
  return "# " + std::string(name) + ", " + std::to_string(size) + "\n";
}
std::string shown(const Point& p) { return std::to_string(p.x) + "," + std::to_string(p.y); }

// In the order of the text: a hash map has none.
template <class Map, class Show>
std::string append_map(const Map& map, const char* name, std::string& text, Show&& show) {
  Report report;
  if (map.validate(&report) != Status::ok) return std::string(name) + ": " + report.text();
  text += line(name, map.size());
  std::multiset<std::string> lines;
  for (const auto& [key, value] : map) {
    if (map.get(key) != &value) return std::string(name) + ": a key is not found";
    lines.insert(show(key, value) + "\n");
  }
  for (const std::string& l : lines) text += l;
  return {};
}

std::string number(std::uint64_t n) { return std::to_string(n); }

}  // namespace

Status fill_containers(Pool& pool) {
  const Result<Containers*> root = root_of(pool);
  if (!root) return root.error();
  Containers& c = **root;
  TENUTO_TRY(pool.run([&](Transaction& tx) { return fill_sequences(tx, c); }));
  for (std::uint64_t n = 0; n < 1000; n += 200) {
    TENUTO_TRY(pool.run([&](Transaction& tx) { return fill_maps(tx, c, n, n + 200); }));
  }
  TENUTO_TRY(pool.run([&](Transaction& tx) { return erase_from_maps(tx, c, 100, 700); }));
  decltype(c.shared)::Handle shared(pool, c.shared);
  for (std::uint64_t n = 0; n < 100; ++n) {
    TENUTO_TRY(shared.insert(n, Point{small(n), 1}));
    if (n % 3 == 0) TENUTO_TRY(shared.erase(n));
  }
  return Status::ok;
}

Status begin_containers_that_never_end(Pool& pool) {
  const Result<Containers*> root = root_of(pool);
  if (!root) return root.error();
  Containers& c = **root;
  auto& tx = *new Transaction(pool);
  TENUTO_TRY(erase_from_maps(tx, c, 700, 1000));
  TENUTO_TRY(fill_maps(tx, c, 2000, 2100));
  TENUTO_TRY(c.people.clear(tx));
  TENUTO_TRY(c.numbers.insert(tx, 0, 99));
  TENUTO_TRY(c.queue.clear(tx));
  TENUTO_TRY(c.texts.pop_front(tx));
  return c.long_text.assign(tx, "never committed");
}

std::string append_containers(Pool& pool, std::string& text) {
  const Result<Containers*> root = root_of(pool);
  if (!root) return "no containers";
  const Containers& c = **root;
  text += line("numbers", c.numbers.size());
  for (const std::uint64_t n : c.numbers) text += number(n) + "\n";
  text += line("people", c.people.size());
  for (const Person& person : c.people) {
    text += std::string(person.name.view()) + " " + number(person.visits);
    for (const Point& point : person.points) text += " " + shown(point);
    text += "\n";
  }
  text += line("queue", c.queue.size());
  for (const Point& point : c.queue) text += shown(point) + "\n";
  text += line("texts", c.texts.size());
  for (const String& t : c.texts) text += std::string(t.view()) + "\n";
  text += line("short text", c.short_text.size()) + std::string(c.short_text.view()) + "\n";
  text += line("long text", c.long_text.size()) + std::string(c.long_text.view()) + "\n";
  text += "# name\n" + std::string(c.name.get().view()) + "\n";
  const auto numbers = [](std::uint64_t key, std::uint64_t value) {
    return number(key) + " " + number(value);
  };
  std::string error = append_map(c.tree, "tree", text, numbers);
  if (error.empty()) error = append_map(c.table, "table", text, numbers);
  if (error.empty()) {
    error = append_map(c.text_tree, "text tree", text, [](const auto& key, const auto& value) {
      std::string l(key.view());
      for (const std::uint32_t n : value) l += " " + number(n);
      return l;
    });
  }
  if (error.empty()) {
    error = append_map(c.text_table, "text table", text, [](const auto& key, const auto& value) {
      return std::string(key.view()) + " " + number(value);
    });
  }
  if (!error.empty()) return error;
  Report report;
  if (c.shared.validate(&report) != Status::ok) return "shared: " + report.text();
  text += line("shared", c.shared.size());
  decltype(c.shared)::Handle shared(pool, (*root)->shared);
  for (std::uint64_t n = 0; n < 100; ++n) {
    const std::optional<Point> point = shared.get(n);
    if (point) text += number(n) + " " + shown(*point) + "\n";
  }
  return {};
}

}  // namespace tenuto::test
