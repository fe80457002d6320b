/* What comes out of a run: who owns what, the parameters, times and bytes of all ranks together. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ranks.h"
#include "train.h"

DMuonErrorCode results_show_owners(const Training *run) {
  enum { SHOWN = 16 };
  const int *mesh = run->report.mesh, slots = mesh[0] * mesh[1] * mesh[2];
  long long tensors[SHOWN][2] = {{0}}, elements[SHOWN][2] = {{0}}; /* muon, all else */
  int count;
  DMUON_CALL(DMuonModelGetCount(run->model, &count));
  for (int id = 0; id < count; id++) {
    DMuonParamInfo p = {.struct_size = sizeof p};
    DMUON_CALL(DMuonModelGetParam(run->model, id, &p));
    const int slot = (p.owner_replicate * mesh[1] + p.owner_shard) * mesh[2] + p.owner_tp;
    if (slot < 0 || slot >= SHOWN) continue;
    tensors[slot][p.route != DMUON_ROUTE_MUON]++;
    elements[slot][p.route != DMUON_ROUTE_MUON] += p.numel;
  }
  printf("owners (replicate,shard): tensors and elements with muon, with adamw\n");
  for (int i = 0; i < slots && i < SHOWN; i++) {
    printf("  (%d,%d)  %5lld %10lld    %5lld %10lld\n", i / mesh[2] / mesh[1],
           i / mesh[2] % mesh[1], tensors[i][0], elements[i][0], tensors[i][1], elements[i][1]);
  }
  if (slots > SHOWN) printf("  and %d more\n", slots - SHOWN);
  return DMUON_SUCCESS;
}

/* Adds to *sum FNV-1a over name and bytes of each parameter: no order of theirs matters. file, if
 * not NULL, gets the values as fp32. */
static DMuonErrorCode read_parameters(Training *run, uint64_t *sum, FILE *file) {
  const int half = run->dtype == DMUON_BFLOAT16;
  int64_t room = 0;
  for (int i = 0; i < GPT_TENSORS; i++) {
    if (run->gpt->tensor[i].numel > room) room = run->gpt->tensor[i].numel;
  }
  float *wide = malloc((size_t)room * sizeof *wide);
  void *value = half ? malloc((size_t)room * sizeof(uint16_t)) : wide;
  if (!wide || !value) train_abort(run);
  DMuonErrorCode code = DMUON_SUCCESS;
  for (int i = 0; i < GPT_TENSORS; i++) {
    const GptTensor *t = &run->gpt->tensor[i];
    const size_t bytes = (size_t)t->numel * (half ? sizeof(uint16_t) : sizeof *wide);
    for (int l = 0; l < (t->layers ? t->layers : 1) && !code; l++) {
      char name[GPT_NAME];
      uint64_t h = 0xcbf29ce484222325u;
      if ((code = run->form->get(run, i, l, value))) break;
      gpt_tensor_name(t, l, name);
      for (const char *c = name; *c; c++) h = (h ^ (unsigned char)*c) * 0x100000001b3u;
      for (size_t b = 0; b < bytes; b++) h = (h ^ ((unsigned char *)value)[b]) * 0x100000001b3u;
      *sum += h;
      if (half) train_widen(wide, value, t->numel);
      if (file) fwrite(wide, sizeof *wide, (size_t)t->numel, file);
    }
  }
  free(wide);
  if (half) free(value);
  return code;
}

DMuonErrorCode results_traffic(const Training *run, int64_t bytes[3], int64_t operations[3]) {
  for (int a = 0; a < 3; a++) {
    DMuonCommInfo info = {.struct_size = sizeof info};
    DMUON_CALL(DMuonMeshGetCommInfo(run->mesh, (DMuonAxis)(DMUON_AXIS_REPLICATE + a), &info));
    bytes[a] = info.bytes_sent;
    operations[a] = info.operations;
  }
  return DMUON_SUCCESS;
}

/* The number behind a chain of keys, each looked for behind the one before; 0: there is none. */
static double number_behind(const char *json, int count, const char *const keys[]) {
  for (int i = 0; i < count && json; i++) {
    char key[64];
    snprintf(key, sizeof key, "\"%s\":", keys[i]);
    json = strstr(json, key);
    if (json) json += strlen(key);
  }
  return json ? strtod(json, NULL) : 0;
}

