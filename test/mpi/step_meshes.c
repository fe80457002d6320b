/* One optimizer whose parameters live on several meshes of differing sizes: pipeline stages with a
 * tied embedding, experts, groups that overlap. Values, norms and counts against the fp64 reference
 * of one process; a NaN on one rank is skipped by all; and the bytes are the same whatever the
 * order of execution, the grids' sizes and the messages' form. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "step_case.h"
#include "tap_mpi.h"

enum { FAMILIES = 5, PARAMS = 8, RANKS = 6, STEPS = 3, COLORS = 3, ALL = 0, OWN = -1 };

/* Disjoint meshes: the ranks of one letter, '.' for those in none; replicate x shard by letter. */
typedef struct {
  const char *letters;
  int sizes[COLORS][2];
} family;

typedef struct {
  const char *name;
  DMuonDType dtype;
  DMuonRoute route;
  int64_t dims[2];
  int family;
  char letter; /* its copies: the mesh of this letter */
  int losses;  /* each copy names its rank's mesh in this family; OWN: the copies */
} placed;

/* Families and parameters end where their letters and names do. The first family has all ranks. */
typedef struct {
  const char *label;
  int ranks, sample_period; /* rank r has the samples of rank r % sample_period */
  family families[FAMILIES];
  placed params[PARAMS];
} layout;

