// Pools with containers: what is put into them, and their contents as text.
#pragma once

#include <cstdint>
#include <string>

#include "tenuto/concurrent_hash_map.h"
#include "tenuto/hash_map.h"
#include "tenuto/inline_string.h"
#include "tenuto/ordered_map.h"
#include "tenuto/p.h"
#include "tenuto/pool.h"
#include "tenuto/queue.h"
#include "tenuto/string.h"
#include "tenuto/vector.h"

namespace tenuto::test {

inline constexpr const char* kContainersLayout = "old containers";

// These structures are part of the old pools: never change them.
struct Point {
  std::int32_t x;
  std::int32_t y;
};
struct Person {
  String name;
  Vector<Point> points;
  p<std::uint64_t> visits;

  Person() = default;
  Person(Relocation r, Person& from) noexcept
      : name(r, from.name), points(r, from.points), visits(from.visits) {}
  Status construct(Transaction& tx, std::string_view text) { return name.construct(tx, text); }
  Status release(Transaction& tx) {
    TENUTO_TRY(name.release(tx));
    return points.release(tx);
  }
  template <PoolOfBlocks AnyPool>
  Status validate(const AnyPool& pool, Report* report) const {
    TENUTO_TRY(name.validate(pool, report));
    return points.validate(pool, report);
  }
};
struct Containers {
  Vector<std::uint64_t> numbers;
  Vector<Person> people;
  Queue<Point> queue;
  Queue<String> texts;
  String short_text;
  String long_text;
  p<InlineString<15>> name;
  OrderedMap<std::uint64_t, std::uint64_t> tree;
  OrderedMap<String, Vector<std::uint32_t>> text_tree;
  HashMap<std::uint64_t, std::uint64_t> table;
  HashMap<String, p<std::uint64_t>> text_table;
  ConcurrentHashMap<std::uint64_t, Point> shared;
};

// Grows and shrinks all of them.
Status fill_containers(Pool& pool);
// Changes all of them in a transaction that never ends.
Status begin_containers_that_never_end(Pool& pool);
// Appends the contents. Returns an error, or an empty string; also if a map is not sound.
std::string append_containers(Pool& pool, std::string& text);

}  // namespace tenuto::test
