/* Bootstraps: what is refused, who shares a node, the communicators of the axes, and the life of
 * the cache on the user's communicator. On 4 ranks. */
#include "comm/agree.h"
#include "comm/bootstrap.h"
#include "tap_mpi.h"

#include <threads.h>

static dmuon_context context;

static void sum(void *into, const void *from, int64_t bytes, void *unused) {
  (void)bytes, (void)unused;
  *(int64_t *)into += *(const int64_t *)from;
}

static MPI_Comm duplicate_world(void) {
  MPI_Comm comm;
  MPI_Request request;
  MPI_Comm_idup(MPI_COMM_WORLD, &comm, &request);
  tap_mpi_wait(&request);
  return comm;
}

static int works(dmuon_bootstrap *b) {
  int64_t one = 1;
  return !dmuon_agree_reduce(b, "counting", &one, 8, sum, NULL) && one == dmuon_bootstrap_size(b);
}

/* Sum of ranks along an axis, with the ranks in the order of their coordinate. */
static int axis_works(const dmuon_bootstrap *b, DMuonAxis axis, dmuon_role role, int size,
                      int coordinate) {
  MPI_Comm comm = dmuon_bootstrap_comm(b, axis, role);
  if (size == 1) return comm == MPI_COMM_NULL;
  int n, r, total = 0, one = 1;
  if (comm == MPI_COMM_NULL) return 0;
  MPI_Comm_size(comm, &n);
  MPI_Comm_rank(comm, &r);
  MPI_Request request;
  MPI_Iallreduce(&one, &total, 1, MPI_INT, MPI_SUM, comm, &request);
  tap_mpi_wait(&request);
  return n == size && r == coordinate && total == size;
}

static void test_refusals(void) {
  dmuon_bootstrap *b = NULL;
  tap_ok(dmuon_bootstrap_create(&context, MPI_COMM_NULL, 5, &b) == DMUON_ERR_ARGUMENT && !b,
         "MPI_COMM_NULL is refused");
  MPI_Comm half, inter;
  MPI_Comm_split(MPI_COMM_WORLD, tap_rank / 2, tap_rank, &half);
  MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, tap_rank < 2 ? 2 : 0, 5, &inter);
  tap_ok(dmuon_bootstrap_create(&context, inter, 5, &b) == DMUON_ERR_ARGUMENT && !b,
         "an intercommunicator is refused");
  tap_contains(DMuonErrorGetMessage(), "MPI_Intercomm_merge", "with what to do instead");
  MPI_Comm_free(&inter);
  MPI_Comm_free(&half);
  dmuon_bootstrap_destroy(NULL);
  dmuon_bootstrap_destroy(&b);
}

static int check_elsewhere(void *code) {
  *(DMuonErrorCode *)code = dmuon_bootstrap_check_mpi();
  return 0;
}

static void test_thread(void) {
  DMuonErrorCode code = DMUON_SUCCESS;
  int provided;
  thrd_t thread;
  MPI_Query_thread(&provided);
  int right = thrd_create(&thread, check_elsewhere, &code) == thrd_success;
  right = right && thrd_join(thread, NULL) == thrd_success;
  DMuonErrorCode expected = provided < MPI_THREAD_SERIALIZED ? DMUON_ERR_THREAD : DMUON_SUCCESS;
  tap_ok(right && code == expected && !dmuon_bootstrap_check_mpi(),
         "another thread than MPI's main one needs a thread level");
}

