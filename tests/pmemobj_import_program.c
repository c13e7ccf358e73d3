/* Makes a pool for tests/pmemobj_import_test.py, and checks it after it was imported: a list that
 * is reached by OIDs, one of them into the middle of an object, one by a bare offset, and strings.
 */
#include <libpmemobj.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kNodes = 200, kNodeType = 5, kTextType = 6 };

struct node {
  uint64_t number;
  PMEMoid next;
  PMEMoid text;
  PMEMoid next_number; /* of the next node */
  uint64_t text_offset;
};
struct root {
  PMEMoid first;
  PMEMoid null_with_uuid;
  PMEMmutex lock;
};

#define CHECK(c)                                                                       \
  do {                                                                                 \
    if (!(c)) {                                                                        \
      fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #c, pmemobj_errormsg()); \
      exit(1);                                                                         \
    }                                                                                  \
  } while (0)

static void make(const char* path) {
  PMEMobjpool* pop = pmemobj_create(path, "import", PMEMOBJ_MIN_POOL, 0600);
  CHECK(pop != NULL);
  struct root* root = pmemobj_direct(pmemobj_root(pop, sizeof *root));
  for (uint64_t n = 0; n < kNodes; ++n) {
    char text[64];
    snprintf(text, sizeof text, "node %llu", (unsigned long long)n);
    PMEMoid oid;
    CHECK(pmemobj_zalloc(pop, &oid, sizeof(struct node), kNodeType) == 0);
    struct node* node = pmemobj_direct(oid);
    node->number = n;
    node->next = root->first;
    node->next_number = node->next;
    CHECK(pmemobj_strdup(pop, &node->text, text, kTextType) == 0);
    node->text_offset = node->text.off;
    pmemobj_persist(pop, node, sizeof *node);
    root->first = oid;
    pmemobj_persist(pop, root, sizeof *root);
  }
  root->null_with_uuid.pool_uuid_lo = root->first.pool_uuid_lo;
  pmemobj_persist(pop, root, sizeof *root);
  CHECK(pmemobj_mutex_lock(pop, &root->lock) == 0);
  pmemobj_close(pop);
}

static void check(const char* path) {
  PMEMobjpool* pop = pmemobj_open(path, "import");
  CHECK(pop != NULL);
  CHECK(pmemobj_root_size(pop) == sizeof(struct root));
  struct root* root = pmemobj_direct(pmemobj_root(pop, sizeof *root));
  CHECK(pmemobj_mutex_trylock(pop, &root->lock) == 0);
  CHECK(OID_IS_NULL(root->null_with_uuid));
  CHECK(root->null_with_uuid.pool_uuid_lo == root->first.pool_uuid_lo);
  uint64_t n = kNodes;
  for (PMEMoid oid = root->first; !OID_IS_NULL(oid); --n) {
    const struct node* node = pmemobj_direct(oid);
    char text[64];
    snprintf(text, sizeof text, "node %llu", (unsigned long long)(n - 1));
    CHECK(pmemobj_type_num(oid) == kNodeType && node->number == n - 1);
    CHECK(pmemobj_type_num(node->text) == kTextType);
    CHECK(strcmp(pmemobj_direct(node->text), text) == 0);
    CHECK(node->text_offset == node->text.off);
    if (n > 1) CHECK(*(uint64_t*)pmemobj_direct(node->next_number) == n - 2);
    oid = node->next;
  }
  CHECK(n == 0);
  for (PMEMoid oid = pmemobj_first(pop); !OID_IS_NULL(oid); oid = pmemobj_next(oid)) n += 1;
  CHECK(n == 2 * kNodes);
  pmemobj_close(pop);
}

int main(int argc, char** argv) {
  CHECK(argc == 3);
  (strcmp(argv[1], "make") == 0 ? make : check)(argv[2]);
  return 0;
}
