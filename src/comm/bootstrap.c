/* The bootstrap: checks of MPI, the duplicate it works on, the nodes, and the split by axis. Which
 * duplicate it gets is bootstrap_cache.c's decision; which rank stands where is the mesh's. */
#include "comm/bootstrap_private.h"

#include "base/hash.h"

DMuonErrorCode dmuon_bootstrap_check_mpi(void) {
  int initialized = 0, finalized = 0, provided = MPI_THREAD_SINGLE, main_thread = 1;
  MPI_Initialized(&initialized);
  if (!initialized) DMUON_FAIL(DMUON_ERR_STATE, "MPI is not initialised: call MPI_Init first");
  MPI_Finalized(&finalized);
  if (finalized) DMUON_FAIL(DMUON_ERR_STATE, "MPI is finalised: no mesh can be used any more");
  MPI_Query_thread(&provided);
  MPI_Is_thread_main(&main_thread);
  if (!main_thread && provided < MPI_THREAD_SERIALIZED)
    DMUON_FAIL(DMUON_ERR_THREAD,
               "called from another thread than MPI's main one, with a thread level below "
               "MPI_THREAD_SERIALIZED: initialise MPI with MPI_Init_thread(MPI_THREAD_SERIALIZED)");
  return DMUON_SUCCESS;
}

static void listen(void *bootstrap) {
  dmuon_link_listen(&((dmuon_bootstrap *)bootstrap)->link);
}

DMuonErrorCode dmuon_bootstrap_create(dmuon_context *context, MPI_Comm user, double timeout,
                                      dmuon_bootstrap **out) {
  int inter = 0;
  DMUON_TRY(dmuon_bootstrap_check_mpi());
  if (user == MPI_COMM_NULL)
    DMUON_FAIL(DMUON_ERR_ARGUMENT,
               "communicator is MPI_COMM_NULL: a rank outside it makes no mesh");
  DMUON_TRY(dmuon_link_mpi(MPI_Comm_test_inter(user, &inter), "MPI_Comm_test_inter"));
  if (inter)
    DMUON_FAIL(DMUON_ERR_ARGUMENT,
               "communicator is an intercommunicator: merge it (MPI_Intercomm_merge) first");

  int64_t calls = 5;
  dmuon_cache *cache;
  dmuon_cache_entry *entry;
  dmuon_bootstrap *bootstrap = NULL;
  DMUON_TRY(dmuon_cache_find(user, timeout, &cache, &calls));
  DMuonErrorCode code = dmuon_memory_alloc(&context->memory, 1, sizeof *bootstrap, &bootstrap);
  code = dmuon_cache_take(cache, code, &entry, &calls);
  if (code) {
    dmuon_memory_free(bootstrap);
    return code;
  }
  bootstrap->context = context;
  bootstrap->cache = cache;
  bootstrap->entry = entry;
  code = dmuon_link_open(&bootstrap->link, &context->memory, entry->base, timeout);
  if (!code && !entry->bell.is_open) calls += 3;
  if (!code) code = dmuon_bell_open(&entry->bell, &cache->memory, entry->base);
  bootstrap->link.bell = &entry->bell;
  bootstrap->listener = (dmuon_listener){NULL, listen, bootstrap};
  if (!code) code = dmuon_process_add_listener(&bootstrap->listener);
  int64_t before = cache->link.mpi_calls;
  code = dmuon_link_agree_error(&cache->link, "creating a mesh", code, DMUON_ERR_SETUP);
  bootstrap->mpi_calls = calls + bootstrap->link.mpi_calls + cache->link.mpi_calls - before;
  if (code) {
    dmuon_bootstrap_destroy(&bootstrap);
    return code;
  }
  *out = bootstrap;
  return DMUON_SUCCESS;
}

void dmuon_bootstrap_destroy(dmuon_bootstrap **pointer) {
  if (!pointer || !*pointer) return;
  dmuon_bootstrap *bootstrap = *pointer;
  *pointer = NULL;
  int finalized = 1;
  MPI_Finalized(&finalized);
  dmuon_process_remove_listener(&bootstrap->listener);
  bootstrap->link.on_break = NULL;
  if (!finalized) dmuon_link_listen(&bootstrap->link); /* a broken one is not used again */
  dmuon_cache_release(bootstrap->cache, bootstrap->entry, bootstrap->link.broken != 0);
  dmuon_link_close(&bootstrap->link);
  dmuon_memory_free(bootstrap);
}

int dmuon_bootstrap_rank(const dmuon_bootstrap *bootstrap) {
  return bootstrap ? bootstrap->link.rank : 0;
}

