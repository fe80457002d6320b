/* Playing the ranks of a plan one kind at a time. Two ranks are of one kind when they update
 * pieces of the same parameters and their columns (and, of gathered parameters, their rows) hold
 * pieces of the same parameters: then they issue the same operations. What ranks agree on is what
 * the one that is played says: a drive must lead all ranks to the same answers. */
#include "rehearsal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/trace/trace.h"
#include "base/hash.h"
#include "mesh/mesh.h"
#include "optim/optimizer.h"

enum { STEPS = 2, MAX_DIMS = 8 };

/* ---- the model ----------------------------------------------------------------------------- */

/* Arrays of the caller's that nobody looks into: addresses, each with room behind it. */
static char *somewhere(uint64_t *next, int64_t bytes) {
  char *address = (char *)(uintptr_t)*next;
  *next += ((uint64_t)bytes + 8191) / 4096 * 4096;
  return address;
}

static DMuonErrorCode add(const rehearsal_plan *plan, DMuonModel model, const char *name,
                          DMuonDType dtype, int ndim, const int64_t *dims, uint64_t *next) {
  int64_t bytes = (int64_t)dmuon_dtype_bytes(dtype);
  for (int i = 0; i < ndim; i++) bytes *= dims[i];
  if (plan->is_lent) return DMuonModelAddParam(model, name, dtype, ndim, dims, NULL);
  char *weights = somewhere(next, bytes), *gradients = somewhere(next, bytes);
  return DMuonModelAddParamArray(model, name, dtype, ndim, dims, weights, gradients, NULL);
}

static DMuonErrorCode add_line(const rehearsal_plan *plan, DMuonModel model, char *line,
                               uint64_t *next) {
  char name[256], dtype_word[16], dims_word[128];
  int64_t dims[MAX_DIMS];
  DMuonDType dtype;
  int ndim = 0;
  line[strcspn(line, "#\r\n")] = 0;
  if (sscanf(line, "%255s %15s %127s", name, dtype_word, dims_word) != 3) return DMUON_SUCCESS;
  DMUON_TRY(dmuon_dtype_parse(dtype_word, &dtype));
  for (char *at = dims_word; ndim < MAX_DIMS;) {
    dims[ndim++] = strtoll(at, &at, 10);
    if (*at++ != ',') break;
  }
  return add(plan, model, name, dtype, ndim, dims, next);
}

static DMuonErrorCode add_file(const rehearsal_plan *plan, DMuonModel model, uint64_t *next) {
  char line[512];
  FILE *file = fopen(plan->shapes, "r");
  DMuonErrorCode code = DMUON_SUCCESS;
  if (!file) DMUON_FAIL(DMUON_ERR_FILE, "%s: %s", plan->shapes, strerror(errno));
  while (!code && fgets(line, sizeof line, file)) code = add_line(plan, model, line, next);
  fclose(file);
  return code;
}

static DMuonErrorCode add_layers(const rehearsal_plan *plan, DMuonModel model, uint64_t *next) {
  const int64_t w = plan->width;
  for (int l = 0; l < plan->layers; l++) {
    const struct {
      const char *part;
      int ndim;
      int64_t dims[2];
    } parts[] = {{"norm", 1, {w, 0}}, {"up", 2, {4 * w, w}}, {"down", 2, {w, 4 * w}}};
    for (int i = 0; i < 3; i++) {
      char name[40];
      snprintf(name, sizeof name, "h.%d.%s", l, parts[i].part);
      DMUON_TRY(add(plan, model, name, DMUON_FLOAT32, parts[i].ndim, parts[i].dims, next));
    }
  }
  return DMUON_SUCCESS;
}

DMuonErrorCode rehearsal_add_params(const rehearsal_plan *plan, DMuonModel model) {
  uint64_t next = UINT64_C(1) << 40;
  return plan->shapes ? add_file(plan, model, &next) : add_layers(plan, model, &next);
}

/* ---- kinds of ranks ------------------------------------------------------------------------ */

/* What rank (r, s) updates; gathered: of that what moves along its row. */
static uint64_t own_key(DMuonOptimizer opt, int r, int s, int gathered) {
  const dmuon_packing *packing = &opt->runtime.packing;
  const int R = dmuon_optimizer_mesh(opt)->sizes[0];
  uint64_t key = DMUON_HASH_SEED;
  for (int b = 0; b < packing->bundle_count; b++) {
    const dmuon_bundle *bundle = &packing->bundles[b];
    if (gathered && bundle->residency != DMUON_RESIDENCY_GATHERED) continue;
    for (int i = 0; i < bundle->count; i++) {
      const int64_t numel = opt->model->registry.params[bundle->params[i].param].numel;
      int64_t first, count;
      dmuon_bundle_share(bundle, i, numel, R, r, s, &first, &count);
      if (count > 0) key = dmuon_hash_int(dmuon_hash_int(key, b), i);
    }
  }
  return key;
}