#define F32 DMUON_FLOAT32
#define F64 DMUON_FLOAT64
#define MUON DMUON_ROUTE_MUON
#define ADAMW DMUON_ROUTE_ADAMW
static const layout layouts[] = {
    {"pipeline of 2, tied embedding",
     4,
     2,
     {{"aaaa", {{2, 2}}}, {"aabb", {{2, 1}, {1, 2}}}},
     {{"embed.weight", F32, ADAMW, {9, 4}, ALL, 'a', 1},
      {"layers.0.weight", F32, MUON, {12, 8}, 1, 'a', OWN},
      {"layers.0.gate", F32, MUON, {8, 12}, 1, 'a', OWN},
      {"layers.1.weight", F32, MUON, {5, 7}, 1, 'b', OWN},
      {"layers.1.double", F64, MUON, {6, 4}, 1, 'b', OWN},
      {"layers.1.scale", F32, ADAMW, {1, 12}, 1, 'b', OWN},
      {"layers.1.tied", F32, MUON, {6, 6}, ALL, 'a', 1}}},
    {"experts of 2",
     4,
     RANKS,
     {{"aaaa", {{4, 1}}}, {"abab", {{2, 1}, {1, 2}}}},
     {{"layers.0.attention", F32, MUON, {8, 8}, ALL, 'a', OWN},
      {"layers.0.experts.0", F32, MUON, {10, 6}, 1, 'a', ALL},
      {"layers.0.experts.1", F32, MUON, {10, 6}, 1, 'b', ALL},
      {"layers.1.experts.0", F64, MUON, {3, 6}, 1, 'a', ALL},
      {"layers.1.experts.1", F64, MUON, {3, 6}, 1, 'b', ALL},
      {"layers.1.experts.1.bias", F32, ADAMW, {1, 6}, 1, 'b', ALL}}},
    {"overlapping groups of 4 ranks",
     4,
     RANKS,
     {{"aaaa", {{1, 4}}},
      {"aaa.", {{3, 1}}},
      {".aaa", {{1, 3}}},
      {"a..a", {{1, 2}}},
      {".a..", {{1, 1}}}},
     {{"layers.0.weight", F32, MUON, {8, 8}, ALL, 'a', OWN},
      {"layers.1.weight", F32, MUON, {8, 12}, 1, 'a', OWN},
      {"layers.2.weight", F32, MUON, {12, 8}, 2, 'a', OWN},
      {"layers.3.weight", F32, MUON, {7, 3}, 3, 'a', OWN},
      {"layers.4.weight", F32, MUON, {4, 4}, 4, 'a', OWN},
      {"layers.5.bias", F32, ADAMW, {1, 9}, 2, 'a', OWN},
      {"layers.6.weight", F64, MUON, {8, 5}, 1, 'a', OWN},
      {"layers.7.bias", F32, ADAMW, {1, 5}, 4, 'a', OWN}}},
    {"pipeline of 3, embedding tied between its ends",
     6,
     2,
     {{"aaaaaa", {{3, 2}}}, {"aabbcc", {{2, 1}, {1, 2}, {2, 1}}}, {"aa..aa", {{2, 2}}}},
     {{"embed.weight", F32, ADAMW, {9, 4}, 2, 'a', 1},
      {"layers.0.weight", F32, MUON, {12, 8}, 1, 'a', OWN},
      {"layers.1.weight", F32, MUON, {8, 12}, 1, 'b', OWN},
      {"layers.1.double", F64, MUON, {5, 5}, 1, 'b', OWN},
      {"layers.2.weight", F32, MUON, {7, 9}, 1, 'c', OWN},
      {"layers.2.tied", F32, MUON, {6, 6}, 2, 'a', 1},
      {"norm.weight", F32, ADAMW, {1, 8}, ALL, 'a', 1}}},
    {"experts on 3 and 3 ranks",
     6,
     RANKS,
     {{"aaaaaa", {{6, 1}}}, {"ababab", {{3, 1}, {1, 3}}}},
     {{"layers.0.attention", F32, MUON, {8, 8}, ALL, 'a', OWN},
      {"layers.0.experts.0", F32, MUON, {10, 6}, 1, 'a', ALL},
      {"layers.0.experts.1", F32, MUON, {10, 6}, 1, 'b', ALL},
      {"layers.1.experts.0", F64, MUON, {3, 6}, 1, 'a', ALL},
      {"layers.1.experts.1", F32, ADAMW, {3, 6}, 1, 'b', ALL}}},
    {"overlapping groups of 6 ranks",
     6,
     RANKS,
     {{"aaaaaa", {{3, 2}}},
      {"aaaa..", {{2, 2}}},
      {".aa..a", {{3, 1}}},
      {"...aaa", {{1, 3}}},
      {"a...a.", {{1, 2}}}},
     {{"layers.0.weight", F32, MUON, {8, 8}, ALL, 'a', OWN},
      {"layers.1.weight", F32, MUON, {8, 12}, 2, 'a', OWN},
      {"layers.2.weight", F32, MUON, {12, 8}, 4, 'a', OWN},
      {"layers.3.weight", F32, MUON, {7, 3}, 1, 'a', OWN},
      {"layers.4.weight", F64, MUON, {4, 4}, 3, 'a', OWN},
      {"layers.5.bias", F32, ADAMW, {1, 9}, 3, 'a', OWN},
      {"layers.6.weight", F32, MUON, {8, 5}, 2, 'a', OWN},
      {"layers.7.bias", F32, ADAMW, {1, 5}, 4, 'a', OWN}}},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

typedef struct {
  const char *label;
  int clip, samples, every; /* every so many'th variant is tried */
} way;
/* Orthogonalised updates do not show what a gradient was divided by: norms do. */
static const way ways[] = {
    {"plain", 0, 0, 1}, {"clipped", 1, 0, 2}, {"sample counts, clipped", 1, 1, 4}};
enum { WAYS = sizeof ways / sizeof *ways };

/* What must not change a bit. */
typedef struct {
  const char *device, *async, *fanin, *chunk, *strategy;
  int other_sizes;
} variant;

typedef struct {
  DMuonMesh mesh[FAMILIES];
  DMuonModel model;
  DMuonOptimizer opt;
  int id[PARAMS];
  void *weight[PARAMS], *gradient[PARAMS]; /* NULL: not on this rank */
} life;

/* ---- numbers --------------------------------------------------------------------------------- */

static double number(uint64_t key) {
  for (int i = 0; i < 2; i++) {
    key += 0x9e3779b97f4a7c15u;
    key = (key ^ key >> 30) * 0xbf58476d1ce4e5b9u;
    key = (key ^ key >> 27) * 0x94d049bb133111ebu;
    key ^= key >> 31;
  }
  return (double)(key >> 40) / (1 << 23) - 1;
}
static double weight_of(int param, int64_t i) {
  return number((uint64_t)param << 32 | (uint64_t)i);
}
static double gradient_of(int param, int64_t i, int rank, int step) {
  return number((uint64_t)(1000 * (rank + 1) + 100 * (step + 1) + param) << 32 | (uint64_t)i);
}
static double samples_of(const layout *l, int rank) {
  return 3 + 2 * (rank % l->sample_period);
}
static int64_t numel(const placed *p) {
  return p->dims[0] * p->dims[1];
}
static int param_count(const layout *l) {
  int count = 0;
  while (count < PARAMS && l->params[count].name) count++;
  return count;
}
static int holds(const layout *l, int param, int rank) {
  const placed *p = &l->params[param];
  return l->families[p->family].letters[rank] == p->letter;
}

/* Ranks, or samples, whose losses the gradient of param sums: those of any one copy's mesh. */
static double divisor_of(const layout *l, const way *w, int param) {
  const placed *p = &l->params[param];
  const char *letters = l->families[p->losses == OWN ? p->family : p->losses].letters;
  int copy = 0;
  double divisor = 0;
  while (!holds(l, param, copy)) copy++;
  for (int r = 0; r < l->ranks; r++)
    if (letters[r] == letters[copy]) divisor += w->samples ? samples_of(l, r) : 1;
  return divisor;
}

/* ---- the reference --------------------------------------------------------------------------- */

static void reference_create(const layout *l, ref_param *params) {
  for (int p = 0; p < param_count(l); p++) {
    const size_t n = (size_t)numel(&l->params[p]);
    params[p] = (ref_param){.route = l->params[p].route == MUON ? REF_MUON : REF_ADAMW,
                            .batch = 1,
                            .rows = l->params[p].dims[0],
                            .cols = l->params[p].dims[1],
                            .weight = calloc(n, sizeof(double)),
                            .momentum_buffer = calloc(n, sizeof(double)),
                            .exp_avg = calloc(n, sizeof(double)),
                            .exp_avg_sq = calloc(n, sizeof(double))};
    for (size_t i = 0; i < n; i++) params[p].weight[i] = weight_of(p, (int64_t)i);
  }
}

static void reference_destroy(const layout *l, ref_param *params) {
  for (int p = 0; p < param_count(l); p++) {
    free(params[p].weight);
    free(params[p].momentum_buffer);
    free(params[p].exp_avg);
    free(params[p].exp_avg_sq);
  }
}

static void reference_step(const layout *l, const way *w, const ref_rule *rule, ref_param *params,
                           int step, ref_info *info) {
  double *mean[PARAMS] = {NULL};
  for (int p = 0; p < param_count(l); p++) {
    const int64_t n = numel(&l->params[p]);
    const double divisor = divisor_of(l, w, p);
    mean[p] = calloc((size_t)n, sizeof(double));
    for (int r = 0; r < l->ranks; r++)
      for (int64_t i = 0; holds(l, p, r) && i < n; i++)
        mean[p][i] += gradient_of(p, i, r, step) / divisor;
  }
  ref_step(rule, 1, param_count(l), params, mean, info);
  for (int p = 0; p < param_count(l); p++) free(mean[p]);
}

/* ---- the library's --------------------------------------------------------------------------- */

/* Another grid of the same ranks that must give the same bits: its shard axis a power of two. */
static void other_sizes(const int *sizes, int *other) {
  const int replicate = sizes[0], shard = sizes[1];
  other[0] = replicate, other[1] = shard;
  if (shard > 1 && (shard & (shard - 1)) == 0)
    other[0] = replicate * shard, other[1] = 1;
  else if (shard == 1 && replicate % 2 == 0)
    other[0] = replicate / 2, other[1] = 2;
}

/* Of the layout under test; kept, so that meshes take over the duplicates of those before them. */
static MPI_Comm comms[FAMILIES];

static void split(const layout *l) {
  for (int f = 0; f < FAMILIES; f++) {
    comms[f] = MPI_COMM_NULL;
    if (!l->families[f].letters) continue;
    const int letter = l->families[f].letters[tap_rank];
    MPI_Comm_split(MPI_COMM_WORLD, letter == '.' ? MPI_UNDEFINED : letter, tap_rank, &comms[f]);
  }
}

static void unsplit(void) {
  for (int f = 0; f < FAMILIES; f++)
    if (comms[f] != MPI_COMM_NULL) MPI_Comm_free(&comms[f]);
}

static DMuonErrorCode make_mesh(const layout *l, const variant *v, int f, DMuonMesh *mesh) {
  const int letter = l->families[f].letters[tap_rank];
  int sizes[2];
  if (letter == '.') return DMUON_SUCCESS;
  DMUON_CALL(DMuonMeshCreate(comms[f], mesh));
  memcpy(sizes, l->families[f].sizes[letter - 'a'], sizeof sizes);
  if (v->other_sizes) other_sizes(l->families[f].sizes[letter - 'a'], sizes);
  DMUON_CALL(DMuonMeshSetSizes(*mesh, sizes[0], sizes[1], 1));
  DMUON_CALL(DMuonMeshSetOption(*mesh, "device", v->device));
  DMUON_CALL(DMuonMeshSetOption(*mesh, "reduce_fanin", v->fanin));
  DMUON_CALL(DMuonMeshSetOption(*mesh, "chunk_bytes", v->chunk));
  if (f != ALL) return DMUON_SUCCESS;
  DMUON_CALL(DMuonMeshSetOption(*mesh, "owner_strategy", v->strategy));
  return DMuonMeshSetOption(*mesh, "opt.replicate_async", v->async);
}

/* The lowest rank of a mesh has the weights, the others something else to be overwritten. */
static void fill_weights(const layout *l, int param, void *data) {
  const placed *p = &l->params[param];
  int root = 0;
  while (!holds(l, param, root)) root++;
  for (int64_t i = 0; i < numel(p); i++)
    case_store(p->dtype, data, i, root == tap_rank ? weight_of(param, i) : 77);
}

static DMuonErrorCode life_create(const layout *l, const way *w, const variant *v, life *x) {
  for (int f = 0; f < FAMILIES && l->families[f].letters; f++)
    DMUON_CALL(make_mesh(l, v, f, &x->mesh[f]));
  DMUON_CALL(DMuonModelCreate(x->mesh[ALL], &x->model));
  for (int p = 0; p < param_count(l); p++) {
    const placed *from = &l->params[p];
    if (!holds(l, p, tap_rank)) continue;
    x->weight[p] = calloc((size_t)numel(from), 8);
    x->gradient[p] = calloc((size_t)numel(from), 8);
    fill_weights(l, p, x->weight[p]);
    DMUON_CALL(DMuonModelAddParamArray(x->model, from->name, from->dtype, 2, from->dims,
                                       x->weight[p], x->gradient[p], &x->id[p]));
    DMUON_CALL(DMuonModelSetRoute(x->model, from->name, from->route));
    if (from->family != ALL || from->losses != OWN)
      DMUON_CALL(DMuonModelSetMesh(x->model, from->name, x->mesh[from->family],
                                   from->losses == OWN ? NULL : x->mesh[from->losses]));
  }
  DMUON_CALL(DMuonOptimizerCreate(x->model, &x->opt));
  if (w->clip) DMUON_CALL(DMuonOptimizerSetClip(x->opt, DMUON_CLIP_GLOBAL, .7));
  DMUON_CALL(DMuonOptimizerSetUp(x->opt));
  return w->samples ? DMuonOptimizerSetSampleCount(x->opt, samples_of(l, tap_rank)) : DMUON_SUCCESS;
}

static void life_destroy(life *x) {
  DMuonOptimizerDestroy(&x->opt);
  DMuonModelDestroy(&x->model);
  for (int f = FAMILIES; f-- > 0;) DMuonMeshDestroy(&x->mesh[f]);
  for (int p = 0; p < PARAMS; p++) {
    free(x->weight[p]);
    free(x->gradient[p]);
  }
}

static void fill_gradients(const layout *l, life *x, int step) {
  for (int p = 0; p < param_count(l); p++)
    for (int64_t i = 0; x->gradient[p] && i < numel(&l->params[p]); i++)
      case_store(l->params[p].dtype, x->gradient[p], i, gradient_of(p, i, tap_rank, step));
}

/* The parameter of the last rank that is spoilt: its last one. */
static int spoilt_param(const layout *l) {
  int param = param_count(l) - 1;
  while (!holds(l, param, l->ranks - 1)) param--;
  return param;
}

/* ---- what came of it ------------------------------------------------------------------------- */

static uint64_t hash_of(uint64_t hash, const void *data, int64_t bytes) {
  const unsigned char *byte = data;
  for (int64_t i = 0; i < bytes; i++) hash = (hash ^ byte[i]) * 0x100000001b3u;
  return hash;
}

static uint64_t weights_hash(const layout *l, const life *x) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (int p = 0; p < param_count(l); p++)
    if (x->weight[p])
      hash = hash_of(hash, x->weight[p], numel(&l->params[p]) * case_bytes(l->params[p].dtype));
  return hash;
}