int dmuon_bootstrap_size(const dmuon_bootstrap *bootstrap) {
  return bootstrap ? bootstrap->link.size : 1;
}

void dmuon_bootstrap_set_timeout(dmuon_bootstrap *bootstrap, double seconds) {
  bootstrap->link.timeout = seconds;
}

double dmuon_bootstrap_timeout(const dmuon_bootstrap *bootstrap) {
  return bootstrap->link.timeout;
}

void dmuon_bootstrap_set_progress(dmuon_bootstrap *bootstrap, DMuonErrorCode (*progress)(void *),
                                  void *argument) {
  bootstrap->link.progress = progress;
  bootstrap->link.progress_argument = argument;
}

void dmuon_bootstrap_break(dmuon_bootstrap *bootstrap, DMuonErrorCode code) {
  dmuon_link_break(&bootstrap->link, code);
}

void dmuon_bootstrap_set_name(dmuon_bootstrap *bootstrap, const char *name) {
  bootstrap->link.name = name;
}

void dmuon_bootstrap_on_break(dmuon_bootstrap *bootstrap,
                              void (*on_break)(void *argument, DMuonErrorCode code),
                              void *argument) {
  bootstrap->link.on_break = on_break;
  bootstrap->link.on_break_argument = argument;
}

DMuonErrorCode dmuon_bootstrap_revoke(dmuon_bootstrap *bootstrap, const char *reason) {
  dmuon_link *link = &bootstrap->link;
  dmuon_link_listen(link);
  dmuon_link_revoke(link, link->rank, reason, 1);
  return dmuon_link_check(link);
}

DMuonErrorCode dmuon_bootstrap_listen(dmuon_bootstrap *bootstrap) {
  dmuon_link_listen(&bootstrap->link);
  return dmuon_link_check(&bootstrap->link);
}

DMuonErrorCode dmuon_bootstrap_check(const dmuon_bootstrap *bootstrap) {
  return dmuon_link_check(&bootstrap->link);
}

int64_t dmuon_bootstrap_mpi_calls(const dmuon_bootstrap *bootstrap) {
  return bootstrap->mpi_calls;
}

/* Each rank filled in its own place; the others hold zero. */
static void add_ints(void *into, const void *from, int64_t bytes, void *context) {
  (void)context;
  int *a = into;
  const int *b = from;
  for (int64_t i = 0; i < bytes / (int64_t)sizeof *a; i++) a[i] += b[i];
}

/* The lowest rank that shares memory with this one. Blocking calls: every rank is known to be here.
 */
static DMuonErrorCode find_node(dmuon_bootstrap *bootstrap, int *lowest) {
  MPI_Comm base = bootstrap->entry->base, shared = MPI_COMM_NULL;
  MPI_Group all = MPI_GROUP_NULL, near = MPI_GROUP_NULL;
  int first = 0;
  bootstrap->mpi_calls += 5;
  DMUON_TRY(dmuon_link_mpi(
      MPI_Comm_split_type(base, MPI_COMM_TYPE_SHARED, bootstrap->link.rank, MPI_INFO_NULL, &shared),
      "MPI_Comm_split_type"));
  DMuonErrorCode code = dmuon_link_mpi(MPI_Comm_group(base, &all), "MPI_Comm_group");
  if (!code) code = dmuon_link_mpi(MPI_Comm_group(shared, &near), "MPI_Comm_group");
  if (!code)
    code = dmuon_link_mpi(MPI_Group_translate_ranks(near, 1, &first, all, lowest),
                          "MPI_Group_translate_ranks");
  if (near != MPI_GROUP_NULL) MPI_Group_free(&near);
  if (all != MPI_GROUP_NULL) MPI_Group_free(&all);
  MPI_Comm_free(&shared);
  return code;
}

DMuonErrorCode dmuon_bootstrap_nodes(dmuon_bootstrap *bootstrap, int *node) {
  const char *what = "finding the nodes";
  dmuon_link *link = &bootstrap->link;
  dmuon_cache_entry *entry = bootstrap->entry;
  DMUON_TRY(dmuon_link_check(link));
  int64_t before = link->mpi_calls;
  int *found = NULL, lowest = 0;
  /* Found once for an entry; whether it was is the same on all ranks. */
  if (!entry->node) {
    DMuonErrorCode code =
        dmuon_memory_alloc(&bootstrap->cache->memory, link->size, sizeof *found, &found);
    code = dmuon_link_agree_error(link, what, code, DMUON_ERR_SETUP);
    if (!code) {
      code = find_node(bootstrap, &lowest);
      if (!code) found[link->rank] = lowest;
      code = dmuon_link_agree_error(link, what, code, DMUON_ERR_SETUP);
    }
    if (!code)
      code =
          dmuon_link_reduce(link, what, found, link->size * (int64_t)sizeof *found, add_ints, NULL);
    bootstrap->mpi_calls += link->mpi_calls - before;
    if (code) {
      dmuon_memory_free(found);
      return code;
    }
    entry->node = found;
  }
  for (int i = 0; i < link->size; i++) node[i] = entry->node[i];
  return DMUON_SUCCESS;
}

