/* Moves a tensor chunk by chunk, so that a rank that does not want it needs no room for it. */
#include "optim/whole.h"

#include <string.h>

#include "base/hash.h"
#include "mesh/mesh.h"

enum { CHUNK_BYTES = 1 << 18 };

int dmuon_whole_find(DMuonOptimizer opt, int index, int *bundle, int *place) {
  const dmuon_packing *packing = &opt->runtime.packing;
  for (int b = 0; b < packing->bundle_count; b++)
    for (int i = 0; i < packing->bundles[b].count; i++)
      if (packing->bundles[b].params[i].param == index) {
        *bundle = b;
        *place = i;
        return 1;
      }
  return 0;
}

static DMuonMesh mesh_of(DMuonOptimizer opt, int index) {
  const dmuon_registry *registry = &opt->model->registry;
  return registry->meshes[registry->params[index].mesh].mesh;
}

DMuonErrorCode dmuon_whole_agree(DMuonOptimizer opt, const char *call, int index, uint64_t question,
                                 DMuonErrorCode code) {
  dmuon_bootstrap *bootstrap = mesh_of(opt, index)->bootstrap;
  const char *name = opt->model->registry.params[index].name;
  int equal, other;
  DMUON_TRY(dmuon_agree_error(bootstrap, call, code, DMUON_ERR_DISAGREE));
  DMUON_TRY(dmuon_agree_equal(bootstrap, call, dmuon_hash_string(question, name), &equal, &other));
  if (!equal)
    DMUON_FAIL(DMUON_ERR_DISAGREE,
               "%s: rank %d asks for another parameter, state or root than rank 0; here of %s",
               call, other, name);
  return DMUON_SUCCESS;
}

/* What rank (r, s) has of the tensor, and whether that is this rank. */
typedef struct {
  int rank; /* in the bootstrap of the parameter's mesh */
  int is_here;
  int64_t first, count;
} share;

static share share_of(DMuonOptimizer opt, int index, int r, int s) {
  const DMuonMesh mesh = mesh_of(opt, index);
  const int64_t numel = opt->model->registry.params[index].numel;
  const int *owner = opt->partition->owners[index];
  share found = {
      .rank = mesh->rank_at[(r * mesh->sizes[DMUON_AXIS_SHARD] + s) * mesh->sizes[DMUON_AXIS_TP]],
      .is_here = r == mesh->coords[DMUON_AXIS_REPLICATE] && s == mesh->coords[DMUON_AXIS_SHARD]};
  int bundle, place;
  if (dmuon_whole_find(opt, index, &bundle, &place))
    dmuon_bundle_share(&opt->runtime.packing.bundles[bundle], place, numel,
                       mesh->sizes[DMUON_AXIS_REPLICATE], r, s, &found.first, &found.count);
  else if (owner[DMUON_AXIS_REPLICATE] == r && owner[DMUON_AXIS_SHARD] == s)
    found.count = numel;
  return found;
}

DMuonErrorCode dmuon_whole_copy(DMuonOptimizer opt, void *dst, const void *src, int64_t bytes) {
  const DMuonDeviceOps *ops = opt->runtime.device->ops;
  /* A device's copy may block until it can begin. */
  DMUON_TRY(ops->queue_sync(opt->runtime.compute));
  DMUON_TRY(ops->copy(opt->runtime.compute, dst, src, bytes));
  return ops->queue_sync(opt->runtime.compute);
}

static DMuonErrorCode new_chunk(DMuonOptimizer opt, const char *call, DMuonMesh mesh,
                                char **chunk) {
  DMuonErrorCode code = dmuon_memory_alloc(&opt->object.context->memory, CHUNK_BYTES, 1, chunk);
  return dmuon_agree_error(mesh->bootstrap, call, code, DMUON_ERR_MEMORY);
}

static DMuonErrorCode get_share(DMuonOptimizer opt, const char *call, const dmuon_whole *what,
                                const share *from, char *chunk, char *data) {
  dmuon_bootstrap *bootstrap = mesh_of(opt, what->index)->bootstrap;
  const int64_t room = CHUNK_BYTES / what->bytes;
  for (int64_t at = 0; at < from->count; at += room) {
    const int64_t count = from->count - at < room ? from->count - at : room;
    const int64_t bytes = count * what->bytes;
    if (from->is_here)
      DMUON_TRY(dmuon_whole_copy(opt, chunk, (char *)what->data + at * what->bytes, bytes));
    DMUON_TRY(dmuon_agree_broadcast(bootstrap, call, from->rank, chunk, bytes));
    if (data)
      DMUON_TRY(dmuon_whole_copy(opt, data + (from->first + at) * what->bytes, chunk, bytes));
  }
  return DMUON_SUCCESS;
}