/* Weights and states of what this rank holds. */
static DMuonErrorCode whole_hash(const layout *l, life *x, uint64_t *hash) {
  uint64_t made = weights_hash(l, x);
  for (int p = 0; p < param_count(l); p++) {
    const int is_muon = l->params[p].route == MUON;
    const int64_t bytes = 8 * numel(&l->params[p]);
    for (int s = 0; x->weight[p] && s < (is_muon ? 1 : 2); s++) {
      void *data = calloc((size_t)bytes, 1);
      const char *name = is_muon ? "momentum" : s ? "exp_avg_sq" : "exp_avg";
      DMuonErrorCode code = DMuonOptimizerGetState(x->opt, x->id[p], name, data, DMUON_ALL);
      made = hash_of(made, data, bytes);
      free(data);
      DMUON_CALL(code);
    }
  }
  *hash = made;
  return DMUON_SUCCESS;
}

static int values_agree(const layout *l, const way *w, const life *x, const ref_param *params) {
  int good = 1;
  for (int p = 0; p < param_count(l); p++) {
    const DMuonDType dtype = l->params[p].dtype;
    const int64_t n = numel(&l->params[p]);
    double value[128];
    if (!x->weight[p]) continue;
    for (int64_t i = 0; i < n; i++) value[i] = case_load(dtype, x->weight[p], i);
    const double distance = ref_distance(n, value, params[p].weight);
    if (distance <= (dtype == F32 ? 1e-5 : w->clip ? 1e-8 : 1e-11)) continue;
    good = 0;
    printf("# rank %d: %s at distance %g\n", tap_rank, l->params[p].name, distance);
  }
  return good;
}

