/* What must hold between steps and passes, checked:
 *   one owner: every element of a parameter is updated by exactly one rank of its mesh;
 *   its column holds the value: what an owner keeps is its master, rounded to the dtype;
 *   only the owner has a reduced gradient, made of as many reductions as on every other rank
 *   (there is no room for one where nothing is updated);
 *   replicas are identical: all who keep an element of a value have the same bits.
 * It looks and compares; it changes nothing. */
#include <string.h>

#include "base/hash.h"
#include "mesh/mesh.h"
#include "optim/optimizer.h"

/* What the ranks of one column keep of a bundle; [0] for arrays, which all ranks keep. */
typedef struct {
  uint64_t hash;
  int32_t voters, first_rank, differing_rank; /* -1: nobody differs */
  int32_t padding;
  int64_t updated;      /* elements of the parameters that somebody updates */
  int32_t fewest, most; /* reductions since the last Step, of all ranks */
} column_word;

static void combine(void *into, const void *from, int64_t bytes, void *context) {
  column_word *a = into;
  const column_word *b = from;
  (void)context;
  for (int64_t i = 0; i < bytes / (int64_t)sizeof *a; i++) {
    a[i].updated += b[i].updated;
    if (b[i].fewest < a[i].fewest) a[i].fewest = b[i].fewest;
    if (b[i].most > a[i].most) a[i].most = b[i].most;
    if (b[i].voters == 0) continue;
    if (a[i].voters == 0) {
      const column_word sums = a[i];
      a[i] = b[i];
      a[i].updated = sums.updated;
      a[i].fewest = sums.fewest;
      a[i].most = sums.most;
      continue;
    }
    if (a[i].differing_rank < 0)
      a[i].differing_rank = a[i].hash != b[i].hash ? b[i].first_rank : b[i].differing_rank;
    a[i].voters += b[i].voters;
  }
}

/* Device memory, hashed through a piece of the host's. */
typedef struct {
  DMuonOptimizer opt;
  char *piece, *other;
} reader;
enum { PIECE_BYTES = 1 << 18 };

static DMuonErrorCode read(const reader *r, char *to, const void *from, int64_t bytes) {
  const DMuonDeviceOps *ops = r->opt->runtime.device->ops;
  DMUON_TRY(ops->copy(r->opt->runtime.compute, to, from, bytes));
  return ops->queue_sync(r->opt->runtime.compute);
}

static DMuonErrorCode hash_memory(const reader *r, const void *data, int64_t bytes,
                                  uint64_t *hash) {
  for (int64_t at = 0; at < bytes; at += PIECE_BYTES) {
    const int64_t count = bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES;
    DMUON_TRY(read(r, r->piece, (const char *)data + at, count));
    *hash = dmuon_hash_bytes(*hash, r->piece, (size_t)count);
  }
  return DMUON_SUCCESS;
}

/* ---- one rank's part ------------------------------------------------------------------------- */

static const void *value_of(DMuonOptimizer opt, int b, int i) {
  const dmuon_bundle *bundle = &opt->runtime.packing.bundles[b];
  if (dmuon_bundle_is_lent(bundle)) return dmuon_lend_value(&opt->lend, b, i);
  return opt->arrays[bundle->params[i].id].weights;
}

