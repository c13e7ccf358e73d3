/* A program of libpmemobj's users: C, its header and its macros. It is compiled once against our
 * library and once against libpmemobj, and run with each way of putting ours in (CMakeLists.txt).
 * It makes a pool at argv[1], works in it, opens it again, and ends with 0. argv[2]: "ours" or
 * "libpmemobj", which library must have answered. */
#include <libpmemobj.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

POBJ_LAYOUT_BEGIN(program);
POBJ_LAYOUT_ROOT(program, struct root);
POBJ_LAYOUT_TOID(program, struct node);
POBJ_LAYOUT_TOID(program, struct entry);
POBJ_LAYOUT_END(program);

struct node {
  uint64_t key;
  TOID(struct node) child[2];
};
struct entry {
  uint64_t number;
  POBJ_LIST_ENTRY(struct entry) link;
};
struct root {
  TOID(struct node) tree;
  uint64_t nodes;
  PMEMmutex lock;
  POBJ_LIST_HEAD(entries, struct entry) list;
};

#define CHECK(c)                                                                       \
  do {                                                                                 \
    if (!(c)) {                                                                        \
      fprintf(stderr, "%s:%d: %s (%s; %s)\n", __FILE__, __LINE__, #c, strerror(errno), \
              pmemobj_errormsg());                                                     \
      exit(1);                                                                         \
    }                                                                                  \
  } while (0)

static void insert(PMEMobjpool* pop, TOID(struct root) root, uint64_t key) {
  TX_BEGIN_PARAM(pop, TX_PARAM_MUTEX, &D_RW(root)->lock, TX_PARAM_NONE) {
    TOID(struct node)* at = &D_RW(root)->tree;
    while (!TOID_IS_NULL(*at)) at = &D_RW(*at)->child[key > D_RO(*at)->key];
    TX_ADD_DIRECT(at);
    *at = TX_ZNEW(struct node);
    D_RW(*at)->key = key;
    TX_ADD_FIELD(root, nodes);
    D_RW(root)->nodes += 1;
    if (key % 10 == 0) pmemobj_tx_abort(ECANCELED);
  }
  TX_ONABORT { CHECK(key % 10 == 0); }
  TX_ONCOMMIT { CHECK(key % 10 != 0); }
  TX_END
}

static uint64_t count(TOID(struct node) n, uint64_t least, uint64_t most) {
  if (TOID_IS_NULL(n)) return 0;
  const uint64_t key = D_RO(n)->key;
  CHECK(TOID_VALID(n) && key >= least && key <= most);
  return 1 + count(D_RO(n)->child[0], least, key) + count(D_RO(n)->child[1], key + 1, most);
}

static int number_it(PMEMobjpool* pop, void* object, void* arg) {
  struct entry* e = object;
  e->number = *(const uint64_t*)arg;
  pmemobj_persist(pop, e, sizeof *e);
  return 0;
}

static void check_all(TOID(struct root) root, uint64_t nodes) {
  CHECK(D_RO(root)->nodes == nodes);
  CHECK(count(D_RO(root)->tree, 0, UINT64_MAX) == nodes);
  uint64_t sum = 0;
  TOID(struct entry) e;
  POBJ_LIST_FOREACH(e, &D_RW(root)->list, link) sum = sum * 10 + D_RO(e)->number;
  CHECK(sum == 31245);
}

static int answered_by(const char* path, const char* library) {
  char head[8] = "";
  FILE* f = fopen(path, "rb");
  CHECK(f != NULL && fread(head, 1, sizeof head, f) == sizeof head);
  fclose(f);
  return (memcmp(head, "PMEMOBJ", 8) == 0) == (strcmp(library, "libpmemobj") == 0);
}

int main(int argc, char** argv) {
  CHECK(argc == 3);
  unlink(argv[1]);
  CHECK(pmemobj_check_version(PMEMOBJ_MAJOR_VERSION, PMEMOBJ_MINOR_VERSION) == NULL);
  PMEMobjpool* pop = pmemobj_create(argv[1], POBJ_LAYOUT_NAME(program), PMEMOBJ_MIN_POOL, 0600);
  CHECK(pop != NULL);
  TOID(struct root) root = POBJ_ROOT(pop, struct root);
  uint64_t key = 12345, nodes = 0;
  for (int i = 0; i < 1000; ++i) {
    key = (key * 6364136223846793005u + 1442695040888963407u) >> 8;
    insert(pop, root, key);
    if (key % 10 != 0) nodes += 1;
  }
  for (uint64_t n = 1; n <= 2; ++n) {
    CHECK(!OID_IS_NULL(POBJ_LIST_INSERT_NEW_TAIL(pop, &D_RW(root)->list, link, sizeof(struct entry),
                                                 number_it, &n)));
  }
  uint64_t n = 3;
  POBJ_LIST_INSERT_NEW_HEAD(pop, &D_RW(root)->list, link, sizeof(struct entry), number_it, &n);
  for (n = 4; n <= 5; ++n) {
    TOID(struct entry) e;
    POBJ_NEW(pop, &e, struct entry, number_it, &n);
    CHECK(POBJ_LIST_INSERT_TAIL(pop, &D_RW(root)->list, e, link) == 0);
  }
  check_all(root, nodes);
  pmemobj_close(pop);

  CHECK(pmemobj_check(argv[1], POBJ_LAYOUT_NAME(program)) == 1);
  CHECK(answered_by(argv[1], argv[2]));
  pop = pmemobj_open(argv[1], POBJ_LAYOUT_NAME(program));
  CHECK(pop != NULL);
  root = POBJ_ROOT(pop, struct root);
  check_all(root, nodes);
  uint64_t walked = 0;
  TOID(struct node) node, next;
  POBJ_FOREACH_SAFE_TYPE(pop, node, next) {
    walked += 1;
    POBJ_FREE(&node);
  }
  CHECK(walked == nodes);
  pmemobj_close(pop);
  unlink(argv[1]);
  return 0;
}