static int near(double a, double b) {
  return fabs(a - b) <= 2e-6 * fabs(b);
}

static int info_agrees(const layout *l, const way *w, const DMuonStepInfo *info,
                       const ref_info *expected, int step) {
  double samples = 0;
  for (int r = 0; w->samples && r < l->ranks; r++) samples += samples_of(l, r);
  int good = info->step == step + 1 && !info->skipped && near(info->samples, samples) &&
             info->newton_schulz_calls == expected->matrices;
  if (w->clip)
    good = good && near(info->grad_norm, expected->grad_norm) &&
           near(info->muon_norm, expected->muon_norm) &&
           near(info->adamw_norm, expected->adamw_norm) &&
           near(info->clip_factor, expected->factor);
  if (!good)
    tap_diag("step %lld samples %g (%g) ns %lld (%lld) norms %g %g (%g %g) factor %g (%g)",
             (long long)info->step, info->samples, samples, (long long)info->newton_schulz_calls,
             (long long)expected->matrices, info->muon_norm, info->adamw_norm, expected->muon_norm,
             expected->adamw_norm, info->clip_factor, expected->factor);
  return good;
}

/* ---- runs ------------------------------------------------------------------------------------ */

/* A NaN on the last rank alone. *good: nothing changed anywhere, all know whose it was. */
static DMuonErrorCode spoilt_step(const layout *l, life *x, int made, int *good) {
  DMuonStepInfo info = {.struct_size = sizeof info};
  const int param = spoilt_param(l);
  DMUON_CALL(DMuonOptimizerWait(x->opt));
  const uint64_t before = weights_hash(l, x);
  fill_gradients(l, x, STEPS);
  if (tap_rank == l->ranks - 1) case_store(l->params[param].dtype, x->gradient[param], 3, NAN);
  DMUON_CALL(DMuonOptimizerStep(x->opt));
  DMUON_CALL(DMuonOptimizerWait(x->opt));
  DMUON_CALL(DMuonOptimizerGetStepInfo(x->opt, &info));
  *good = info.skipped == 1 && info.step == made && info.nonfinite_rank == l->ranks - 1 &&
          info.nonfinite_name && !strcmp(info.nonfinite_name, l->params[param].name) &&
          weights_hash(l, x) == before;
  return DMUON_SUCCESS;
}