static DMuonErrorCode check_master(const reader *r, int b, int i) {
  DMuonOptimizer opt = r->opt;
  const dmuon_bundle_param *p = &opt->runtime.packing.bundles[b].params[i];
  const dmuon_param *param = &opt->model->registry.params[p->param];
  const char *master = opt->states[p->id].master, *value = value_of(opt, b, i);
  const int64_t wide = (int64_t)dmuon_dtype_bytes(param->master_dtype);
  const int64_t narrow = (int64_t)dmuon_dtype_bytes(param->dtype);
  const int64_t room = PIECE_BYTES / wide;
  char rounded[512 * sizeof(double)];
  if (!p->is_mine || master == value) return DMUON_SUCCESS;
  for (int64_t at = 0; at < p->mine_count; at += room) {
    const int64_t count = p->mine_count - at < room ? p->mine_count - at : room;
    DMUON_TRY(read(r, r->piece, master + at * wide, count * wide));
    DMUON_TRY(read(r, r->other, value + at * narrow, count * narrow));
    for (int64_t k = 0; k < count; k += 512) {
      const int64_t n = count - k < 512 ? count - k : 512;
      dmuon_dtype_cast(n, param->dtype, rounded, param->master_dtype, r->piece + k * wide);
      if (memcmp(rounded, r->other + k * narrow, (size_t)(n * narrow)) != 0)
        DMUON_FAIL(DMUON_ERR_INTERNAL,
                   "invariant: the owner's value of %s is not its rounded master, in elements "
                   "[%lld,%lld)",
                   param->name, (long long)(p->mine_first + at + k),
                   (long long)(p->mine_first + at + k + n));
    }
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode fill_words(const reader *r, int b, column_word *words) {
  DMuonOptimizer opt = r->opt;
  const dmuon_registry *registry = &opt->model->registry;
  const dmuon_bundle *bundle = &opt->runtime.packing.bundles[b];
  const DMuonMesh mesh = registry->meshes[bundle->mesh].mesh;
  const int lent = dmuon_bundle_is_lent(bundle);
  column_word *word = &words[lent ? mesh->coords[DMUON_AXIS_SHARD] : 0];
  uint64_t hash = DMUON_HASH_SEED;
  const int reductions = lent && opt->lend.bundles ? opt->lend.bundles[b].reductions : 0;
  for (int c = 0; c < mesh->sizes[DMUON_AXIS_SHARD]; c++)
    words[c].fewest = words[c].most = reductions;
  for (int i = 0; i < bundle->count; i++) {
    const dmuon_param *param = &registry->params[bundle->params[i].param];
    if (bundle->params[i].mine_count > 0) word->updated += bundle->params[i].mine_count;
    if (bundle->params[i].is_mine) DMUON_TRY(check_master(r, b, i));
    if (!lent)
      DMUON_TRY(hash_memory(r, opt->arrays[bundle->params[i].id].weights,
                            param->numel * (int64_t)dmuon_dtype_bytes(param->dtype), &hash));
  }
  if (lent)
    DMUON_TRY(hash_memory(r, opt->lend.bundles[b].home,
                          bundle->home_count * (int64_t)dmuon_dtype_bytes(bundle->dtype), &hash));
  word->hash = hash;
  word->voters = 1;
  word->first_rank = mesh->rank;
  return DMUON_SUCCESS;
}

/* ---- all ranks' ------------------------------------------------------------------------------ */

static DMuonErrorCode judge(DMuonOptimizer opt, int b, int columns, const column_word *words) {
  const dmuon_registry *registry = &opt->model->registry;
  const dmuon_bundle *bundle = &opt->runtime.packing.bundles[b];
  const char *first = registry->params[bundle->first].name;
  int64_t updated = 0, numel = 0;
  for (int i = 0; i < bundle->count; i++) numel += registry->params[bundle->params[i].param].numel;
  for (int c = 0; c < columns; c++) {
    updated += words[c].updated;
    if (words[c].differing_rank >= 0)
      DMUON_FAIL(DMUON_ERR_INTERNAL,
                 "invariant: replicas differ: ranks %d and %d keep different values of group %s "
                 "(%s and others)",
                 words[c].first_rank, words[c].differing_rank, bundle->group, first);
  }
  if (words[0].fewest != words[0].most)
    DMUON_FAIL(
        DMUON_ERR_INTERNAL,
        "invariant: reduced gradients: those of group %s (%s and others) were reduced %d times "
        "on one rank, %d times on another",
        bundle->group, first, words[0].fewest, words[0].most);
  if (updated != numel)
    DMUON_FAIL(DMUON_ERR_INTERNAL,
               "invariant: one owner: %lld of %lld elements of group %s (%s and others) have one",
               (long long)updated, (long long)numel, bundle->group, first);
  return DMUON_SUCCESS;
}

static DMuonErrorCode check_bundle(const reader *r, int b) {
  DMuonOptimizer opt = r->opt;
  const DMuonMesh mesh = opt->model->registry.meshes[opt->runtime.packing.bundles[b].mesh].mesh;
  const int columns = mesh->sizes[DMUON_AXIS_SHARD];
  column_word *words = NULL;
  DMuonErrorCode code =
      dmuon_memory_alloc(&opt->object.context->memory, columns, sizeof *words, &words);
  for (int c = 0; !code && c < columns; c++) words[c].first_rank = words[c].differing_rank = -1;
  if (!code) code = fill_words(r, b, words);
  code = dmuon_agree_error(mesh->bootstrap, "CheckInvariants", code, DMUON_ERR_INTERNAL);
  if (!code)
    code = dmuon_agree_reduce(mesh->bootstrap, "CheckInvariants", words,
                              columns * (int64_t)sizeof *words, combine, NULL);
  if (!code) code = judge(opt, b, columns, words);
  dmuon_memory_free(words);
  return code;
}

static DMuonErrorCode check(DMuonOptimizer opt) {
  dmuon_memory *memory = &opt->object.context->memory;
  reader r = {.opt = opt};
  DMuonErrorCode code = dmuon_memory_alloc(memory, PIECE_BYTES, 1, &r.piece);
  if (!code) code = dmuon_memory_alloc(memory, PIECE_BYTES, 1, &r.other);
  code = dmuon_mesh_agree_error(dmuon_optimizer_mesh(opt), "CheckInvariants", code);
  for (int b = 0; !code && b < opt->runtime.packing.bundle_count; b++) code = check_bundle(&r, b);
  dmuon_memory_free(r.piece);
  dmuon_memory_free(r.other);
  return code;
}

DMuonErrorCode DMuonOptimizerCheckInvariants(DMuonOptimizer opt) {
  DMUON_TRY(dmuon_optimizer_check_live(opt, __func__));
  if (dmuon_mesh_is_plan(dmuon_optimizer_mesh(opt))) return DMUON_SUCCESS; /* it has no values */
  DMUON_TRY(dmuon_optimizer_drain(opt));
  return dmuon_optimizer_settle(opt, check(opt));
}