static void test_grid(void) {
  dmuon_bootstrap *b = NULL, *half_b = NULL;
  int node[4], map[4], wrong = 0;
  DMuonErrorCode code = dmuon_bootstrap_create(&context, MPI_COMM_WORLD, 60, &b);
  tap_ok(!code && dmuon_bootstrap_rank(b) == tap_rank && dmuon_bootstrap_size(b) == 4, "create");
  tap_ok(!dmuon_bootstrap_nodes(b, node) && !node[0] && !node[1] && !node[2] && !node[3],
         "all ranks share one node");
  static const int bad[4] = {0, 1, 2, 2}, order[4] = {2, 0, 3, 1};
  tap_ok(dmuon_bootstrap_split(b, 2, 2, 1, bad) == DMUON_ERR_SETUP, "an order that is none");
  tap_ok(dmuon_bootstrap_split(b, 2, 3, 1, order) == DMUON_ERR_SETUP, "sizes that do not fit");
  int mine[4] = {2, 0, 3, 1};
  if (tap_rank == 3) mine[0] = 0, mine[1] = 2;
  tap_ok(dmuon_bootstrap_split(b, 2, 2, 1, mine) == DMUON_ERR_DISAGREE, "orders that differ");
  code = dmuon_bootstrap_split(b, 2, 2, 1, order);
  int place = 0;
  while (order[place] != tap_rank) place++;
  for (int role = 0; role < 2; role++) {
    wrong += !axis_works(b, DMUON_AXIS_SHARD, (dmuon_role)role, 2, place % 2);
    wrong += !axis_works(b, DMUON_AXIS_REPLICATE, (dmuon_role)role, 2, place / 2);
  }
  wrong += !axis_works(b, DMUON_AXIS_TP, DMUON_ROLE_FIRST, 1, 0);
  tap_ok(!code && !wrong, "communicators by axis and role, in order of coordinates");
  tap_ok(dmuon_bootstrap_split(b, 2, 2, 1, order) == DMUON_ERR_SETUP, "a second split is refused");

  MPI_Comm half;
  MPI_Comm_split(MPI_COMM_WORLD, tap_rank % 2, -tap_rank, &half);
  code = dmuon_bootstrap_create(&context, half, 60, &half_b);
  if (!code) code = dmuon_bootstrap_translate(half_b, b, map);
  tap_ok(!code && map[0] == tap_rank % 2 + 2 && map[1] == tap_rank % 2, "ranks of a part");
  if (!code) code = dmuon_bootstrap_translate(b, half_b, map);
  for (int i = 0, inside; i < 4 && !code; i++) {
    inside = i % 2 == tap_rank % 2;
    wrong += map[i] != (inside ? 1 - i / 2 : -1);
  }
  tap_ok(!code && !wrong, "and -1 outside it");
  dmuon_bootstrap_destroy(&half_b);
  MPI_Comm_free(&half);
  dmuon_bootstrap_destroy(&b);
}

static void test_cache(void) {
  MPI_Comm user = duplicate_world();
  static const int order[4] = {0, 1, 2, 3};
  dmuon_bootstrap *a = NULL, *b = NULL, *c = NULL;
  int wrong = 0;
  DMuonErrorCode code = dmuon_bootstrap_create(&context, user, 60, &a);
  if (!code) code = dmuon_bootstrap_create(&context, user, 60, &b);
  if (!code) code = dmuon_bootstrap_split(a, 2, 2, 1, order);
  if (!code) code = dmuon_bootstrap_split(b, 2, 2, 1, order);
  MPI_Comm first = code ? MPI_COMM_NULL : dmuon_bootstrap_comm(a, DMUON_AXIS_SHARD, 0);
  for (int i = 0; i < 4; i++)
    wrong +=
        dmuon_bootstrap_comm(b, i % 2 ? DMUON_AXIS_SHARD : DMUON_AXIS_REPLICATE, i / 2) == first;
  tap_ok(!code && !wrong, "two live meshes share no communicator");

  int64_t fresh_calls = code ? 0 : dmuon_bootstrap_mpi_calls(a);
  dmuon_bootstrap_destroy(&a);
  code = dmuon_bootstrap_create(&context, user, 60, &a);
  if (!code) code = dmuon_bootstrap_split(a, 2, 2, 1, order);
  tap_ok(!code && dmuon_bootstrap_comm(a, DMUON_AXIS_SHARD, 0) == first &&
             dmuon_bootstrap_mpi_calls(a) < fresh_calls,
         "after a mesh is destroyed the next one gets its communicators, for fewer calls");

  /* Here a is free, there b: neither can be taken. */
  dmuon_bootstrap_destroy(tap_rank % 2 ? &a : &b);
  code = dmuon_bootstrap_create(&context, user, 60, &c);
  int usable = !code && works(c);
  tap_ok(usable, "what is free on some ranks only is taken by nobody");
  dmuon_bootstrap_destroy(tap_rank % 2 ? &b : &a);
  dmuon_bootstrap_destroy(&c);
  for (int i = 0; i < 3 && !code; i++) {
    dmuon_bootstrap **slot = i == 0 ? &a : i == 1 ? &b : &c;
    code = dmuon_bootstrap_create(&context, user, 60, slot);
    if (!code && !works(*slot)) code = DMUON_ERR_INTERNAL;
  }
  tap_ok(!code, "destroyed in another order on every rank, all three serve again");

  MPI_Comm_free(&user);
  tap_ok(works(a) && works(b) && works(c), "meshes work on when the user frees his communicator");
  dmuon_bootstrap_destroy(&b);
  tap_ok(works(a) && works(c), "and when one of them goes");
  dmuon_bootstrap_destroy(&a);
  dmuon_bootstrap_destroy(&c);
}

