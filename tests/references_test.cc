// Where containers and users' types have their references (tenuto/references.h): what a collection
// after a kill keeps and frees by them, what it would keep without them, and what a type that
// forgets one loses. Random lives with collections are in containers_test.cc and maps_test.cc,
// crashes in containers_crash.cc.
#include "tenuto/references.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "pm/plant.h"
#include "support/pool_parts.h"
#include "support/seed.h"
#include "tenuto/concurrent_hash_map.h"
#include "tenuto/hash_map.h"
#include "tenuto/ordered_map.h"
#include "tenuto/pool.h"
#include "tenuto/queue.h"
#include "tenuto/string.h"
#include "tenuto/vector.h"

namespace tenuto {
namespace {

using test::TempPath;

constexpr const char* kLong = "a text that is in a block of its own";

struct Note {
  std::uint64_t looks = 0;  // may look like a pointer, and is none
  Ptr<char> text;
  void references(const References& visit) const { visit(text); }
};

// An element of containers, with containers and pointers in it.
struct Person {
  std::uint64_t looks = 0;
  String name;
  Vector<String> words;
  p<Note*> note;

  Person() = default;
  Person(Relocation r, Person& from) noexcept
      : looks(from.looks), name(r, from.name), words(r, from.words), note(from.note) {}
  Status construct(Transaction& tx, std::uint64_t n) {
    TENUTO_TRY(name.construct(tx, kLong));
    const Result<Note*> made = tx.make<Note>();
    if (!made) return made.error();
    note = *made;
    const Result<void*> text = tx.alloc(16 + n % 100);
    if (!text) return text.error();
    (*made)->text = static_cast<char*>(*text);
    return Status::ok;
  }
  Status release(Transaction& tx) {
    TENUTO_TRY(name.release(tx));
    TENUTO_TRY(words.release(tx));
    TENUTO_TRY(tx.free(note->text.get()));
    return tx.free(note.get());
  }
  void references(const References& visit) const { visit(name, words, note); }
};

struct Base {
  Ptr<Note> note;
  void references(const References& visit) const { visit(note); }
};
struct Derived : Base {
  Ptr<Note> more;
};

struct Root {
  std::uint64_t looks[32];
  Vector<Person> people;
  Queue<Person> queue;
  HashMap<std::uint64_t, Person> table;
  OrderedMap<std::uint64_t, Vector<Person>> tree;
  OrderedMap<String, Queue<String>> texts;
  ConcurrentHashMap<std::uint64_t, Vector<std::uint64_t>> shared;
  Vector<Ptr<Note>> notes;
  Ptr<char> fresh;  // null but inside lose()
  Ptr<Base> base;
  Ptr<Note> many;
  std::uint64_t count;
  Ptr<void> unknown;

