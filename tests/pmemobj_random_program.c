/* A random program: calls of all kinds, right and wrong ones, from a seed. It prints all that a
 * program of libpmemobj can rely on. tests/pmemobj_same_test.py runs it over libpmemobj and over
 * the drop-in, and both must print the same.
 *
 * usage: pmemobj_random_program POOL SEED STEPS */
#include <libpmemobj.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kSlots = 12, kWords = 48, kLists = 2, kElementType = 50, kDepthMax = 3 };

struct element;
TOID_DECLARE(struct element, kElementType);
struct element {
  uint64_t number;
  POBJ_LIST_ENTRY(struct element) entry;
};
POBJ_LIST_HEAD(element_list, struct element);
struct root {
  PMEMoid slot[kSlots];
  uint64_t bytes[kSlots]; /* as asked for */
  uint64_t word[kWords];
  struct element_list list[kLists];
  PMEMmutex lock;
};

static PMEMobjpool* pop;
static struct root* root;
static uint64_t state;
static uint64_t numbers;

static uint64_t draw(uint64_t below) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (state >> 33) % below;
}

static uint64_t digest(const void* p, uint64_t bytes) {
  uint64_t h = 14695981039346656037u;
  for (uint64_t i = 0; i < bytes; ++i) h = (h ^ ((const unsigned char*)p)[i]) * 1099511628211u;
  return h;
}

static void told(const char* what, int result) {
  if (result == 0) {
    printf(" %s ok", what);
  } else {
    printf(" %s %d errno %d", what, result, errno);
  }
}

static void show(void) {
  for (int i = 0; i < kSlots; ++i) {
    const PMEMoid o = root->slot[i];
    if (OID_IS_NULL(o)) {
      printf(" -");
      continue;
    }
    if (pmemobj_alloc_usable_size(o) < root->bytes[i]) printf(" too-small");
    printf(" %llu:%llu:%llx", (unsigned long long)pmemobj_type_num(o),
           (unsigned long long)root->bytes[i],
           (unsigned long long)digest(pmemobj_direct(o), root->bytes[i]));
  }
  printf(" words %llx", (unsigned long long)digest(root->word, sizeof root->word));
  unsigned types[64] = {0};
  PMEMoid o;
  POBJ_FOREACH(pop, o) types[pmemobj_type_num(o) % 64] += 1;
  printf(" types %llx", (unsigned long long)digest(types, sizeof types));
  for (int l = 0; l < kLists; ++l) {
    TOID(struct element) e;
    printf(" [");
    POBJ_LIST_FOREACH(e, &root->list[l], entry)
    printf(" %llu", (unsigned long long)D_RO(e)->number);
    printf(" ]");
    uint64_t back = 0;
    POBJ_LIST_FOREACH_REVERSE(e, &root->list[l], entry) back = back * 31 + D_RO(e)->number;
    printf(" %llx", (unsigned long long)back);
  }
  printf("\n");
}

static int fill(PMEMobjpool* p, void* object, void* arg) {
  const uint64_t* const a = arg; /* bytes, value, whether it refuses */
  memset(object, (int)a[1], a[0]);
  pmemobj_persist(p, object, a[0]);
  return (int)a[2];
}

static uint64_t some_size(void) { return 1 + draw(draw(8) == 0 ? 40000 : 600); }

static void keep_bytes(int slot, uint64_t bytes) {
  root->bytes[slot] = bytes;
  pmemobj_persist(pop, &root->bytes[slot], 8);
}

