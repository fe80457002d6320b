/* The model of step_case.h. */
#include "step_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define F32 DMUON_FLOAT32
#define MUON DMUON_ROUTE_MUON
#define ADAMW DMUON_ROUTE_ADAMW
const case_param case_params[CASE_PARAMS] = {
    {.name = "layers.0.a", F32, 2, {12, 8}, MUON},
    {.name = "layers.0.b", F32, 2, {8, 20}, MUON},
    {.name = "layers.0.bias", F32, 1, {12}, ADAMW},
    {.name = "layers.0.qkv", F32, 2, {24, 8}, MUON, .nblocks = 3, .blocks = {8, 8, 8}, .repeat = 1},
    {.name = "layers.1.square", F32, 2, {16, 16}, MUON},
    {.name = "layers.1.small", F32, 2, {5, 3}, MUON},
    {.name = "layers.1.row", F32, 2, {1, 5}, MUON},
    {.name = "layers.1.gated",
     F32,
     2,
     {12, 6},
     MUON,
     .nblocks = 4,
     .blocks = {4, 4, 2, 2},
     .repeat = 1},
    {.name = "layers.1.heads",
     F32,
     2,
     {6, 12},
     MUON,
     .output = DMUON_COLS,
     .nblocks = 3,
     .blocks = {2, 1, 1},
     .repeat = 3},
    {.name = "layers.2.experts", F32, 3, {3, 6, 5}, MUON, .nbatch = 1},
    {.name = "layers.2.conv", F32, 4, {6, 2, 3, 2}, MUON},
    {.name = "layers.2.double", DMUON_FLOAT64, 2, {7, 9}, MUON},
    {.name = "layers.2.brain", DMUON_BFLOAT16, 2, {10, 6}, MUON},
    {.name = "layers.2.empty", F32, 2, {0, 8}, MUON},
    {.name = "layers.2.frozen", F32, 2, {4, 4}, DMUON_ROUTE_FROZEN},
    {.name = "embed.weight", F32, 2, {9, 4}, ADAMW},
    {.name = "scalar", F32, 0, {0}, ADAMW},
    {.name = "layers.2.brain_bias", DMUON_BFLOAT16, 1, {7}, ADAMW},
    {.name = "layers.3.double_bias", DMUON_FLOAT64, 1, {3}, ADAMW},
};

int64_t case_numel(int param) {
  int64_t numel = 1;
  for (int i = 0; i < case_params[param].ndim; i++) numel *= case_params[param].dims[i];
  return numel;
}

/* ---- numbers --------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

/* In [-1, 1); for the small dtypes a multiple of 1/32 below 1. */
static double number(DMuonDType dtype, uint64_t key) {
  const uint64_t bits = mix(mix(key));
  if (dtype == DMUON_BFLOAT16 || dtype == DMUON_FLOAT16) return ((double)(bits % 63) - 31) / 32;
  if (dtype == DMUON_FLOAT64) return (double)(bits >> 11) / (double)(1ull << 52) - 1;
  return (double)(bits >> 40) / (1 << 23) - 1;
}

double case_weight(int param, int64_t index) {
  return number(case_params[param].dtype, (uint64_t)param << 32 | (uint64_t)index);
}

double case_gradient(int param, int64_t index, int rank, int step, int micro) {
  const uint64_t who = ((uint64_t)(rank + 1) << 16) + ((uint64_t)step << 8) + (uint64_t)micro;
  return number(case_params[param].dtype, mix(who) ^ ((uint64_t)param << 32 | (uint64_t)index));
}

int64_t case_bytes(DMuonDType dtype) {
  return dtype == DMUON_FLOAT64 ? 8 : dtype == DMUON_FLOAT32 ? 4 : 2;
}

static double half_to_double(uint16_t half) {
  const int exponent = half >> 10 & 31, fraction = half & 1023;
  double value = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
  if (exponent == 31) value = fraction ? NAN : INFINITY;
  return half >> 15 ? -value : value;
}

static uint16_t half_from_double(double value) {
  const uint16_t sign = signbit(value) ? 0x8000 : 0;
  int exponent;
  if (isnan(value)) return 0x7e00;
  value = fabs(value);
  frexp(value, &exponent);
  if (value >= 65520) return sign | 0x7c00;
  if (exponent < -13) return sign | (uint16_t)nearbyint(ldexp(value, 24));
  /* A fraction rounded up to 2048 carries into the exponent. */
  return (uint16_t)(sign + ((exponent + 13) << 10) + (int)nearbyint(ldexp(value, 11 - exponent)));
}

