/* Lists of ranks packed, merged and judged: who differs about what is named. No ranks needed. */
#include "model/list.h"

#include "model/rules.h"
#include "tap.h"

static dmuon_memory memory;

/* A rank's list on a mesh of `size` ranks, with parameters "a", "b", ... as letters say. */
static dmuon_list make(int rank, int size, const char *letters) {
  dmuon_list list;
  dmuon_list_init(&list, &memory);
  int ranks[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  dmuon_rank_range me = {rank, rank};
  dmuon_list_add_mesh(&list, &(dmuon_list_mesh){.name = (char *)(uintptr_t) "all",
                                                .sizes = {1, size, 1},
                                                .size = size,
                                                .ranks = ranks,
                                                .holders = {1, &me}});
  for (int i = 0; letters[i]; i++) {
    char name[2] = {letters[i], 0};
    int64_t blocks[2] = {4, 4};
    dmuon_list_param entry = {.param = {.name = name,
                                        .ndim = 2,
                                        .dims = {8, 6},
                                        .numel = 48,
                                        .batch = 1,
                                        .nrow = 1,
                                        .rows = 8,
                                        .cols = 6,
                                        .nblocks = 2,
                                        .blocks = blocks,
                                        .repeat = 1,
                                        .route_reason = (char *)(uintptr_t) "test",
                                        .group = (char *)(uintptr_t) "g"},
                              .ordinal = i,
                              .other_rank = -1,
                              .holders = {1, &me}};
    dmuon_list_add_param(&list, &entry);
  }
  return list;
}

/* As the ranks do it: packed, merged, unpacked. */
static DMuonErrorCode merge(dmuon_list *a, dmuon_list *b) {
  void *data[3] = {0};
  int64_t bytes[3] = {0};
  DMuonErrorCode code = dmuon_list_pack(a, &data[0], &bytes[0]);
  if (!code) code = dmuon_list_pack(b, &data[1], &bytes[1]);
  if (!code)
    code = dmuon_list_merge_packed(&memory, data[0], bytes[0], data[1], bytes[1], &data[2],
                                   &bytes[2], NULL);
  dmuon_list_free(b);
  if (!code) {
    dmuon_list_free(a);
    code = dmuon_list_unpack(a, &memory, data[2], bytes[2]);
  }
  for (int i = 0; i < 3; i++) dmuon_memory_free(data[i]);
  return code;
}

static void same_on_all(void) {
  dmuon_list list = make(0, 4, "abc");
  DMuonErrorCode code = DMUON_SUCCESS;
  for (int r = 1; r < 4 && !code; r++) {
    dmuon_list next = make(r, 4, "abc");
    code = merge(&list, &next);
  }
  tap_is_int(code, DMUON_SUCCESS, "four equal lists merge");
  tap_is_int(list.param_count, 3, "into one");
  tap_is_int(list.mesh_count, 1, "on one mesh");
  tap_ok(list.params[1].holders.count == 1 && list.params[1].holders.ranges[0].last == 3,
         "whose holders are one range");
  tap_ok(list.params[2].param.blocks[1] == 4 && list.params[2].param.dims[1] == 6,
         "and nothing is lost on the way");
  tap_is_int(dmuon_list_check(&list, NULL), DMUON_SUCCESS, "and is whole");
  dmuon_list_free(&list);
}

static void missing_and_order(void) {
  dmuon_list a = make(0, 3, "abc"), b = make(1, 3, "ac"), c = make(2, 3, "abc");
  tap_is_int(merge(&a, &b), DMUON_SUCCESS, "a missing name merges");
  tap_is_int(merge(&a, &c), DMUON_SUCCESS, "with more");
  tap_is_int(dmuon_list_check(&a, NULL), DMUON_ERR_DISAGREE, "and is found at the end");
  tap_contains(DMuonErrorGetMessage(), "b: registered on rank 0, missing on rank 1",
               "before the order that it shifts");
  dmuon_list_free(&a);

  a = make(0, 2, "ab"), b = make(1, 2, "bax");
  tap_is_int(merge(&a, &b), DMUON_SUCCESS, "an extra name merges");
  tap_is_int(dmuon_list_check(&a, NULL), DMUON_ERR_DISAGREE, "and is found");
  tap_contains(DMuonErrorGetMessage(), "x: registered on rank 1, missing on rank 0", "and named");
  dmuon_list_free(&a);

  a = make(0, 3, "abc"), b = make(1, 3, "abc"), c = make(2, 3, "acb");
  tap_is_int(merge(&a, &b), DMUON_SUCCESS, "another order merges");
  tap_is_int(merge(&a, &c), DMUON_SUCCESS, "with more");
  tap_is_int(dmuon_list_check(&a, NULL), DMUON_ERR_DISAGREE, "and is found");
  tap_contains(DMuonErrorGetMessage(),
               "b: order of registration: number 1 of its mesh on rank 0, "
               "number 2 on rank 2",
               "with both numbers");
  dmuon_list_free(&a);
}

/* What ranks 0 and 5 say of "b" differs in one field. */
#define DIFFERS(field, value, words)                                            \
  do {                                                                          \
    dmuon_list a = make(0, 8, "ab"), b = make(5, 8, "ab");                      \
    b.params[1].field = (value);                                                \
    tap_is_int(merge(&a, &b), DMUON_ERR_DISAGREE, "another " #field);           \
    tap_contains(DMuonErrorGetMessage(), "b: " words " on rank 5", "is named"); \
    dmuon_list_free(&a);                                                        \
  } while (0)

static void values(void) {
  DIFFERS(param.dims[0], 6, "shape 8x6 on rank 0, 6x6");
  DIFFERS(param.ndim, 1, "shape 8x6 on rank 0, 8");
  DIFFERS(param.dtype, DMUON_BFLOAT16, "dtype fp32 on rank 0, bf16");
  DIFFERS(param.grad_dtype, DMUON_BFLOAT16, "grad dtype fp32 on rank 0, bf16");
  DIFFERS(param.master_dtype, DMUON_FLOAT64, "master dtype fp32 on rank 0, fp64");
  DIFFERS(param.state_dtype, DMUON_FLOAT64, "state dtype fp32 on rank 0, fp64");
  DIFFERS(param.route, DMUON_ROUTE_ADAMW, "route muon (test) on rank 0, adamw (test)");
  DIFFERS(param.output, DMUON_COLS, "output side rows on rank 0, cols");
  DIFFERS(param.group[0], 'h', "group \"g\" on rank 0, \"h\"");
  DIFFERS(param.blocks[1], 3, "matrix view 8x6, blocks 1x(4,4) on rank 0, 8x6, blocks 1x(4,3)");
  DIFFERS(param.nblocks, 0, "matrix view 8x6, blocks 1x(4,4) on rank 0, 8x6");
  DIFFERS(param.nrow, 2, "matrix view 0 batch, 1 row dims on rank 0, 0 batch, 2 row dims");
  DIFFERS(param.is_lent, 1, "registered with arrays on rank 0, no arrays");
  DIFFERS(param.reshard, DMUON_Z2, "its group is z3 on rank 0, z2");
}

/* Two stages of two ranks; "a" on all, its losses on the stage; "s", "t" on one stage each. */
static dmuon_list stage(int rank, const char *own, int size, int losses_size) {
  dmuon_list list = make(rank, 4, "a");
  int first = rank / 2 * 2, ranks[] = {first, first + 1, 0, 0};
  dmuon_rank_range me = {rank, rank};
  dmuon_list_add_mesh(&list, &(dmuon_list_mesh){.name = (char *)(uintptr_t) "stage",
                                                .sizes = {1, size, 1},
                                                .size = size,
                                                .ranks = ranks,
                                                .holders = {1, &me}});
  list.params[0].param.losses = losses_size == 4 ? 0 : 1;
  dmuon_list_param entry = list.params[0];
  entry.param.name = (char *)(uintptr_t)own;
  entry.param.mesh = entry.param.losses = 1;
  dmuon_list_add_param(&list, &entry);
  return list;
}

static void meshes(void) {
  dmuon_list a = stage(0, "s", 2, 2);
  DMuonErrorCode code = DMUON_SUCCESS;
  for (int r = 1; r < 4 && !code; r++) {
    dmuon_list b = stage(r, r < 2 ? "s" : "t", 2, 2);
    code = merge(&a, &b);
  }
  tap_is_int(code, DMUON_SUCCESS, "two stages merge");
  tap_is_int(a.mesh_count, 3, "into three meshes");
  tap_is_int(a.param_count, 3, "and three parameters");
  tap_is_string(a.params[2].param.name, "t", "ranks in order");
  tap_ok(a.params[1].param.mesh == 1 && a.params[2].param.mesh == 2, "each on its mesh");
  tap_is_int(dmuon_list_check(&a, NULL), DMUON_SUCCESS, "and whole");
  dmuon_list_free(&a);

  a = stage(0, "s", 2, 2);
  dmuon_list b = stage(2, "s", 2, 2);
  tap_is_int(merge(&a, &b), DMUON_ERR_DISAGREE, "one name on two meshes");
  tap_contains(
      DMuonErrorGetMessage(),
      "s: copies on mesh \"stage\" (1x2x1 on ranks 0, 1) on rank 0, mesh \"stage\" (1x2x1 on "
      "ranks 2, 3) on rank 2",
      "is named with both");
  dmuon_list_free(&a);

  a = stage(0, "s", 2, 2), b = stage(2, "t", 2, 4);
  tap_is_int(merge(&a, &b), DMUON_ERR_DISAGREE, "another divisor");
  tap_contains(DMuonErrorGetMessage(), "2 on rank 0, 4 on rank 2", "is named with both values");
  dmuon_list_free(&a);
}

static void patterns(void) {
  dmuon_list a = make(0, 2, "ab"), b = make(1, 2, "ab");
  dmuon_list_add_pattern(&a, &(dmuon_list_pattern){DMUON_RULE_ROUTE, 0, (char *)(uintptr_t) "x*"});
  dmuon_list_add_pattern(&b, &(dmuon_list_pattern){DMUON_RULE_ROUTE, 1, (char *)(uintptr_t) "x*"});
  dmuon_list_add_pattern(&b, &(dmuon_list_pattern){DMUON_RULE_GROUP, 0, (char *)(uintptr_t) "y*"});
  tap_is_int(merge(&a, &b), DMUON_SUCCESS, "patterns merge");
  tap_is_int(a.pattern_count, 2, "each once");
  tap_is_int(dmuon_list_check(&a, NULL), DMUON_ERR_SETUP, "one matches nowhere");
  tap_contains(DMuonErrorGetMessage(), "pattern \"y*\" of DMuonModelSetGroup", "and is named");
  dmuon_list_free(&a);
}

static void broken(void) {
  dmuon_list list = make(0, 2, "ab"), back;
  void *data = NULL;
  int64_t bytes = 0;
  int wrong = 0;
  dmuon_list_pack(&list, &data, &bytes);
  for (int64_t cut = 0; cut < bytes; cut++)
    if (dmuon_list_unpack(&back, &memory, data, cut) == DMUON_SUCCESS) {
      wrong++;
      dmuon_list_free(&back);
    }
  tap_is_int(wrong, 0, "a list cut short anywhere is refused");
  /* Every allocation fails once. */
  int failures = 0;
  for (int k = 1; k < 1000; k++) {
    void *out = NULL;
    int64_t out_bytes = 0;
    memory.fail_at = memory.allocations + k;
    DMuonErrorCode code =
        dmuon_list_merge_packed(&memory, data, bytes, data, bytes, &out, &out_bytes, NULL);
    memory.fail_at = 0;
    dmuon_memory_free(out);
    if (!code) break;
    failures += code == DMUON_ERR_MEMORY;
    wrong += code != DMUON_ERR_MEMORY || out != NULL;
  }
  tap_ok(failures > 10 && !wrong, "%d failed allocations, each reported", failures);
  dmuon_memory_free(data);
  dmuon_list_free(&list);
}

int main(void) {
  tap_plan(0);
  same_on_all();
  missing_and_order();
  values();
  meshes();
  patterns();
  broken();
  tap_is_int(memory.bytes, 0, "nothing is left allocated");
  return tap_done();
}