  void references(const References& visit) const {
    visit(people, queue, table, tree, texts, shared, notes, fresh, unknown);
    visit.all(base);
    visit.array(many, count);
  }
};

// As Root, by a programmer who forgot something.
struct Forgetful : Root {
  void references(const References& visit) const {
    visit(people, queue, table, tree, shared, notes, fresh, unknown);
    visit.all(base);
    visit.array(many, count);
  }
};

PoolOptions options(Medium medium = Medium::cache, PointerFilter filter = {}) {
  PoolOptions o = test::PoolParts::small_options();
  o.medium = medium;
  o.consistency = Consistency::gc;
  o.root_filter = std::move(filter);
  return o;
}

Root& root(Pool& pool) { return **pool.root<Root>("references"); }

// The blocks that a collection would free.
std::uint64_t lost(Pool& pool, PointerFilter filter, GarbageOptions o = {}) {
  o.root_filter = std::move(filter);
  const Result<Garbage> g = pool.find_garbage(o);
  std::uint64_t n = 0;
  for (const GarbageRow& row : g.value().lost) n += row.blocks;
  return n;
}

// How many elements each container has.
using Sizes = std::array<std::uint64_t, 6>;
Sizes sizes(const Root& r) {
  return {r.people.size(), r.queue.size(), r.table.size(),
          r.tree.size(),   r.texts.size(), r.notes.size()};
}

// An object that nothing leads to.
char* lose(Pool& pool, std::uint64_t bytes) {
  EXPECT_EQ(pool.malloc_to(bytes, root(pool).fresh.word(), {.zero = true}), Status::ok);
  char* const lost = root(pool).fresh.get();
  root(pool).fresh = nullptr;
  flush(root(pool).fresh);
  return lost;
}

// One change of one container.
Status change(Transaction& tx, Root& r, std::uint64_t n) {
  const std::uint64_t key = n / 16 % 50;
  switch (n % 16) {
    case 0:
    case 1:
      return r.people.emplace_back(tx, n).error();
    case 2:
      return r.people.empty() ? Status::ok : r.people.erase(tx, key % r.people.size());
    case 3:
    case 4:
      return r.queue.emplace(tx, n).error();
    case 5:
      return r.queue.empty() ? Status::ok : r.queue.pop_front(tx);
    case 6:
    case 7:
      return r.table.contains(key) ? r.table.erase(tx, key) : r.table.insert(tx, key, n);
    case 8:
    case 9:
    case 10: {
      const auto row = r.tree.get_or_insert(tx, key);
      if (!row) return row.error();
      return (*row)->emplace_back(tx, n).error();
    }
    case 11:
      return r.tree.contains(key) ? r.tree.erase(tx, key) : Status::ok;
    case 12: {
      const auto lines = r.texts.get_or_insert(tx, kLong + std::to_string(key));
      if (!lines) return lines.error();
      return (*lines)->emplace(tx, kLong).error();
    }
    case 13:
      return r.people.empty() ? Status::ok : r.people[0].name.assign(tx, std::string(key, 'x'));
    case 14:
      return r.people.empty() ? Status::ok : r.people.back().words.emplace_back(tx, kLong).error();
    default: {
      const Result<Note*> made = tx.make<Note>();
      if (!made) return made.error();
      TENUTO_TRY(tx.add(**made));
      return r.notes.emplace_back(tx, *made).error();
    }
  }
}

class Collected : public testing::TestWithParam<Medium> {
 protected:
  void SetUp() override {
    Result<Pool> pool = Pool::create(path_.str(), options(GetParam()), &report_);
    ASSERT_TRUE(pool) << report_.text();
    root(*pool);
    ASSERT_EQ(pool->close(), Status::ok);
  }
  Pool open(PointerFilter filter) {
    Result<Pool> pool = Pool::open(path_.str(), options(GetParam(), std::move(filter)), &report_);
    EXPECT_TRUE(pool) << report_.text();
    return std::move(*pool);
  }
  // Runs work in a child process, which is killed after it, or in it by die().
  void killed(const std::function<void(Pool&)>& work, const PointerFilter& filter) {
    const pid_t child = ::fork();
    if (child == 0) {
      Pool pool = open(filter);
      work(pool);
      EXPECT_EQ(pool.sync(), Status::ok);
      die();
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_EQ(status, SIGKILL) << "the child failed, or ended before its end";
  }
  // Kills the child, unless an expectation failed there: a kill would hide it from the parent.
  static void die() { HasFailure() ? ::_exit(1) : static_cast<void>(::raise(SIGKILL)); }
  // Everything that the containers hold is there.
  void expect_whole(Pool& pool) {
    const Root& r = root(pool);
    EXPECT_EQ(pool.validate(&report_), Status::ok) << report_.text();
    const auto whole = [&](const auto& container) {
      EXPECT_EQ(container.validate(pool, &report_), Status::ok) << report_.text();
    };
    whole(r.people);
    whole(r.queue);
    whole(r.table);
    whole(r.tree);
    whole(r.texts);
    whole(r.shared);
    whole(r.notes);
    for (const Person& each : r.people) expect_person(pool, each);
    for (const Person& each : r.queue) expect_person(pool, each);
    for (const auto& [key, each] : r.table) expect_person(pool, each);
    for (const auto& [key, row] : r.tree) {
      for (const Person& each : row) expect_person(pool, each);
    }
    for (const auto& note : r.notes) EXPECT_GE(pool.usable_size(note.get()), sizeof(Note));
  }
  static void expect_person(Pool& pool, const Person& person) {
    ASSERT_EQ(person.name.validate(pool), Status::ok);
    ASSERT_EQ(person.words.validate(pool), Status::ok);
    ASSERT_GE(pool.usable_size(person.note.get()), sizeof(Note));
    ASSERT_GE(pool.usable_size(person.note->text.get()), 16u);
  }

  TempPath path_{"references"};
  Report report_;
};
INSTANTIATE_TEST_SUITE_P(References, Collected,
                         testing::Values(Medium::cache, Medium::line, Medium::journal),
                         [](const auto& medium) { return medium_name(medium.param); });

TEST_P(Collected, a_kill_in_the_middle_loses_nothing_that_is_held_and_keeps_nothing_else) {
  const PointerFilter filter = reference_filter<Root>();
  const std::uint64_t seed = test::test_seed();
  auto& committed = *static_cast<Sizes*>(
      ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  for (std::uint64_t life = 0; life < 6; ++life) {
    SCOPED_TRACE("seed " + std::to_string(seed) + ", life " + std::to_string(life));
    const auto work = [&](Pool& pool) {
      std::mt19937_64 rng(seed + life);
      for (std::uint64_t last = 100 + rng() % 100, i = 0;; ++i) {
        const Status wanted = rng() % 5 == 0 ? Status::conflict : Status::ok;
        ASSERT_EQ(pool.run([&](Transaction& tx) -> Status {
          for (std::uint64_t n = 1 + rng() % 4; n > 0; --n) {
            TENUTO_TRY(change(tx, root(pool), rng()));
          }
          if (i < last) return wanted;
          TENUTO_TRY(tx.ready());
          TENUTO_TRY(pool.sync());
          die();
          return Status::aborted;
        }),
                  wanted);
        committed = sizes(root(pool));
        lose(pool, 16 + rng() % 500);
      }
    };
    killed(work, filter);
    Pool pool = open(filter);
    expect_whole(pool);
    EXPECT_EQ(lost(pool, {}), 0u) << "more is kept than anything leads to";
    EXPECT_EQ(lost(pool, filter), 0u) << "more is kept than the references lead to";
    EXPECT_EQ(sizes(root(pool)), committed);
    EXPECT_NE(committed, Sizes{});
    ASSERT_EQ(pool.close(), Status::ok);
  }
}

// In the root, in an element, in a plain element and in a text: each place keeps a block if it is
// read as a pointer.
TEST_P(Collected, a_number_that_looks_like_a_pointer_keeps_nothing) {
  const auto work = [](Pool& pool) {
    Root& r = root(pool);
    const auto looks_like = [&](std::uint64_t& at) {
      at = PtrWord::encode(&at, lose(pool, 300));
      flush(at);
    };
    for (std::uint64_t& at : r.looks) looks_like(at);
    EXPECT_EQ(pool.run([&](Transaction& tx) -> Status {
      TENUTO_TRY(r.people.emplace_back(tx, 5).error());
      TENUTO_TRY(r.queue.emplace(tx, 5).error());
      TENUTO_TRY(r.table.insert(tx, 1, 5));
      const auto numbers = r.tree.get_or_insert(tx, 1);
      TENUTO_TRY(numbers.error());
      TENUTO_TRY((*numbers)->emplace_back(tx, 5).error());
      ConcurrentHashMap<std::uint64_t, Vector<std::uint64_t>>::Handle shared(pool, r.shared);
      const auto map = shared.locked(tx, 3);
      TENUTO_TRY(map.error());
      const auto row = (*map)->get_or_insert(tx, 3);
      TENUTO_TRY(row.error());
      return (*row)->resize(tx, 8);
    }),
              Status::ok);
    looks_like(r.people[0].looks);
    looks_like(r.people[0].note->looks);
    looks_like(r.queue.front()->looks);
    looks_like(r.table.get(1)->looks);
    looks_like((*r.tree.get(1))[0].looks);
    ConcurrentHashMap<std::uint64_t, Vector<std::uint64_t>>::Handle shared(pool, r.shared);
    EXPECT_EQ(shared.visit(3,
                           [&](const Vector<std::uint64_t>& row) {
                             looks_like(const_cast<std::uint64_t&>(row[4]));
                           }),
              Status::ok);
    char* const text = const_cast<char*>(r.people[0].name.data()) + 8;
    looks_like(*reinterpret_cast<std::uint64_t*>(text));
  };
  constexpr std::uint64_t kPlaces = 32 + 7;
  // The root; four persons of three blocks, and what they are in; the map of vectors.
  constexpr std::uint64_t kHeld = 1 + 4 * 3 + (1 + 1 + 2 + 2) + 3;
  killed(work, {});
  {
    Pool pool = open({});
    expect_whole(pool);
    EXPECT_EQ(lost(pool, {}), 0u) << "read word by word, each keeps one";
    // Some words are a Ptr and lead somewhere as a VPtr, too.
    EXPECT_GE(lost(pool, reference_filter<Root>()), kPlaces);
    EXPECT_GE(pool.stats().objects, kHeld + kPlaces);
    ASSERT_EQ(pool.close(), Status::ok);
  }
  killed([](Pool&) {}, {});
  Pool pool = open(reference_filter<Root>());
  expect_whole(pool);
  EXPECT_EQ(pool.stats().objects, kHeld);
  EXPECT_EQ(root(pool).people[0].name.size(), std::string_view(kLong).size());
}

TEST_P(Collected, a_type_that_forgets_a_container_loses_it_and_is_found_beforehand) {
  killed(
      [](Pool& pool) {
        EXPECT_EQ(pool.run([&](Transaction& tx) -> Status {
          for (std::uint64_t n = 0; n < 160; ++n) TENUTO_TRY(change(tx, root(pool), n));
          return Status::ok;
        }),
                  Status::ok);
        EXPECT_EQ(lost(pool, {}), 0u);
        EXPECT_EQ(lost(pool, reference_filter<Root>()), 0u);
        EXPECT_GT(lost(pool, reference_filter<Forgetful>()), 10u);
      },
      {});
  Pool pool = open(reference_filter<Forgetful>());
  EXPECT_NE(root(pool).texts.validate(pool, &report_), Status::ok);
  EXPECT_EQ(root(pool).people.validate(pool, &report_), Status::ok) << report_.text();
}

TEST_P(Collected, arrays_derived_classes_and_types) {
  constexpr std::uint64_t kType = 9;
  const auto in_block = [](Pool& pool, std::uint64_t bytes, auto& ptr, std::uint64_t type = 0) {
    EXPECT_EQ(pool.malloc_to(bytes, ptr.word(), {.zero = true, .type = type}), Status::ok);
  };
  killed(
      [&](Pool& pool) {
        Root& r = root(pool);
        in_block(pool, 5 * sizeof(Note), r.many);
        r.count = 5;
        flush(r.count);
        for (int i = 0; i < 5; ++i) in_block(pool, 40, (&*r.many)[i].text);
        in_block(pool, sizeof(Derived), r.base);
        in_block(pool, sizeof(Note), r.base->note);
        in_block(pool, sizeof(Note), static_cast<Derived&>(*r.base).more);
        in_block(pool, sizeof(Note), r.unknown, kType);
        auto& typed = *static_cast<Note*>(r.unknown.get());
        in_block(pool, 50, typed.text);
        typed.looks = PtrWord::encode(&typed.looks, lose(pool, 60));
        flush(typed);
      },
      {});
  PoolOptions o = options(GetParam(), reference_filter<Root>());
  o.filters[kType] = reference_filter<Note>();
  Pool pool = Pool::open(path_.str(), o, &report_).value();
  // The two words of the derived object are read as VPtr, too, and may keep something.
  EXPECT_GE(pool.stats().objects, 1 + 6 + 3 + 2u);
  EXPECT_LE(pool.stats().objects, 1 + 6 + 3 + 2 + 2u);
  const Root& r = root(pool);
  for (int i = 0; i < 5; ++i) EXPECT_GE(pool.usable_size((&*r.many)[i].text.get()), 40u);
  EXPECT_GE(pool.usable_size(static_cast<Derived&>(*r.base).more.get()), sizeof(Note));
}

// --- without a kill ------------------------------------------------------------------------------

struct Twig {
  Vector<Twig> twigs;
  Twig() = default;
  Twig(Relocation r, Twig& from) noexcept : twigs(r, from.twigs) {}
  Status release(Transaction& tx) { return twigs.release(tx); }
  void references(const References& visit) const { visit(twigs); }
};

class ReferencesTest : public testing::Test {
 protected:
  template <class T>
  std::uint64_t lost(unsigned threads = 1) {
    return tenuto::lost(pool_, reference_filter<T>(), {.threads = threads});
  }
  TempPath path_{"references2"};
  Pool pool_ = Pool::create(path_.str(), options()).value();
};

TEST_F(ReferencesTest, a_tree_of_containers_may_be_deep) {
  Vector<Twig>* at = *pool_.root<Vector<Twig>>("root");
  for (int i = 0; i < 30'000; ++i) {
    ASSERT_EQ(pool_.run([&](Transaction& tx) {
      const auto twig = at->emplace_back(tx);
      if (twig) at = &(*twig)->twigs;
      return twig.error();
    }),
              Status::ok);
  }
  EXPECT_EQ(lost<Vector<Twig>>(), 0u);
  plant("heap_reach_forgets_what_is_deep");
  EXPECT_GT(lost<Vector<Twig>>(), 1000u);
  unplant_all();
}

TEST_F(ReferencesTest, a_list_by_typed_pointers) {
  struct Link {
    Ptr<Link> next;
    void references(const References& visit) const { visit(next); }
  };
  Ptr<Link>* at = &(*pool_.root<Link>("root"))->next;
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(pool_.malloc_to(sizeof(Link), at->word(), {.zero = true}), Status::ok);
    at = &(*at)->next;
  }
  for (const unsigned threads : {1u, 2u}) EXPECT_EQ(lost<Link>(threads), 0u);
  plant("heap_reach_passes_typed_pointers_over");
  EXPECT_EQ(lost<Link>(), 1000u);
  unplant_all();
}

TEST_F(ReferencesTest, a_root_that_is_smaller_than_its_type_is_read_word_by_word) {
  struct Old {
    Ptr<char> text;
  };
  struct New {
    std::uint64_t other[40];
    void references(const References&) const {}
  };
  Old* const old = *pool_.root<Old>("root");
  ASSERT_EQ(pool_.malloc_to(50, old->text.word()), Status::ok);
  EXPECT_EQ(lost<New>(), 0u);
  struct Nothing {
    Ptr<char> text;
    void references(const References&) const {}
  };
  EXPECT_EQ(lost<Nothing>(), 1u);
}

// Damaged containers lead to no wrong memory, and the collection ends.
TEST_F(ReferencesTest, of_any_bytes) {
  Root& r = root(pool_);
  ASSERT_EQ(pool_.run([&](Transaction& tx) -> Status {
    for (std::uint64_t n = 0; n < 300; ++n) TENUTO_TRY(change(tx, r, n));
    return Status::ok;
  }),
            Status::ok);
  std::mt19937_64 rng(test::test_seed());
  std::vector<std::uint64_t*> words;
  const auto add_words = [&](const void* at, std::uint64_t bytes) {
    for (std::uint64_t i = 0; i < bytes / 8; ++i) words.push_back((std::uint64_t*)at + i);
  };
  add_words(&r, sizeof r);
  r.table.for_each_block([&](const void* b) { add_words(b, pool_.usable_size(b)); });
  r.tree.for_each_block([&](const void* b) { add_words(b, pool_.usable_size(b)); });
  add_words(r.people.data(), r.people.size() * sizeof(Person));
  for (int i = 0; i < 400; ++i) {
    std::uint64_t& at = *words[rng() % words.size()];
    const std::uint64_t before = at;
    at = rng() % 3 == 0 ? *words[rng() % words.size()] : at ^ std::uint64_t{1} << rng() % 64;
    lost<Root>();
    at = before;
  }
  EXPECT_EQ(lost<Root>(), 0u);
}

}  // namespace
}  // namespace tenuto