/* The first run of a way: also against the reference, and copies against each other. */
static DMuonErrorCode checked_run(const layout *l, const way *w, const variant *v, life *x,
                                  ref_param *params, int *good, uint64_t *hash) {
  ref_rule rule;
  ref_recipe("dmuon", &rule);
  if (w->clip) rule.clip = REF_CLIP_GLOBAL, rule.max_norm = .7;
  ref_start(&rule, param_count(l), params);
  DMUON_CALL(life_create(l, w, v, x));
  *good = 1;
  for (int step = 0; step < STEPS; step++) {
    DMuonStepInfo info = {.struct_size = sizeof info};
    ref_info expected;
    int spoilt_good = 1;
    if (step == 1) DMUON_CALL(spoilt_step(l, x, step, &spoilt_good));
    if (!spoilt_good) tap_diag("the NaN was not skipped everywhere");
    fill_gradients(l, x, step);
    DMUON_CALL(DMuonOptimizerStep(x->opt));
    DMUON_CALL(DMuonOptimizerGetStepInfo(x->opt, &info));
    reference_step(l, w, &rule, params, step, &expected);
    if (!spoilt_good || !info_agrees(l, w, &info, &expected, step) ||
        !values_agree(l, w, x, params))
      *good = 0;
  }
  return whole_hash(l, x, hash);
}