static void beside_transactions(void) {
  const int i = (int)draw(kSlots);
  PMEMoid* const o = &root->slot[i];
  uint64_t arg[3] = {some_size(), draw(256), draw(6) == 0};
  const uint64_t had = OID_IS_NULL(*o) ? 0 : root->bytes[i];
  switch (draw(9)) {
    case 0:
      if (had != 0) return;
      told("alloc", pmemobj_alloc(pop, o, arg[0], draw(40), fill, arg));
      if (!OID_IS_NULL(*o)) keep_bytes(i, arg[0]);
      return;
    case 1:
      if (had != 0) return;
      told("zalloc", pmemobj_zalloc(pop, o, arg[0], draw(40)));
      keep_bytes(i, arg[0]);
      return;
    case 2:
      pmemobj_free(o);
      return;
    case 3: {
      arg[0] |= 1; /* asked for exactly the usable bytes, libpmemobj leaves the old type */
      const int r = pmemobj_zrealloc(pop, o, draw(10) == 0 ? 0 : arg[0], draw(40));
      told("zrealloc", r);
      if (OID_IS_NULL(*o)) return;
      keep_bytes(i, arg[0]);
      /* What it kept and made zero; between the two is what the heap left. */
      const unsigned char* const p = pmemobj_direct(*o);
      if (had != 0)
        printf(" kept %llx", (unsigned long long)digest(p, had < arg[0] ? had : arg[0]));
      pmemobj_memset_persist(pop, pmemobj_direct(*o), 5, arg[0]);
      return;
    }
    case 4:
      if (had != 0) return;
      told("strdup", pmemobj_strdup(pop, o, "a string", 3));
      keep_bytes(i, 9);
      return;
    case 5:
      told("size 0", pmemobj_alloc(pop, o, 0, 1, NULL, NULL));
      told("too large", pmemobj_alloc(pop, o, (size_t)1 << 40, 1, NULL, NULL));
      told("flags", pmemobj_xalloc(pop, o, 8, 1, 1u << 20, NULL, NULL));
      told("null", pmemobj_strdup(pop, o, NULL, 1));
      return;
    case 6: {
      struct pobj_action act[3];
      const PMEMoid made = pmemobj_reserve(pop, &act[0], arg[0], 41);
      if (OID_IS_NULL(made)) return;
      memset(pmemobj_direct(made), 7, arg[0]);
      pmemobj_persist(pop, pmemobj_direct(made), arg[0]);
      pmemobj_set_value(pop, &act[1], &root->word[draw(kWords)], draw(1000));
      if (draw(3) == 0 || had == 0) {
        pmemobj_cancel(pop, act, 2);
        return;
      }
      pmemobj_defer_free(pop, *o, &act[2]);
      told("publish", pmemobj_publish(pop, act, 3));
      *o = made;
      pmemobj_persist(pop, o, sizeof *o);
      keep_bytes(i, arg[0]);
      return;
    }
    case 7:
      pmemobj_memset(pop, &root->word[draw(kWords)], (int)draw(256), 8, 0);
      return;
    default:
      pmemobj_memcpy_persist(pop, &root->word[draw(kWords)], arg, 8);
  }
}

static int number_it(PMEMobjpool* p, void* object, void* arg) {
  memset(object, 0, sizeof(struct element));
  ((struct element*)object)->number = *(const uint64_t*)arg;
  pmemobj_persist(p, object, sizeof(struct element));
  return 0;
}

static void lists(void) {
  struct element_list* const l = &root->list[draw(kLists)];
  struct element_list* const m = &root->list[draw(kLists)];
  TOID(struct element) e = POBJ_LIST_FIRST(l), at;
  for (uint64_t n = draw(4); n > 0 && !TOID_IS_NULL(e); --n) e = POBJ_LIST_NEXT(e, entry);
  switch (draw(6)) {
    case 0:
    case 1:
      numbers += 1;
      if (draw(2) == 0) {
        POBJ_LIST_INSERT_NEW_HEAD(pop, l, entry, sizeof(struct element), number_it, &numbers);
      } else {
        POBJ_LIST_INSERT_NEW_TAIL(pop, l, entry, sizeof(struct element), number_it, &numbers);
      }
      return;
    case 2:
      if (TOID_IS_NULL(e)) return;
      numbers += 1;
      if (draw(2) == 0) {
        POBJ_LIST_INSERT_NEW_BEFORE(pop, l, e, entry, sizeof(struct element), number_it, &numbers);
      } else {
        POBJ_LIST_INSERT_NEW_AFTER(pop, l, e, entry, sizeof(struct element), number_it, &numbers);
      }
      return;
    case 3:
      if (TOID_IS_NULL(e)) return;
      told("remove", POBJ_LIST_REMOVE_FREE(pop, l, e, entry));
      return;
    default:
      if (TOID_IS_NULL(e) || l == m) return;
      at = POBJ_LIST_FIRST(m);
      for (uint64_t n = draw(3); n > 0 && !TOID_IS_NULL(at); --n) at = POBJ_LIST_NEXT(at, entry);
      if (TOID_IS_NULL(at) || draw(3) == 0) {
        told("tail", POBJ_LIST_MOVE_ELEMENT_TAIL(pop, l, m, e, entry, entry));
      } else if (draw(2) == 0) {
        told("after", POBJ_LIST_MOVE_ELEMENT_AFTER(pop, l, m, at, e, entry, entry));
      } else {
        told("before", POBJ_LIST_MOVE_ELEMENT_BEFORE(pop, l, m, at, e, entry, entry));
      }
  }
}