double case_load(DMuonDType dtype, const void *data, int64_t index) {
  const uint16_t *half = data;
  float single;
  switch (dtype) {
    case DMUON_FLOAT64:
      return ((const double *)data)[index];
    case DMUON_FLOAT32:
      return ((const float *)data)[index];
    case DMUON_FLOAT16:
      return half_to_double(half[index]);
    case DMUON_BFLOAT16: {
      const uint32_t bits = (uint32_t)half[index] << 16;
      memcpy(&single, &bits, sizeof single);
      return single;
    }
  }
  return NAN;
}

void case_store(DMuonDType dtype, void *data, int64_t index, double value) {
  const float single = (float)value;
  uint32_t bits;
  switch (dtype) {
    case DMUON_FLOAT64:
      ((double *)data)[index] = value;
      break;
    case DMUON_FLOAT32:
      ((float *)data)[index] = single;
      break;
    case DMUON_FLOAT16:
      ((uint16_t *)data)[index] = half_from_double(value);
      break;
    case DMUON_BFLOAT16:
      memcpy(&bits, &single, sizeof bits);
      if (isnan(single))
        bits = 0x7fc00000;
      else
        bits += 0x7fff + (bits >> 16 & 1);
      ((uint16_t *)data)[index] = (uint16_t)(bits >> 16);
      break;
  }
}

void case_fill_weights(step_case *c) {
  for (int p = 0; p < CASE_PARAMS; p++)
    for (int64_t i = 0; i < c->numel[p]; i++)
      case_store(case_params[p].dtype, c->weight[p], i, case_weight(p, i));
}

void case_fill_gradients(step_case *c, int step, int micro) {
  for (int p = 0; p < CASE_PARAMS; p++)
    for (int64_t i = 0; i < c->numel[p]; i++)
      case_store(case_params[p].dtype, c->gradient[p], i,
                 case_gradient(p, i, c->rank, step, micro));
}

/* ---- the model ------------------------------------------------------------------------------- */

static DMuonErrorCode add_param(step_case *c, int p, int is_lent) {
  const case_param *param = &case_params[p];
  if (is_lent)
    DMUON_CALL(DMuonModelAddParam(c->model, param->name, param->dtype, param->ndim, param->dims,
                                  &c->id[p]));
  else
    DMUON_CALL(DMuonModelAddParamArray(c->model, param->name, param->dtype, param->ndim,
                                       param->dims, c->weight[p], c->gradient[p], &c->id[p]));
  DMUON_CALL(DMuonModelSetRoute(c->model, param->name, param->route));
  if (param->nbatch) DMUON_CALL(DMuonModelSetMatrix(c->model, param->name, param->nbatch, 1));
  DMUON_CALL(DMuonModelSetOutput(c->model, param->name, param->output));
  if (param->nblocks)
    DMUON_CALL(
        DMuonModelSetBlocks(c->model, param->name, param->nblocks, param->blocks, param->repeat));
  return DMUON_SUCCESS;
}

DMuonErrorCode case_create(DMuonMesh mesh, step_case *c) {
  return case_create_as(mesh, 0, c);
}

DMuonErrorCode case_create_as(DMuonMesh mesh, int is_lent, step_case *c) {
  memset(c, 0, sizeof *c);
  for (int p = 0; p < CASE_PARAMS; p++) {
    c->numel[p] = case_numel(p);
    c->weight[p] = calloc((size_t)c->numel[p] + 1, 8);
    c->gradient[p] = calloc((size_t)c->numel[p] + 1, 8);
  }
  case_fill_weights(c);
  DMUON_CALL(DMuonModelCreate(mesh, &c->model));
  for (int p = 0; p < CASE_PARAMS; p++) DMUON_CALL(add_param(c, p, is_lent));
  DMUON_CALL(DMuonOptimizerCreate(c->model, &c->opt));
  return DMUON_SUCCESS;
}

DMuonErrorCode case_set_up(DMuonMesh mesh, step_case *c) {
  DMUON_CALL(DMuonOptimizerSetUp(c->opt));
  return DMuonMeshGetDataRank(mesh, &c->rank, &c->size);
}

void case_destroy(step_case *c) {
  DMuonModelDestroy(&c->model);
  DMuonOptimizerDestroy(&c->opt);
  for (int p = 0; p < CASE_PARAMS; p++) {
    free(c->weight[p]);
    free(c->gradient[p]);
  }
  memset(c, 0, sizeof *c);
}

