/* The cache of duplicates on the user's communicator: an attribute that is not copied, counted by
 * the bootstraps that use it. It decides which duplicate a new mesh gets.
 *
 * Ranks may destroy two meshes in different orders, so what is free here may be in use elsewhere:
 * the choice is agreed on, over a duplicate that serves for nothing else. An entry is free on every
 * rank only after every rank has ended its operations on it, so no message of the last user is
 * left. One of the two MPI keyvals of the library. */
#include "comm/bootstrap_private.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "comm/bootstrap_process.h"

static int cache_keyval = MPI_KEYVAL_INVALID;

static int mpi_is_over(void) {
  int finalized = 1;
  MPI_Finalized(&finalized);
  return finalized;
}

static void free_comm(MPI_Comm *comm) {
  if (*comm != MPI_COMM_NULL && !mpi_is_over()) MPI_Comm_free(comm);
  *comm = MPI_COMM_NULL;
}

void dmuon_cache_unsplit(dmuon_cache_entry *entry) {
  for (int axis = 0; axis < 3; axis++)
    for (int role = 0; role < 2; role++) free_comm(&entry->axis[axis][role]);
  entry->is_split = 0;
}

static void free_entry(dmuon_cache_entry *entry) {
  dmuon_bell_close(&entry->bell);
  dmuon_cache_unsplit(entry);
  free_comm(&entry->base);
  dmuon_memory_free(entry->node);
  dmuon_memory_free(entry);
}

static void remove_entry(dmuon_cache *cache, dmuon_cache_entry *entry) {
  int kept = 0;
  for (int i = 0; i < cache->count; i++)
    if (cache->entries[i] != entry) cache->entries[kept++] = cache->entries[i];
  cache->count = kept;
}

/* Without giving up its communicators: they are left to leak. */
static void forget_entry(dmuon_cache *cache, dmuon_cache_entry *entry) {
  remove_entry(cache, entry);
  dmuon_bell_close(&entry->bell);
  dmuon_memory_free(entry->node);
  dmuon_memory_free(entry);
}

/* A mesh that this rank destroyed before it heard that another rank had given it up. */
static void forget_broken(dmuon_cache *cache) {
  for (int i = cache->count; i-- > 0;) {
    dmuon_cache_entry *entry = cache->entries[i];
    if (!entry->busy && dmuon_bell_heard(&entry->bell)) forget_entry(cache, entry);
  }
}

static void drop_reference(dmuon_cache *cache) {
  if (--cache->references > 0) return;
  if (!cache->link.broken) free_comm(&cache->control);
  dmuon_link_close(&cache->link);
  dmuon_memory_free(cache->entries);
  free(cache);
}

/* The user frees his communicator (or MPI its world): what no mesh uses goes now, the rest when its
 * mesh goes. */
static int delete_cache(MPI_Comm comm, int keyval, void *value, void *extra) {
  (void)comm, (void)keyval, (void)extra;
  dmuon_cache *cache = value;
  cache->attached = 0;
  if (!mpi_is_over()) forget_broken(cache);
  for (int i = cache->count; i-- > 0;) {
    dmuon_cache_entry *entry = cache->entries[i];
    if (entry->busy) continue;
    remove_entry(cache, entry);
    free_entry(entry);
  }
  drop_reference(cache);
  return MPI_SUCCESS;
}

DMuonErrorCode dmuon_cache_duplicate(MPI_Comm comm, double timeout, MPI_Comm *duplicate) {
  /* MPI writes the handle when all ranks have come, which may be after we gave up. */
  MPI_Comm *handle = malloc(sizeof *handle);
  if (!handle) DMUON_FAIL(DMUON_ERR_MEMORY, "out of memory for a communicator");
  MPI_Request request;
  DMuonErrorCode code = dmuon_link_mpi(MPI_Comm_idup(comm, handle, &request), "MPI_Comm_idup");
  double deadline = timeout > 0 ? dmuon_link_now() + timeout : 0;
  for (int done = 0; !code;) {
    code = dmuon_link_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done || code) break;
    if (deadline > 0 && dmuon_link_now() > deadline)
      DMUON_FAIL(DMUON_ERR_TIMEOUT,
                 "duplicating the communicator: not every rank came within the timeout of %g s",
                 timeout);
    dmuon_process_progress();
    sched_yield();
  }
  if (!code) *duplicate = *handle;
  free(handle);
  return code;
}