/* What the library says of this rank: what a step was to send along replicate and shard in all its
 * passes; the most memory that it was to take, and has taken. */
typedef struct {
  double bytes[2], memory_planned, memory;
} Told;

static DMuonErrorCode ask(const Training *run, Told *told) {
  const Settings *s = run->settings;
  const char *more = s->reduce_each ? "further_micro_batch" : "further_micro_batch_accumulated";
  const double further = (double)(run->report.passes - 1);
  char *json;
  DMUON_CALL(DMuonOptimizerSummary(run->opt, &json));
  for (int a = 0; a < 2; a++) {
    const char *const axis = a ? "shard" : "replicate";
    const char *const last[] = {"comm_plan", "totals", "step", axis, "bytes"};
    const char *const before[] = {"comm_plan", "totals", more, axis, "bytes"};
    told->bytes[a] = number_behind(json, 5, last) + further * number_behind(json, 5, before);
  }
  const char *const total[] = {"memory_plan", "total"};
  const char *const sums[] = {"memory_plan", "accumulators"};
  told->memory_planned = number_behind(json, 2, total);
  if (run->report.passes > 1 && !s->reduce_each) {
    told->memory_planned += number_behind(json, 2, sums);
  }
  DMuonFree(json);
  DMUON_CALL(DMuonMeshSummary(run->mesh, &json));
  const char *const peak[] = {"memory", "peak_bytes"};
  told->memory = number_behind(json, 2, peak);
  DMuonFree(json);
  return DMUON_SUCCESS;
}

DMuonErrorCode results_gather(Training *run, FILE *save, int *differ) {
  Report *r = &run->report;
  double sums[PHASES + 16];
  Told told = {.memory = 0};
  int n = 0;
  DMUON_CALL(ask(run, &told));
  for (int p = 0; p < PHASES; p++) sums[n++] = r->seconds[p];
  for (int a = 0; a < 3; a++) {
    sums[n++] = (double)r->bytes[a];
    sums[n++] = (double)r->operations[a];
    sums[n++] = (double)r->bytes_steps[a];
  }
  sums[n++] = told.bytes[0];
  sums[n++] = told.bytes[1];
  sums[n++] = told.memory_planned;
  sums[n++] = told.memory;
  sums[n++] = r->total;
  sums[n++] = r->in_step;
  r->parameter_hash = 0;
  DMUON_CALL(read_parameters(run, &r->parameter_hash, save));
  uint64_t root = r->parameter_hash;
  ranks_broadcast(&root, sizeof root);
  sums[n++] = root != r->parameter_hash;
  ranks_sum(sums, n);

  for (int p = 0; p < PHASES; p++) r->seconds[p] = sums[p] / r->ranks;
  for (int a = 0; a < 3; a++) {
    r->bytes[a] = (int64_t)sums[PHASES + 3 * a];
    r->operations[a] = (int64_t)sums[PHASES + 3 * a + 1];
    r->bytes_steps[a] = (int64_t)sums[PHASES + 3 * a + 2];
  }
  for (int a = 0; a < 2; a++) r->bytes_planned[a] = (int64_t)sums[n - 7 + a];
  r->memory_planned_total = (int64_t)sums[n - 5];
  r->memory_total = (int64_t)sums[n - 4];
  r->memory_planned_most = (int64_t)ranks_max(told.memory_planned);
  r->memory_most = (int64_t)ranks_max(told.memory);
  r->total = sums[n - 3] / r->ranks;
  r->in_step = sums[n - 2] / r->ranks;
  *differ = sums[n - 1] > 0;
  r->seconds[PHASE_OTHER] = r->total;
  for (int p = 0; p < PHASE_OTHER; p++) r->seconds[PHASE_OTHER] -= r->seconds[p];
  if (r->seconds[PHASE_OTHER] < 0) r->seconds[PHASE_OTHER] = 0; /* phases overlap */
  return DMUON_SUCCESS;
}