/* ---- what came of it ------------------------------------------------------------------------- */

static uint64_t hash_bytes(uint64_t hash, const void *data, int64_t bytes) {
  const unsigned char *byte = data;
  for (int64_t i = 0; i < bytes; i++) hash = (hash ^ byte[i]) * 0x100000001b3u;
  return hash;
}

uint64_t case_hash(const step_case *c) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (int p = 0; p < CASE_PARAMS; p++)
    hash = hash_bytes(hash, c->weight[p], c->numel[p] * case_bytes(case_params[p].dtype));
  return hash;
}

DMuonErrorCode case_state_hash(step_case *c, uint64_t *hash) {
  static const char *const muon[] = {"momentum", "master", "step", NULL};
  static const char *const adamw[] = {"exp_avg", "exp_avg_sq", "master", "step", NULL};
  uint64_t made = 0xcbf29ce484222325u;
  for (int p = 0; p < CASE_PARAMS; p++) {
    if (case_params[p].route == DMUON_ROUTE_FROZEN) continue;
    const char *const *names = case_params[p].route == MUON ? muon : adamw;
    const int64_t bytes = 8 * c->numel[p] + 8;
    for (; *names; names++) {
      unsigned char *data = calloc((size_t)bytes, 1);
      DMuonErrorCode code = DMuonOptimizerGetState(c->opt, c->id[p], *names, data, DMUON_ALL);
      made = hash_bytes(made, data, bytes);
      free(data);
      DMUON_CALL(code);
    }
  }
  *hash = made;
  return DMUON_SUCCESS;
}

void case_reference(ref_param *params) {
  for (int p = 0; p < CASE_PARAMS; p++) {
    const case_param *from = &case_params[p];
    ref_param *to = &params[p];
    const int64_t numel = case_numel(p);
    *to = (ref_param){.route = from->route == MUON    ? REF_MUON
                               : from->route == ADAMW ? REF_ADAMW
                                                      : REF_FROZEN,
                      .batch = from->nbatch ? from->dims[0] : 1,
                      .rows = from->ndim > from->nbatch ? from->dims[from->nbatch] : 1,
                      .cols = 1,
                      .output_is_cols = from->output == DMUON_COLS,
                      .nblocks = from->nblocks,
                      .repeat = from->repeat};
    for (int i = from->nbatch + 1; i < from->ndim; i++) to->cols *= from->dims[i];
    memcpy(to->blocks, from->blocks, sizeof to->blocks);
    to->weight = calloc((size_t)numel + 1, sizeof(double));
    to->momentum_buffer = calloc((size_t)numel + 1, sizeof(double));
    to->exp_avg = calloc((size_t)numel + 1, sizeof(double));
    to->exp_avg_sq = calloc((size_t)numel + 1, sizeof(double));
    for (int64_t i = 0; i < numel; i++) to->weight[i] = case_weight(p, i);
  }
}

void case_reference_free(ref_param *params) {
  for (int p = 0; p < CASE_PARAMS; p++) {
    free(params[p].weight);
    free(params[p].momentum_buffer);
    free(params[p].exp_avg);
    free(params[p].exp_avg_sq);
  }
}

DMuonErrorCode case_open(MPI_Comm comm, const char *device, int async, DMuonMesh *mesh,
                         step_case *c) {
  DMUON_CALL(DMuonMeshCreate(comm, mesh));
  DMUON_CALL(DMuonMeshSetOption(*mesh, "device", device));
  DMUON_CALL(DMuonMeshSetOption(*mesh, "replicate", "2"));
  DMUON_CALL(case_create(*mesh, c));
  return DMuonOptimizerSetAsync(c->opt, async);
}

DMuonErrorCode case_step(step_case *c, int step) {
  case_fill_gradients(c, step, 0);
  return DMuonOptimizerStep(c->opt);
}

DMuonErrorCode case_good_run(int steps, uint64_t *hash) {
  DMuonMesh mesh = NULL;
  step_case c = {0};
  DMuonErrorCode code = case_open(MPI_COMM_WORLD, "host", 0, &mesh, &c);
  if (!code) code = case_set_up(mesh, &c);
  for (int t = 0; t < steps && !code; t++) code = case_step(&c, t);
  *hash = case_hash(&c);
  case_destroy(&c);
  DMuonMeshDestroy(&mesh);
  return code;
}