typedef struct {
  uint64_t low, high; /* of the hashes of the grids asked for */
  int32_t is_split;   /* every rank has this grid's communicators already */
  int32_t padding;
} split_vote;

static void combine_votes(void *into, const void *from, int64_t bytes, void *context) {
  (void)bytes, (void)context;
  split_vote *a = into;
  const split_vote *b = from;
  if (b->low < a->low) a->low = b->low;
  if (b->high > a->high) a->high = b->high;
  if (!b->is_split) a->is_split = 0;
}

/* coords[axis] of this rank; every rank must stand in exactly one place. */
static DMuonErrorCode find_place(const dmuon_bootstrap *bootstrap, const int sizes[3],
                                 const int *rank_at, int coords[3]) {
  int size = bootstrap->link.size, place = -1;
  int64_t ranks = (int64_t)sizes[0] * sizes[1] * sizes[2];
  if (sizes[0] < 1 || sizes[1] < 1 || sizes[2] < 1 || ranks != size)
    DMUON_FAIL(DMUON_ERR_SETUP, "a mesh of %d x %d x %d does not hold %d ranks", sizes[0], sizes[1],
               sizes[2], size);
  unsigned char *seen;
  DMUON_TRY(dmuon_memory_alloc(&bootstrap->context->memory, size, 1, &seen));
  DMuonErrorCode code = DMUON_SUCCESS;
  for (int i = 0; i < size && !code; i++) {
    if (rank_at[i] < 0 || rank_at[i] >= size || seen[rank_at[i]]) {
      code =
          DMUON_ERROR(DMUON_ERR_SETUP, "rank %d at place %d of the mesh is out of [0,%d) or twice",
                      rank_at[i], i, size);
    } else {
      seen[rank_at[i]] = 1;
      if (rank_at[i] == bootstrap->link.rank) place = i;
    }
  }
  dmuon_memory_free(seen);
  coords[2] = place % sizes[2];
  coords[1] = place / sizes[2] % sizes[1];
  coords[0] = place / sizes[2] / sizes[1];
  return code;
}

static DMuonErrorCode split_axis(dmuon_bootstrap *bootstrap, int axis, const int sizes[3],
                                 const int coords[3]) {
  MPI_Comm *comm = bootstrap->entry->axis[axis];
  int one = axis == 0 ? 1 : 0, two = axis == 2 ? 1 : 2;
  int color = coords[one] * sizes[two] + coords[two];
  bootstrap->mpi_calls += 2;
  DMUON_TRY(dmuon_link_mpi(MPI_Comm_split(bootstrap->entry->base, color, coords[axis], &comm[0]),
                           "MPI_Comm_split"));
  DMUON_TRY(dmuon_link_mpi(MPI_Comm_set_errhandler(comm[0], MPI_ERRORS_RETURN),
                           "MPI_Comm_set_errhandler"));
  if (axis == DMUON_AXIS_TP) return DMUON_SUCCESS; /* one role */
  bootstrap->mpi_calls += 2;
  DMUON_TRY(dmuon_cache_duplicate(comm[0], bootstrap->link.timeout, &comm[1]));
  return dmuon_link_mpi(MPI_Comm_set_errhandler(comm[1], MPI_ERRORS_RETURN),
                        "MPI_Comm_set_errhandler");
}

