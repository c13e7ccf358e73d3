#include "support/pmemobj_world.h"

#include <gtest/gtest.h>
#include <libpmemobj.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "support/explored_medium.h"
#include "support/pool_parts.h"

namespace tenuto::test {

namespace {

struct Element;
TOID_DECLARE(struct Element, 9);
struct Element {
  std::uint64_t number;
  POBJ_LIST_ENTRY(struct Element) entry;
  std::uint64_t room[11];  // so that no two share a line
};
static_assert(sizeof(Element) == 128);
POBJ_LIST_HEAD(ElementList, struct Element);

constexpr std::size_t kSlots = 7;
constexpr std::size_t kSparse = 4;  // from here on: the objects of make_sparse()
struct Root {
  PMEMoid slot[kSlots];  // texts
  std::uint64_t word[16];
  struct ElementList list;
  struct ElementList second;
};
constexpr std::size_t kRootGrown = 9'000;

Root& root_of(PMEMobjpool* pop) {
  const std::size_t bytes = std::max(sizeof(Root), pmemobj_root_size(pop));
  return *static_cast<Root*>(pmemobj_direct(pmemobj_root(pop, bytes)));
}
// The compiler does not tell the explorer of a call's result that is stored directly.
void set(PMEMoid& oid, PMEMoid value) { std::memcpy(&oid, &value, sizeof oid); }
char* text_at(PMEMoid oid) { return static_cast<char*>(pmemobj_direct(oid)); }

int write_text(PMEMobjpool* pop, void* object, void* arg) {
  pmemobj_memcpy_persist(pop, object, arg, std::strlen(static_cast<char*>(arg)) + 1);
  return 0;
}
int write_number(PMEMobjpool* pop, void* object, void* arg) {
  std::memset(object, 0, sizeof(Element));
  static_cast<Element*>(object)->number = *static_cast<std::uint64_t*>(arg);
  pmemobj_persist(pop, object, sizeof(Element));
  return 0;
}

// body(root) -> bool, in a transaction. True: as it should end.
template <class Body>
bool in_tx(PMEMobjpool* pop, bool commits, Body&& body) {
  if (pmemobj_tx_begin(pop, nullptr, TX_PARAM_NONE) == 0 && body(root_of(pop)) && commits) {
    pmemobj_tx_commit();
  }
  if (pmemobj_tx_stage() == TX_STAGE_WORK) pmemobj_tx_abort(ECANCELED);
  return pmemobj_tx_end() == (commits ? 0 : ECANCELED);
}

PMEMoid tx_text(const char* text, std::uint64_t type) {
  const PMEMoid oid = pmemobj_tx_alloc(64, type);
  if (!OID_IS_NULL(oid)) std::memcpy(text_at(oid), text, std::strlen(text) + 1);
  return oid;
}

bool insert_number(PMEMobjpool* pop, std::uint64_t number, int before) {
  return !OID_IS_NULL(pmemobj_list_insert_new(pop, offsetof(Element, entry), &root_of(pop).list,
                                              OID_NULL, before, sizeof(Element), 9, write_number,
                                              &number));
}

// tx { A = alloc; add_range(B, adjacent to A); write B; free(A) } must flush B.
bool write_beside_a_freed_object(PMEMobjpool* pop) {
  return in_tx(pop, true, [](Root& r) {
    PMEMoid a = OID_NULL;
    bool beside = false;
    for (int tries = 0; tries < 64 && !beside; ++tries) {
      a = pmemobj_tx_alloc(64, 1);
      if (OID_IS_NULL(a)) return false;
      beside = a.off + 64 == r.slot[2].off || r.slot[2].off + 64 == a.off;
      if (!beside && pmemobj_tx_free(a) != 0) return false;
    }
    if (pmemobj_tx_add_range(r.slot[2], 0, 64) != 0) return false;
    std::memcpy(text_at(r.slot[2]), "beside", 7);
    return !beside || pmemobj_tx_free(a) == 0;
  });
}

bool publish_actions(PMEMobjpool* pop) {
  Root& r = root_of(pop);
  struct pobj_action act[4];
  const PMEMoid made = pmemobj_reserve(pop, &act[0], 64, 4);
  if (OID_IS_NULL(made)) return false;
  pmemobj_memcpy_persist(pop, text_at(made), "published", 10);
  pmemobj_defer_free(pop, r.slot[0], &act[1]);
  pmemobj_set_value(pop, &act[2], &r.slot[0].off, made.off);
  pmemobj_set_value(pop, &act[3], &r.word[8], 88);
  return pmemobj_publish(pop, act, 4) == 0;
}

bool move_an_element(PMEMobjpool* pop) {
  Root& r = root_of(pop);
  constexpr std::size_t kAt = offsetof(Element, entry);
  return pmemobj_list_move(pop, kAt, &r.list, kAt, &r.second, OID_NULL, POBJ_LIST_DEST_HEAD,
                           r.list.pe_first.oid) == 0;
}

// Where an object of make_sparse() has an OID of the next one.
PMEMoid& inner(PMEMoid of) { return *reinterpret_cast<PMEMoid*>(text_at(of) + 64); }

// Three slabs with one object each. They lead to each other in a ring.
void make_sparse(PMEMobjpool* pop) {
  constexpr std::size_t kObjects = 180;
  std::vector<PMEMoid> all(kObjects);
  for (PMEMoid& oid : all) {
    ASSERT_EQ(pmemobj_zalloc(pop, &oid, 960, 10), 0) << pmemobj_errormsg();
  }
  Root& r = root_of(pop);
  for (std::size_t i = kSparse; i < kSlots; ++i) r.slot[i] = all[(i - kSparse) * 70 + 20];
  for (std::size_t i = kSparse; i < kSlots; ++i) {
    std::strcpy(text_at(r.slot[i]), ("sparse " + std::to_string(i)).c_str());
    inner(r.slot[i]) = r.slot[i + 1 < kSlots ? i + 1 : kSparse];
    pmemobj_persist(pop, text_at(r.slot[i]), 960);
  }
  pmemobj_persist(pop, &r, sizeof r);
  for (PMEMoid oid : all) {
    bool kept = false;
    for (const PMEMoid& slot : r.slot) kept = kept || OID_EQUALS(slot, oid);
    if (!kept) pmemobj_free(&oid);
  }
}

bool defragment(PMEMobjpool* pop) {
  Root& r = root_of(pop);
  std::vector<PMEMoid*> oids;
  for (std::size_t i = kSparse; i < kSlots; ++i) {
    oids.push_back(&r.slot[i]);
    oids.push_back(&inner(r.slot[i]));
  }
  struct pobj_defrag_result result = {};
  return pmemobj_defrag(pop, oids.data(), oids.size(), &result) == 0 && result.total == 3 &&
         result.relocated > 0;
}

// One step, which is atomic, or changes nothing that can be seen. False: it failed.
bool step(PMEMobjpool* pop, std::size_t n) {
  Root& r = root_of(pop);
  char text[] = "made by its constructor";
  switch (n) {
    case 0:
      return pmemobj_alloc(pop, &r.slot[0], 64, 1, write_text, text) == 0;
    case 1:
      return pmemobj_strdup(pop, &r.slot[1], "duplicated", 2) == 0;
    case 2:
      return in_tx(pop, true, [](Root& in) {
        if (pmemobj_tx_add_range_direct(&in.slot[2], sizeof in.slot[2]) != 0) return false;
        set(in.slot[2], tx_text("of a transaction", 3));
        if (pmemobj_tx_add_range_direct(&in.word[0], 64) != 0) return false;
        for (int i = 0; i < 8; ++i) in.word[i] = 10;
        return !OID_IS_NULL(in.slot[2]);
      });
    case 3:
      return pmemobj_realloc(pop, &r.slot[0], 300, 5) == 0;
    case 4:
      return write_beside_a_freed_object(pop);
    case 5:  // and one that changes nothing
      return in_tx(pop, false, [](Root& in) {
        if (pmemobj_tx_add_range_direct(&in, sizeof in) != 0) return false;
        std::memset(in.word, 0xff, sizeof in.word);
        set(in.slot[3], tx_text("aborted", 3));
        return pmemobj_tx_free(in.slot[1]) == 0;
      });
    case 6:
      return in_tx(pop, true, [](Root& in) {  // replace
        const PMEMoid fresh = tx_text("replaced", 6);
        if (pmemobj_tx_add_range_direct(&in.slot[1], sizeof in.slot[1]) != 0) return false;
        if (pmemobj_tx_free(in.slot[1]) != 0) return false;
        set(in.slot[1], fresh);
        return pmemobj_tx_xadd_range_direct(&in.word[12], 8, POBJ_XADD_NO_SNAPSHOT) == 0;
      });
    case 7:
      return publish_actions(pop);
    case 8:
      return insert_number(pop, 1, POBJ_LIST_DEST_HEAD);
    case 9:
      return insert_number(pop, 2, POBJ_LIST_DEST_TAIL);
    case 10:
      return insert_number(pop, 3, POBJ_LIST_DEST_HEAD);
    case 11:
      return move_an_element(pop);
    case 12:
      return pmemobj_list_remove(pop, offsetof(Element, entry), &r.list, r.list.pe_first.oid, 1) ==
             0;
    case 13:
      return !OID_IS_NULL(pmemobj_root(pop, kRootGrown));
    case 14: {
      PMEMoid in_dram;
      return pmemobj_alloc(pop, &in_dram, 64, 7, write_text, text) == 0;
    }
    case 15:
      pmemobj_free(&r.slot[2]);
      return OID_IS_NULL(r.slot[2]);
    case 16:
      return defragment(pop);
    default:
      return in_tx(pop, true, [](Root& in) {
        if (pmemobj_tx_add_range_direct(&in.slot[1], sizeof in.slot[1]) != 0) return false;
        set(in.slot[1], pmemobj_tx_zrealloc(in.slot[1], 20'000, 8));
        return !OID_IS_NULL(in.slot[1]);
      });
  }
}
constexpr std::size_t kSteps = 18;

std::string list_in_words(ElementList& list) {
  std::string forward, backward;
  TOID(struct Element) e;
  POBJ_LIST_FOREACH(e, &list, entry) forward += " " + std::to_string(D_RO(e)->number);
  POBJ_LIST_FOREACH_REVERSE(e, &list, entry) {
    backward.insert(0, " " + std::to_string(D_RO(e)->number));
  }
  return forward == backward ? forward : " torn:" + forward + " /" + backward;
}

// All that a program can see, but for where objects are.
std::string in_words(PMEMobjpool* pop) {
  Root& r = root_of(pop);
  const std::uint64_t room = pmemobj_alloc_usable_size(pmemobj_oid(&r));
  if (room < pmemobj_root_size(pop)) return "the root object is smaller than its size";
  std::string s;
  for (const PMEMoid& oid : r.slot) {
    if (OID_IS_NULL(oid)) {
      s += "- ";
      continue;
    }
    if (pmemobj_alloc_usable_size(oid) == 0) return "a slot leads to no object";
    s += std::to_string(pmemobj_type_num(oid)) + "=" + text_at(oid) + " ";
  }
  for (std::size_t i = kSparse; i < kSlots; ++i) {
    if (!OID_EQUALS(inner(r.slot[i]), r.slot[i + 1 < kSlots ? i + 1 : kSparse])) s += "torn ring ";
  }
  for (std::size_t i = 0; i < 12; ++i) s += " " + std::to_string(r.word[i]);
  s += " | " + list_in_words(r.list) + " |" + list_in_words(r.second) + " | objects";
  std::vector<int> types(16);
  PMEMoid oid;
  POBJ_FOREACH(pop, oid) types[pmemobj_type_num(oid) % types.size()] += 1;
  for (int n : types) s += " " + std::to_string(n);
  return s + " | root " + std::to_string(pmemobj_root_size(pop));
}

constexpr const char* kLayout = "explored";

PMEMobjpool* make(const std::string& path) {
  PMEMobjpool* const pop = pmemobj_create(path.c_str(), kLayout, PMEMOBJ_MIN_POOL, 0600);
  EXPECT_NE(pop, nullptr) << pmemobj_errormsg();
  EXPECT_FALSE(OID_IS_NULL(pmemobj_root(pop, sizeof(Root))));
  make_sparse(pop);
  return pop;
}

// The states before the first step and after each step.
std::vector<std::string> all_states() {
  const TempPath path("pmemobj-states");
  PMEMobjpool* const pop = make(path.str());
  std::vector<std::string> states = {in_words(pop)};
  for (std::size_t n = 0; n < kSteps; ++n) {
    EXPECT_TRUE(step(pop, n)) << n << ": " << pmemobj_errormsg();
    states.push_back(in_words(pop));
  }
  pmemobj_close(pop);
  return states;
}

std::string judge(const CrashImage& image, const std::vector<std::string>& states) {
  PMEMobjpool* const pop = pmemobj_open(image.path().c_str(), kLayout);
  if (pop == nullptr) return std::string("open: ") + pmemobj_errormsg();
  const std::string now = in_words(pop);
  pmemobj_close(pop);
  for (std::uint64_t n = image.acknowledged(); n <= image.invoked(); ++n) {
    if (now == states[n]) return {};
  }
  return "neither the state before the step nor after it: " + now;
}

}  // namespace

CrashOptions pmemobj_options() {
  CrashOptions o;
  o.counted_model = true;
  o.product_max = 100;
  o.samples_max = 40;
  o.recovery_states_max = 3;
  o.points_percent = 25;
  return o;
}

CrashResult explore_pmemobj(const CrashOptions& options) {
  const std::vector<std::string> states = all_states();
  const auto setup = [](const std::string& path) { pmemobj_close(make(path)); };
  const auto workload = [](CrashContext& context) {
    PMEMobjpool* const pop = pmemobj_open(context.path().c_str(), kLayout);
    EXPECT_NE(pop, nullptr) << pmemobj_errormsg();
    for (std::size_t n = 0; n < kSteps; ++n) {
      context.invoke();
      EXPECT_TRUE(step(pop, n)) << n << ": " << pmemobj_errormsg();
      context.ack();
    }
    pmemobj_close(pop);
  };
  return CrashRunner(options).run(setup, workload,
                                  [&](const CrashImage& image) { return judge(image, states); });
}

}  // namespace tenuto::test