static DMuonErrorCode bare_run(const layout *l, const way *w, const variant *v, life *x,
                               uint64_t *hash) {
  DMUON_CALL(life_create(l, w, v, x));
  for (int step = 0; step < STEPS; step++) {
    int good = 1;
    if (step == 1) DMUON_CALL(spoilt_step(l, x, step, &good));
    fill_gradients(l, x, step);
    DMUON_CALL(DMuonOptimizerStep(x->opt));
    if (!good) return DMUON_ERR_INTERNAL;
  }
  DMUON_CALL(DMuonOptimizerWait(x->opt));
  return whole_hash(l, x, hash);
}

/* Every copy of every parameter has the bytes of the first. */
static int copies_equal(const layout *l, const life *x) {
  int64_t least[PARAMS], most[PARAMS]; /* signed: MPI_UINT64_T is not compared alike everywhere */
  MPI_Request request;
  for (int p = 0; p < PARAMS; p++) {
    least[p] = INT64_MAX, most[p] = 0;
    if (p < param_count(l) && x->weight[p])
      least[p] = most[p] =
          (int64_t)(hash_of(0xcbf29ce484222325u, x->weight[p],
                            numel(&l->params[p]) * case_bytes(l->params[p].dtype)) >>
                    1);
  }
  MPI_Iallreduce(MPI_IN_PLACE, least, PARAMS, MPI_INT64_T, MPI_MIN, MPI_COMM_WORLD, &request);
  tap_mpi_wait(&request);
  MPI_Iallreduce(MPI_IN_PLACE, most, PARAMS, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD, &request);
  tap_mpi_wait(&request);
  return !memcmp(least, most, (size_t)param_count(l) * sizeof *least);
}