static void test_many(void) {
  static const int order[4] = {0, 1, 2, 3}, swapped[4] = {1, 0, 3, 2};
  int64_t calls = -1, wrong = 0;
  DMuonErrorCode code = DMUON_SUCCESS;
  for (int i = 0; i < 2000 && !code; i++) {
    dmuon_bootstrap *b = NULL;
    code = dmuon_bootstrap_create(&context, MPI_COMM_WORLD, 60, &b);
    int kind = i / 500; /* another split each 500, and in the end each time */
    if (i >= 1980) kind = i % 4;
    if (!code && kind == 0) code = dmuon_bootstrap_split(b, 2, 2, 1, order);
    if (!code && kind == 1) code = dmuon_bootstrap_split(b, 1, 4, 1, order);
    if (!code && kind == 2) code = dmuon_bootstrap_split(b, 4, 1, 1, swapped);
    if (!code && kind == 3) code = dmuon_bootstrap_split(b, 1, 2, 2, order);
    if (i == 10) calls = dmuon_bootstrap_mpi_calls(b);
    if (i > 10 && i < 400) wrong += dmuon_bootstrap_mpi_calls(b) != calls;
    dmuon_bootstrap_destroy(&b);
  }
  if (code) tap_diag("%s", DMuonErrorGetMessage());
  tap_ok(!code, "2,000 meshes one after another, of changing sizes");
  tap_is_int(wrong, 0, "each costs the same number of calls");
  for (int i = 0; i < 40 && !code; i++) { /* on communicators of the user that come and go */
    MPI_Comm user = duplicate_world();
    dmuon_bootstrap *b = NULL;
    code = dmuon_bootstrap_create(&context, user, 60, &b);
    if (!code && i < 5) code = dmuon_bootstrap_split(b, 2, 2, 1, order);
    if (i % 2) dmuon_bootstrap_destroy(&b);
    MPI_Comm_free(&user);
    dmuon_bootstrap_destroy(&b);
  }
  tap_ok(!code, "meshes on communicators that come and go");
}

static void test_broken(void) {
  dmuon_bootstrap *b = NULL;
  DMuonErrorCode code = dmuon_bootstrap_create(&context, MPI_COMM_WORLD, 60, &b);
  tap_ok(!code && !dmuon_bootstrap_check(b), "a good one");
  if (code) return;
  (void)DMUON_ERROR(DMUON_ERR_COMM, "the network is gone");
  dmuon_bootstrap_break(b, DMUON_ERR_COMM);
  DMuonErrorClear();
  int64_t x = 0;
  tap_ok(dmuon_bootstrap_check(b) == DMUON_ERR_COMM &&
             dmuon_agree_reduce(b, "x", &x, 8, sum, NULL) == DMUON_ERR_COMM &&
             strstr(DMuonErrorGetMessage(), "the network is gone"),
         "a broken one says at once why");
  dmuon_bootstrap_destroy(&b);
  code = dmuon_bootstrap_create(&context, MPI_COMM_WORLD, 60, &b);
  tap_ok(!code && works(b), "the next mesh is a good one");
  dmuon_bootstrap_destroy(&b);
}

int main(int argc, char **argv) {
  dmuon_bootstrap *b = NULL;
  dmuon_context_init(&context);
  DMuonErrorCode early = dmuon_bootstrap_create(&context, MPI_COMM_WORLD, 5, &b);
  tap_mpi_init(&argc, &argv);
  tap_ok(early == DMUON_ERR_STATE && !b, "before MPI_Init it is refused");
  if (tap_size != 4) return tap_mpi_done();
  test_refusals();
  test_thread();
  test_grid();
  test_cache();
  test_many();
  test_broken();
  dmuon_bootstrap *last = NULL;
  DMuonErrorCode code = dmuon_bootstrap_create(&context, MPI_COMM_WORLD, 60, &last);
  tap_ok(!code, "one more, to be destroyed after MPI_Finalize");
  int status = tap_mpi_done();
  dmuon_bootstrap_destroy(&last);
  if (dmuon_bootstrap_check_mpi() != DMUON_ERR_STATE) status = 1;
  dmuon_context_free(&context);
  return status;
}