typedef struct {
  uint64_t *own, *column, *row, *kind;
} keys;

/* own by rank, column by s, row by r. */
static void fill_keys(DMuonOptimizer opt, int R, int G, keys *k) {
  for (int r = 0; r < R; r++)
    for (int s = 0; s < G; s++) {
      const uint64_t own = own_key(opt, r, s, 0), moved = own_key(opt, r, s, 1);
      k->own[r * G + s] = own;
      if (own != DMUON_HASH_SEED) k->column[s] = dmuon_hash_int(k->column[s], (int64_t)own);
      if (moved != DMUON_HASH_SEED) k->row[r] = dmuon_hash_int(k->row[r], (int64_t)moved);
    }
}

/* There are as many kinds as owners, and a few more: a list is searched. */
static void number_kinds(const rehearsal_plan *plan, const keys *k, rehearsal *made) {
  const int G = made->sizes[1];
  for (int p = 0; p < made->ranks; p++) {
    const int is_odd = plan->has_odd_rank && plan->odd_rank == p;
    uint64_t key = dmuon_hash_int(k->own[p], (int64_t)k->column[p % G]);
    key = dmuon_hash_int(dmuon_hash_int(key, (int64_t)k->row[p / G]), is_odd);
    int c = made->class_count - 1;
    while (c >= 0 && k->kind[c] != key) c--;
    if (c < 0) {
      c = made->class_count++;
      k->kind[c] = key;
      made->stand_in[c] = p;
    }
    made->class_of[p] = c;
  }
}

static DMuonErrorCode find_kinds(const rehearsal_plan *plan, DMuonOptimizer opt, rehearsal *made) {
  dmuon_memory *memory = &made->memory;
  keys k = {0};
  uint64_t **lists[] = {&k.own, &k.column, &k.row, &k.kind};
  DMuonErrorCode code = dmuon_memory_alloc(memory, made->ranks, sizeof(int), &made->class_of);
  if (!code) code = dmuon_memory_alloc(memory, made->ranks, sizeof(int), &made->stand_in);
  for (size_t i = 0; !code && i < sizeof lists / sizeof lists[0]; i++)
    code = dmuon_memory_alloc(memory, made->ranks, sizeof(uint64_t), lists[i]);
  if (!code) {
    fill_keys(opt, made->sizes[0], made->sizes[1], &k);
    number_kinds(plan, &k, made);
  }
  for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) dmuon_memory_free(*lists[i]);
  return code;
}

/* ---- playing ------------------------------------------------------------------------------- */

typedef struct {
  const rehearsal_plan *plan;
  DMuonMesh mesh;
  DMuonModel model;
  DMuonPartition partition;
} stage;

static DMuonErrorCode set_stage(stage *s) {
  const rehearsal_plan *plan = s->plan;
  DMUON_TRY(DMuonMeshCreatePlan(plan->replicate, plan->shard, 1, &s->mesh));
  DMUON_TRY(DMuonMeshSetDevice(s->mesh, DMUON_DEVICE_TRACE, DMUON_DECIDE));
  for (int i = 0; plan->options[i]; i++) {
    char name[64];
    snprintf(name, sizeof name, "%s", plan->options[i]);
    char *value = strchr(name, '=');
    *value++ = 0;
    DMUON_TRY(DMuonMeshSetOption(s->mesh, name, value));
  }
  DMUON_TRY(DMuonModelCreate(s->mesh, &s->model));
  DMUON_TRY(rehearsal_add_params(plan, s->model));
  if (plan->adapt_model) DMUON_TRY(plan->adapt_model(s->model));
  DMUON_TRY(DMuonPartitionCreate(s->model, &s->partition));
  return DMuonPartitionSetUp(s->partition);
}

static DMuonErrorCode make_optimizer(stage *s, int position, DMuonOptimizer *opt) {
  DMUON_TRY(dmuon_mesh_play(s->mesh, position / s->plan->shard, position % s->plan->shard, 0));
  DMUON_TRY(DMuonOptimizerCreate(s->model, opt));
  DMUON_TRY(DMuonOptimizerSetPartition(*opt, s->partition));
  if (s->plan->adapt_optimizer) DMUON_TRY(s->plan->adapt_optimizer(*opt));
  return DMuonOptimizerSetUp(*opt);
}