DMuonErrorCode dmuon_bootstrap_split(dmuon_bootstrap *bootstrap, int replicate, int shard, int tp,
                                     const int *rank_at) {
  const char *what = "making the communicators of the mesh";
  dmuon_link *link = &bootstrap->link;
  dmuon_cache_entry *entry = bootstrap->entry;
  int sizes[3] = {replicate, shard, tp}, coords[3] = {0, 0, 0};
  DMUON_TRY(dmuon_link_check(link));
  int64_t before = link->mpi_calls;
  DMuonErrorCode code = bootstrap->is_split
                            ? DMUON_ERROR(DMUON_ERR_SETUP, "the mesh is split already")
                            : find_place(bootstrap, sizes, rank_at, coords);
  DMUON_TRY(dmuon_link_agree_error(link, what, code, DMUON_ERR_SETUP));

  uint64_t hash = dmuon_hash_bytes(DMUON_HASH_SEED, sizes, sizeof sizes);
  hash = dmuon_hash_bytes(hash, rank_at, sizeof *rank_at * (size_t)link->size);
  split_vote vote = {hash, hash, entry->is_split && entry->split_hash == hash, 0};
  DMUON_TRY(dmuon_link_reduce(link, what, &vote, sizeof vote, combine_votes, NULL));
  bootstrap->mpi_calls += link->mpi_calls - before;
  if (vote.low != vote.high)
    DMUON_FAIL(DMUON_ERR_DISAGREE, "ranks differ in sizes or order of the mesh; here %d x %d x %d",
               replicate, shard, tp);
  if (!vote.is_split) {
    dmuon_cache_unsplit(entry);
    for (int axis = 0; axis < 3 && !code; axis++)
      if (sizes[axis] > 1) code = split_axis(bootstrap, axis, sizes, coords);
    if (code) {
      dmuon_link_break(link, code);
      return code;
    }
    entry->is_split = 1;
    entry->split_hash = hash;
  }
  bootstrap->is_split = 1;
  for (int axis = 0; axis < 3; axis++) bootstrap->sizes[axis] = sizes[axis];
  return DMUON_SUCCESS;
}

MPI_Comm dmuon_bootstrap_comm(const dmuon_bootstrap *bootstrap, DMuonAxis axis, dmuon_role role) {
  if (!bootstrap->is_split || axis > DMUON_AXIS_TP) return MPI_COMM_NULL;
  return bootstrap->entry->axis[axis][role];
}

DMuonErrorCode dmuon_bootstrap_translate(const dmuon_bootstrap *inner, const dmuon_bootstrap *outer,
                                         int *inner_to_outer) {
  int size = inner->link.size, *ranks = NULL;
  MPI_Group from = MPI_GROUP_NULL, to = MPI_GROUP_NULL;
  DMUON_TRY(dmuon_bootstrap_check_mpi());
  DMUON_TRY(dmuon_memory_alloc(&inner->context->memory, 2 * (int64_t)size, sizeof *ranks, &ranks));
  for (int i = 0; i < size; i++) ranks[i] = i;
  DMuonErrorCode code = dmuon_link_mpi(MPI_Comm_group(inner->entry->base, &from), "MPI_Comm_group");
  if (!code) code = dmuon_link_mpi(MPI_Comm_group(outer->entry->base, &to), "MPI_Comm_group");
  if (!code)
    code = dmuon_link_mpi(MPI_Group_translate_ranks(from, size, ranks, to, ranks + size),
                          "MPI_Group_translate_ranks");
  for (int i = 0; i < size && !code; i++)
    inner_to_outer[i] = ranks[size + i] == MPI_UNDEFINED ? -1 : ranks[size + i];
  if (from != MPI_GROUP_NULL) MPI_Group_free(&from);
  if (to != MPI_GROUP_NULL) MPI_Group_free(&to);
  dmuon_memory_free(ranks);
  return code;
}

/* rank of `from`, by its number in `to`; -1: it is not there, or nobody can tell. */
static int rank_in(const dmuon_bootstrap *from, const dmuon_bootstrap *to, int rank) {
  MPI_Group a = MPI_GROUP_NULL, b = MPI_GROUP_NULL;
  int there = MPI_UNDEFINED;
  if (rank < 0) return -1;
  if (!MPI_Comm_group(from->entry->base, &a) && !MPI_Comm_group(to->entry->base, &b) &&
      MPI_Group_translate_ranks(a, 1, &rank, b, &there))
    there = MPI_UNDEFINED;
  if (a != MPI_GROUP_NULL) MPI_Group_free(&a);
  if (b != MPI_GROUP_NULL) MPI_Group_free(&b);
  return there == MPI_UNDEFINED ? -1 : there;
}

void dmuon_bootstrap_follow(dmuon_bootstrap *bootstrap, const dmuon_bootstrap *broken) {
  dmuon_link *link = &bootstrap->link;
  const dmuon_link *from = &broken->link;
  if (link->broken || !from->broken) return;
  if (from->broken != DMUON_ERR_REVOKED) {
    dmuon_link_break(link, DMUON_ERROR(from->broken, "%s", from->message));
  } else {
    dmuon_link_revoke(link, rank_in(broken, bootstrap, from->by), from->why, from->told);
  }
}