/* The item of the first rank that has a share. */
static DMuonErrorCode get_single(DMuonOptimizer opt, const char *call, const dmuon_whole *what,
                                 const share *from, char *chunk, void *data) {
  dmuon_bootstrap *bootstrap = mesh_of(opt, what->index)->bootstrap;
  if (from->is_here && what->data)
    memcpy(chunk, what->data, (size_t)what->bytes);
  else
    memset(chunk, 0, (size_t)what->bytes); /* without elements nobody keeps anything */
  DMUON_TRY(dmuon_agree_broadcast(bootstrap, call, from->rank, chunk, what->bytes));
  return data ? dmuon_whole_copy(opt, data, chunk, what->bytes) : DMUON_SUCCESS;
}

DMuonErrorCode dmuon_whole_get(DMuonOptimizer opt, const char *call, const dmuon_whole *what,
                               void *data) {
  const DMuonMesh mesh = mesh_of(opt, what->index);
  char *chunk = NULL;
  DMuonErrorCode code = new_chunk(opt, call, mesh, &chunk);
  int is_done = 0;
  for (int r = 0; r < mesh->sizes[DMUON_AXIS_REPLICATE]; r++)
    for (int s = 0; !code && !is_done && s < mesh->sizes[DMUON_AXIS_SHARD]; s++) {
      const share from = share_of(opt, what->index, r, s);
      const int *owner = opt->partition->owners[what->index];
      if (!what->is_single) {
        code = get_share(opt, call, what, &from, chunk, data);
      } else if (from.count > 0 ||
                 (owner[DMUON_AXIS_REPLICATE] == r && owner[DMUON_AXIS_SHARD] == s &&
                  opt->model->registry.params[what->index].numel == 0)) {
        code = get_single(opt, call, what, &from, chunk, data);
        is_done = 1;
      }
    }
  dmuon_memory_free(chunk);
  return code;
}

/* The part of elements [at, at + count) of the tensor that lies in this rank's share. */
static DMuonErrorCode keep(DMuonOptimizer opt, const dmuon_whole *what, const share *mine,
                           const char *chunk, int64_t at, int64_t count) {
  const int64_t begin = at > mine->first ? at : mine->first;
  const int64_t last = mine->first + mine->count;
  const int64_t end = at + count < last ? at + count : last;
  if (!what->data || end <= begin) return DMUON_SUCCESS;
  return dmuon_whole_copy(opt, (char *)what->data + (begin - mine->first) * what->bytes,
                          chunk + (begin - at) * what->bytes, (end - begin) * what->bytes);
}

/* Everybody says that he has the same data. */
static DMuonErrorCode compare(DMuonOptimizer opt, const char *call, int index, const void *data,
                              int64_t bytes, char *chunk) {
  int equal, other;
  uint64_t hash = DMUON_HASH_SEED;
  for (int64_t at = 0; at < bytes; at += CHUNK_BYTES) {
    const int64_t count = bytes - at < CHUNK_BYTES ? bytes - at : CHUNK_BYTES;
    DMUON_TRY(dmuon_whole_copy(opt, chunk, (const char *)data + at, count));
    hash = dmuon_hash_bytes(hash, chunk, (size_t)count);
  }
  DMUON_TRY(dmuon_agree_equal(mesh_of(opt, index)->bootstrap, call, hash, &equal, &other));
  if (!equal)
    DMUON_FAIL(DMUON_ERR_DISAGREE,
               "%s: the data of %s differ between rank 0 and rank %d; DMUON_ALL is for equal data",
               call, opt->model->registry.params[index].name, other);
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_whole_set(DMuonOptimizer opt, const char *call, const dmuon_whole *what,
                               const void *data, int root, void *whole_copy) {
  const DMuonMesh mesh = mesh_of(opt, what->index);
  const int64_t numel = what->is_single ? 1 : opt->model->registry.params[what->index].numel;
  const int64_t room = CHUNK_BYTES / what->bytes;
  const share mine = share_of(opt, what->index, mesh->coords[DMUON_AXIS_REPLICATE],
                              mesh->coords[DMUON_AXIS_SHARD]);
  const int am_root = root == DMUON_ALL || root == dmuon_mesh_position(mesh);
  char *chunk = NULL;
  DMuonErrorCode code = new_chunk(opt, call, mesh, &chunk);
  if (!code && root == DMUON_ALL)
    code = compare(opt, call, what->index, data, numel * what->bytes, chunk);
  for (int64_t at = 0; !code && at < numel; at += room) {
    const int64_t count = numel - at < room ? numel - at : room;
    const int64_t bytes = count * what->bytes;
    if (am_root) code = dmuon_whole_copy(opt, chunk, (const char *)data + at * what->bytes, bytes);
    if (code) break;
    if (root != DMUON_ALL)
      code = dmuon_agree_broadcast(mesh->bootstrap, call, mesh->rank_at[root], chunk, bytes);
    if (code) break;
    if (whole_copy) memcpy((char *)whole_copy + at * what->bytes, chunk, (size_t)bytes);
    if (!what->is_single)
      code = keep(opt, what, &mine, chunk, at, count);
    else if (what->data)
      memcpy(what->data, chunk, (size_t)bytes);
  }
  dmuon_memory_free(chunk);
  return code;
}