int64_t rehearsal_behind(const dmuon_trace *trace, int64_t from, const char *note) {
  for (int64_t i = from; i < trace->record_count; i++) {
    const int64_t text = trace->records[i].text;
    if (text >= 0 && strcmp(trace->text + text, note) == 0) return i + 1;
  }
  return trace->record_count;
}

/* The trace of one rank: from the first operation of SetUp to the last free. */
static DMuonErrorCode play(stage *s, int position, dmuon_memory *memory, dmuon_trace *trace,
                           int64_t bytes[3]) {
  DMuonOptimizer opt = NULL;
  dmuon_trace_log *log = dmuon_trace_log_of(s->mesh->device);
  dmuon_trace_log_reset(log);
  DMuonErrorCode code = make_optimizer(s, position, &opt);
  dmuon_device_note(s->mesh->device, REHEARSAL_START);
  if (!code) code = s->plan->drive(opt, position);
  for (int axis = 0; !code && axis < 3; axis++) {
    DMuonCommInfo info = {.struct_size = sizeof info};
    code = DMuonMeshGetCommInfo(s->mesh, (DMuonAxis)axis, &info);
    bytes[axis] = info.bytes_sent;
  }
  dmuon_device_note(s->mesh->device, REHEARSAL_END);
  DMuonErrorCode gone = DMuonOptimizerDestroy(&opt);
  if (!code) code = gone;
  if (!code) code = dmuon_trace_copy(memory, &log->trace, trace);
  return code;
}

static DMuonErrorCode run(stage *s, rehearsal *made) {
  DMuonOptimizer opt = NULL;
  DMUON_TRY(set_stage(s));
  DMuonErrorCode code = make_optimizer(s, 0, &opt);
  if (!code) code = find_kinds(s->plan, opt, made);
  DMuonOptimizerDestroy(&opt);
  DMUON_TRY(code);
  DMUON_TRY(
      dmuon_memory_alloc(&made->memory, made->class_count, sizeof *made->traces, &made->traces));
  DMUON_TRY(dmuon_memory_alloc(&made->memory, made->class_count, sizeof *made->list, &made->list));
  DMUON_TRY(
      dmuon_memory_alloc(&made->memory, made->class_count, sizeof *made->bytes, &made->bytes));
  for (int c = 0; c < made->class_count; c++) {
    made->list[c] = &made->traces[c];
    dmuon_trace *trace = &made->traces[c];
    DMUON_TRY(play(s, made->stand_in[c], &made->memory, trace, made->bytes[c]));
    made->operations += trace->record_count;
    if (!s->plan->judged) continue;
    DMUON_TRY(dmuon_trace_verify_rank(&made->memory, trace, made->stand_in[c], s->plan->judged));
    DMUON_TRY(dmuon_trace_strip(trace));
  }
  made->peak_bytes = s->mesh->context.memory.peak_bytes;
  return DMUON_SUCCESS;
}

DMuonErrorCode rehearsal_run(const rehearsal_plan *plan, rehearsal *made) {
  stage s = {.plan = plan};
  memset(made, 0, sizeof *made);
  made->sizes[0] = plan->replicate;
  made->sizes[1] = plan->shard;
  made->sizes[2] = 1;
  made->ranks = plan->replicate * plan->shard;
  DMuonErrorCode code = run(&s, made);
  DMuonPartitionDestroy(&s.partition);
  DMuonModelDestroy(&s.model);
  DMuonMeshDestroy(&s.mesh);
  return code;
}

void rehearsal_free(rehearsal *made) {
  for (int c = 0; made->traces && c < made->class_count; c++) dmuon_trace_free(&made->traces[c]);
  dmuon_memory_free(made->traces);
  dmuon_memory_free(made->list);
  dmuon_memory_free(made->bytes);
  dmuon_memory_free(made->class_of);
  dmuon_memory_free(made->stand_in);
  memset(made, 0, sizeof *made);
}

dmuon_trace_set rehearsal_set(const rehearsal *made) {
  return (dmuon_trace_set){.sizes = {made->sizes[0], made->sizes[1], made->sizes[2]},
                           .class_count = made->class_count,
                           .classes = made->list,
                           .class_of = made->class_of};
}

/* ---- drives -------------------------------------------------------------------------------- */