static DMuonErrorCode make_cache(MPI_Comm user, double timeout, dmuon_cache **out) {
  /* Not of a mesh's memory: the cache is there before the first mesh and after the last. */
  dmuon_cache *cache = calloc(1, sizeof *cache);
  if (!cache) DMUON_FAIL(DMUON_ERR_MEMORY, "out of memory: %zu bytes", sizeof *cache);
  cache->references = 1;
  cache->control = MPI_COMM_NULL;
  DMuonErrorCode code = dmuon_cache_duplicate(user, timeout, &cache->control);
  if (!code) code = dmuon_link_open(&cache->link, &cache->memory, cache->control, timeout);
  if (!code)
    code = dmuon_link_mpi(MPI_Comm_set_attr(user, cache_keyval, cache), "MPI_Comm_set_attr");
  if (code) {
    drop_reference(cache);
    return code;
  }
  cache->attached = 1;
  *out = cache;
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_cache_find(MPI_Comm user, double timeout, dmuon_cache **out,
                                int64_t *mpi_calls) {
  dmuon_cache *cache = NULL;
  int found = 0;
  *mpi_calls += 1;
  if (cache_keyval == MPI_KEYVAL_INVALID) {
    DMUON_TRY(dmuon_link_mpi(
        MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, delete_cache, &cache_keyval, NULL),
        "MPI_Comm_create_keyval"));
  }
  DMUON_TRY(
      dmuon_link_mpi(MPI_Comm_get_attr(user, cache_keyval, &cache, &found), "MPI_Comm_get_attr"));
  if (found && cache->link.broken) {
    DMUON_TRY(dmuon_link_mpi(MPI_Comm_delete_attr(user, cache_keyval), "MPI_Comm_delete_attr"));
    found = 0;
  }
  if (!found) {
    DMUON_TRY(make_cache(user, timeout, &cache));
    *mpi_calls += 2 + cache->link.mpi_calls;
  }
  cache->link.timeout = timeout;
  *out = cache;
  return DMUON_SUCCESS;
}

/* The ids of the entries free on all ranks, ascending. */
enum { FREE_IDS = 60 };
typedef struct {
  int64_t count, id[FREE_IDS];
} free_ids;

static void intersect(void *into, const void *from, int64_t bytes, void *context) {
  (void)bytes, (void)context;
  free_ids *a = into;
  const free_ids *b = from;
  int64_t kept = 0;
  for (int64_t i = 0, k = 0; i < a->count; i++) {
    while (k < b->count && b->id[k] < a->id[i]) k++;
    if (k < b->count && b->id[k] == a->id[i]) a->id[kept++] = a->id[i];
  }
  a->count = kept;
}

static DMuonErrorCode new_entry(dmuon_cache *cache, dmuon_cache_entry **out) {
  if (cache->count == cache->capacity) {
    int capacity = cache->capacity ? 2 * cache->capacity : 4;
    DMUON_TRY(dmuon_memory_resize(&cache->memory, &cache->entries, cache->capacity, capacity,
                                  sizeof *cache->entries));
    cache->capacity = capacity;
  }
  dmuon_cache_entry *entry;
  DMUON_TRY(dmuon_memory_alloc(&cache->memory, 1, sizeof *entry, &entry));
  entry->base = MPI_COMM_NULL;
  for (int axis = 0; axis < 3; axis++)
    for (int role = 0; role < 2; role++) entry->axis[axis][role] = MPI_COMM_NULL;
  *out = entry;
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_cache_take(dmuon_cache *cache, DMuonErrorCode code, dmuon_cache_entry **out,
                                int64_t *mpi_calls) {
  const char *what = "creating a mesh";
  int64_t before = cache->link.mpi_calls;
  dmuon_cache_entry *fresh = NULL, *entry = NULL;
  if (!code) code = new_entry(cache, &fresh);
  code = dmuon_link_agree_error(&cache->link, what, code, DMUON_ERR_SETUP);

  free_ids ids = {.count = 0};
  forget_broken(cache);
  for (int i = 0; i < cache->count && ids.count < FREE_IDS; i++)
    if (!cache->entries[i]->busy) ids.id[ids.count++] = cache->entries[i]->id;
  if (!code) code = dmuon_link_reduce(&cache->link, what, &ids, sizeof ids, intersect, NULL);
  *mpi_calls += cache->link.mpi_calls - before;
  if (!code && ids.count > 0) {
    for (int i = 0; i < cache->count; i++)
      if (cache->entries[i]->id == ids.id[0]) entry = cache->entries[i];
  } else if (!code) {
    *mpi_calls += 1;
    /* Of control, not of the user's: so nothing of the user's communicator is copied again. */
    code = dmuon_cache_duplicate(cache->control, cache->link.timeout, &fresh->base);
    if (code) {
      dmuon_link_break(&cache->link, code);
    } else {
      entry = fresh;
      fresh = NULL;
      entry->id = cache->next_id++;
      cache->entries[cache->count++] = entry;
    }
  }
  if (fresh) free_entry(fresh);
  if (code) return code;
  entry->busy = 1;
  cache->references++;
  *out = entry;
  return DMUON_SUCCESS;
}

void dmuon_cache_release(dmuon_cache *cache, dmuon_cache_entry *entry, int broken) {
  entry->busy = 0;
  if (broken) {
    forget_entry(cache, entry);
  } else if (!cache->attached) {
    remove_entry(cache, entry);
    free_entry(entry);
  }
  drop_reference(cache);
}