static void compare(const layout *l, const way *w, const variant *v, uint64_t first) {
  life x = {0};
  uint64_t hash = 0;
  const DMuonErrorCode code = bare_run(l, w, v, &x, &hash);
  if (!tap_ok(!code && hash == first,
              "%s, %s: the same bits: %s, async %s, fanin %s, chunk %s, %s, %s sizes", l->label,
              w->label, v->device, v->async, v->fanin, v->chunk, v->strategy,
              v->other_sizes ? "other" : "these") &&
      code)
    tap_diag("%s", DMuonErrorGetMessage());
  life_destroy(&x);
}

static void run_way(const layout *l, const way *w) {
  static const variant plain = {"host", "0", "32", "4194304", "lpt", 0};
  static const variant variants[] = {
      {"host", "1", "1", "256", "lpt", 0},
      {"host", "1", "32", "4194304", "rank0", 1},
      {"host:deferred,seed=1", "0", "2", "256", "lpt", 0},
      {"host:deferred,seed=2", "1", "32", "256", "lpt", 0},
      {"host:deferred,seed=3", "1", "1", "4194304", "round_robin", 1},
      {"host:deferred,seed=4", "0", "1", "4194304", "rank0", 1},
      {"host:deferred,seed=5", "1", "2", "256", "round_robin", 0},
      {"host:deferred,seed=6", "1", "32", "4194304", "lpt", 0},
      {"host:late", "0", "32", "4194304", "lpt", 0},
      {"host:deferred,seed=7,late", "1", "2", "256", "round_robin", 1},
  };
  life x = {0};
  ref_param params[PARAMS];
  uint64_t first = 0;
  int good = 0;
  reference_create(l, params);
  const DMuonErrorCode code = checked_run(l, w, &plain, &x, params, &good, &first);
  if (!tap_ok(!code && good, "%s, %s: right values, one NaN skipped by all", l->label, w->label) &&
      code)
    tap_diag("%s", DMuonErrorGetMessage());
  if (!code) tap_ok(copies_equal(l, &x), "%s, %s: copies are equal", l->label, w->label);
  life_destroy(&x);
  reference_destroy(l, params);
  for (size_t i = 0; !code && i < sizeof variants / sizeof *variants; i++)
    if (i % (size_t)w->every == (size_t)w->every / 2) compare(l, w, &variants[i], first);
}

int main(int argc, char **argv) {
  tap_mpi_init(&argc, &argv);
  tap_plan(0);
  for (int i = 0; i < LAYOUTS; i++) {
    if (layouts[i].ranks != tap_size) continue;
    split(&layouts[i]);
    for (int w = 0; w < WAYS; w++) run_way(&layouts[i], &ways[w]);
    unsplit();
  }
  tap_ok(tap_size == 4 || tap_size == 6, "layouts for %d ranks", tap_size);
  return tap_mpi_done();
}