/* What the caller does with his arrays between steps. */
static DMuonErrorCode use_arrays(DMuonOptimizer opt, int gradients) {
  dmuon_device *device = dmuon_optimizer_mesh(opt)->device;
  const dmuon_registry *registry = &opt->model->registry;
  for (int id = 0; id < registry->local_count; id++) {
    const dmuon_param *param = &registry->params[registry->local_to_global[id]];
    const int64_t bytes = param->numel * (int64_t)dmuon_dtype_bytes(param->dtype);
    if (gradients)
      DMUON_TRY(dmuon_trace_touch(device, opt->arrays[id].gradients, bytes, 1));
    else
      DMUON_TRY(dmuon_trace_touch(device, opt->arrays[id].weights, bytes, 0));
  }
  return DMUON_SUCCESS;
}

DMuonErrorCode rehearsal_step_arrays(DMuonOptimizer opt, int rank) {
  dmuon_device *device = dmuon_optimizer_mesh(opt)->device;
  (void)rank;
  for (int step = 0; step < STEPS; step++) {
    dmuon_device_note(device, "gradients of step %d", step);
    DMUON_TRY(use_arrays(opt, 1));
    dmuon_device_note(device, "step %d", step);
    DMUON_TRY(DMuonOptimizerStep(opt));
  }
  dmuon_device_note(device, "the end");
  DMUON_TRY(DMuonOptimizerWait(opt));
  return use_arrays(opt, 0);
}

/* All gradients of the group are asked for; what the caller does with them shows when they are
 * taken back. */
static DMuonErrorCode ask_for_gradients(DMuonOptimizer opt, DMuonGroup group) {
  const int *ids;
  int count;
  DMUON_TRY(DMuonGroupGetParams(group, &count, &ids));
  for (int i = 0; i < count; i++) {
    const dmuon_registry *registry = &opt->model->registry;
    void *grad;
    if (registry->params[registry->local_to_global[ids[i]]].route == DMUON_ROUTE_FROZEN) continue;
    DMUON_TRY(DMuonGroupGetGrad(group, ids[i], &grad));
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode find_group(DMuonOptimizer opt, int index, int is_backward, const char *what,
                                 DMuonGroup *group) {
  const char *key;
  DMUON_TRY(DMuonOptimizerGetGroup(opt, index, group));
  DMUON_TRY(DMuonGroupGetKey(*group, &key));
  dmuon_device_note(dmuon_optimizer_mesh(opt)->device, "%s of %s %s",
                    is_backward ? "backward" : "forward", key, what);
  return DMUON_SUCCESS;
}

DMuonErrorCode rehearsal_begin(DMuonOptimizer opt, int index, int is_backward) {
  DMuonGroup group;
  DMUON_TRY(find_group(opt, index, is_backward, "begins", &group));
  if (!is_backward) return DMuonGroupForwardBegin(group);
  DMUON_TRY(DMuonGroupBackwardBegin(group));
  return ask_for_gradients(opt, group);
}

DMuonErrorCode rehearsal_end(DMuonOptimizer opt, int index, int is_backward) {
  DMuonGroup group;
  DMUON_TRY(find_group(opt, index, is_backward, "ends", &group));
  return is_backward ? DMuonGroupBackwardEnd(group) : DMuonGroupForwardEnd(group);
}

static DMuonErrorCode run_group(DMuonOptimizer opt, int index, int is_backward) {
  DMUON_TRY(rehearsal_begin(opt, index, is_backward));
  return rehearsal_end(opt, index, is_backward);
}

DMuonErrorCode rehearsal_forward(DMuonOptimizer opt) {
  int count;
  DMUON_TRY(DMuonOptimizerGetGroupCount(opt, &count));
  for (int g = 0; g < count; g++) DMUON_TRY(run_group(opt, g, 0));
  return DMUON_SUCCESS;
}

DMuonErrorCode rehearsal_backward(DMuonOptimizer opt) {
  int count;
  DMUON_TRY(DMuonOptimizerGetGroupCount(opt, &count));
  for (int g = count - 1; g >= 0; g--) DMUON_TRY(run_group(opt, g, 1));
  return DMUON_SUCCESS;
}

DMuonErrorCode rehearsal_train(DMuonOptimizer opt, int rank) {
  (void)rank;
  for (int step = 0; step < STEPS; step++) {
    DMUON_TRY(rehearsal_forward(opt));
    DMUON_TRY(rehearsal_backward(opt));
    dmuon_device_note(dmuon_optimizer_mesh(opt)->device, "step %d", step);
    DMUON_TRY(DMuonOptimizerStep(opt));
  }
  return DMUON_SUCCESS;
}