/* One call inside a transaction. */
static void in_transaction(void) {
  const int i = (int)draw(kSlots);
  const uint64_t from = draw(kWords), count = 1 + draw(kWords - from), bytes = some_size();
  const uint64_t type = draw(40), value = draw(256);
  const PMEMoid wrong = {1, 64};
  switch (draw(12)) {
    case 0:
    case 1:
    case 2:
      pmemobj_tx_add_range_direct(&root->word[from], count * 8);
      memset(&root->word[from], (int)value, count * 8);
      return;
    case 3:
    case 4:
      pmemobj_tx_add_range_direct(&root->slot[i], sizeof(PMEMoid));
      pmemobj_tx_add_range_direct(&root->bytes[i], 8);
      if (!OID_IS_NULL(root->slot[i])) pmemobj_tx_free(root->slot[i]);
      root->slot[i] = pmemobj_tx_alloc(bytes, type);
      root->bytes[i] = bytes;
      memset(pmemobj_direct(root->slot[i]), (int)value, bytes);
      return;
    case 5:
      pmemobj_tx_add_range(pmemobj_oid(root), offsetof(struct root, slot), sizeof root->slot);
      pmemobj_tx_add_range(pmemobj_oid(root), offsetof(struct root, bytes), sizeof root->bytes);
      root->slot[i] = pmemobj_tx_zrealloc(root->slot[i], bytes, type);
      root->bytes[i] = bytes;
      memset(pmemobj_direct(root->slot[i]), (int)value, bytes);
      return;
    case 6:
      if (OID_IS_NULL(root->slot[i])) return;
      pmemobj_tx_add_range(root->slot[i], 0, root->bytes[i]);
      memset(pmemobj_direct(root->slot[i]), (int)value, root->bytes[i]);
      return;
    case 7:
      told("told", pmemobj_tx_xadd_range(wrong, 0, 8, POBJ_XADD_NO_ABORT));
      told("told", pmemobj_tx_xfree(wrong, POBJ_XFREE_NO_ABORT));
      told("null", !OID_IS_NULL(pmemobj_tx_xalloc(0, 1, POBJ_XALLOC_NO_ABORT)));
      return;
    case 8:
      if (draw(4) == 0) pmemobj_tx_alloc((size_t)1 << 40, 1);
      return;
    case 9:
      if (draw(4) == 0) pmemobj_tx_free(wrong);
      return;
    case 10:
      if (draw(3) == 0) pmemobj_tx_abort(1 + (int)draw(30));
      return;
    default:
      pmemobj_tx_lock(TX_PARAM_MUTEX, &root->lock);
  }
}

static void transaction(int depth) {
  const int calls = (int)draw(6);
  const uint64_t returns = draw(8);
  TX_BEGIN(pop) {
    printf(" (");
    if (returns == 0) pmemobj_tx_set_failure_behavior(POBJ_TX_FAILURE_RETURN);
    for (int n = 0; n < calls; ++n) {
      if (depth < kDepthMax && draw(5) == 0) {
        transaction(depth + 1);
      } else if (returns != 0) {
        in_transaction();
      } else {
        pmemobj_tx_add_range_direct(root->word, 8);
        root->word[0] += 1;
        told("returned", pmemobj_tx_free((PMEMoid){1, 64}));
      }
    }
  }
  TX_ONABORT { printf(" onabort %d/%d", pmemobj_tx_errno(), errno); }
  TX_ONCOMMIT { printf(" oncommit"); }
  TX_FINALLY { printf(" finally )"); }
  TX_END
  printf(" last %d", pmemobj_tx_errno());
}

static void reopen(const char* path) {
  if (pop != NULL) pmemobj_close(pop);
  pop = pmemobj_open(path, "random");
  if (pop == NULL) {
    printf("open: %s\n", pmemobj_errormsg());
    exit(1);
  }
  root = pmemobj_direct(pmemobj_root(pop, sizeof *root));
}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  state = strtoull(argv[2], NULL, 0);
  unlink(argv[1]);
  PMEMobjpool* const made = pmemobj_create(argv[1], "random", 64u << 20, 0600);
  if (made == NULL) return 1;
  pmemobj_close(made);
  reopen(argv[1]);
  const int steps = atoi(argv[3]);
  for (int n = 0; n < steps; ++n) {
    const uint64_t kind = draw(20);
    printf("%d:", n);
    if (kind == 0) {
      reopen(argv[1]);
    } else if (kind < 8) {
      beside_transactions();
    } else if (kind < 12) {
      lists();
    } else {
      transaction(0);
    }
    show();
  }
  pmemobj_close(pop);
  printf("check %d\n", pmemobj_check(argv[1], "random"));
  unlink(argv[1]);
  return 0;
}
