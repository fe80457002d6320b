/* One parameter as a value: copied, freed, put into words. Decides nothing about it. */
#include "model/param.h"

#include <stdio.h>
#include <string.h>

#include "base/dtype.h"

DMuonErrorCode dmuon_param_copy(dmuon_memory *memory, dmuon_param *to, const dmuon_param *from) {
  dmuon_param copy = *from;
  copy.name = copy.route_reason = copy.group = NULL;
  copy.blocks = NULL;
  DMuonErrorCode code = dmuon_memory_strdup(memory, from->name, &copy.name);
  if (!code && from->route_reason)
    code = dmuon_memory_strdup(memory, from->route_reason, &copy.route_reason);
  if (!code && from->group) code = dmuon_memory_strdup(memory, from->group, &copy.group);
  if (!code && from->nblocks) {
    code = dmuon_memory_alloc(memory, from->nblocks, sizeof *copy.blocks, &copy.blocks);
    if (!code) memcpy(copy.blocks, from->blocks, (size_t)from->nblocks * sizeof *copy.blocks);
  }
  if (code) dmuon_param_free(&copy);
  *to = copy;
  return code;
}

void dmuon_param_free(dmuon_param *param) {
  dmuon_memory_free(param->name);
  dmuon_memory_free(param->route_reason);
  dmuon_memory_free(param->group);
  dmuon_memory_free(param->blocks);
  memset(param, 0, sizeof *param);
}

void dmuon_params_free(dmuon_param *params, int count) {
  if (!params) return;
  for (int i = 0; i < count; i++) dmuon_param_free(&params[i]);
  dmuon_memory_free(params);
}

/* Appends at *used, cutting short where the buffer ends. */
static void put(char *buffer, size_t size, size_t *used, const char *before, int64_t value) {
  if (*used + 1 >= size) return;
  int n = snprintf(buffer + *used, size - *used, "%s%lld", before, (long long)value);
  if (n > 0) *used += (size_t)n;
  if (*used >= size) *used = size - 1;
}

const char *dmuon_shape_text(char *buffer, size_t size, int ndim, const int64_t *dims) {
  size_t used = 0;
  if (ndim == 0) snprintf(buffer, size, "scalar");
  for (int i = 0; i < ndim; i++) put(buffer, size, &used, i ? "x" : "", dims[i]);
  return buffer;
}

const char *dmuon_view_text(char *buffer, size_t size, const dmuon_param *param) {
  size_t used = 0;
  buffer[0] = '\0';
  if (param->batch != 1) {
    put(buffer, size, &used, "", param->batch);
    put(buffer, size, &used, " of ", param->rows);
  } else {
    put(buffer, size, &used, "", param->rows);
  }
  put(buffer, size, &used, "x", param->cols);
  if (param->nblocks) {
    put(buffer, size, &used, ", blocks ", param->repeat);
    for (int i = 0; i < param->nblocks; i++)
      put(buffer, size, &used, i ? "," : "x(", param->blocks[i]);
    if (used + 1 < size) snprintf(buffer + used, size - used, ")");
  }
  return buffer;
}

const char *dmuon_param_describe(char *buffer, size_t size, const dmuon_param *param) {
  char shape[200];
  snprintf(buffer, size, "%s: %s %s, %s, group %s", param->name, dmuon_dtype_name(param->dtype),
           dmuon_shape_text(shape, sizeof shape, param->ndim, param->dims),
           dmuon_route_name(param->route), param->group ? param->group : "(none)");
  return buffer;
}

const char *dmuon_route_name(DMuonRoute route) {
  switch (route) {
    case DMUON_ROUTE_MUON:
      return "muon";
    case DMUON_ROUTE_ADAMW:
      return "adamw";
    case DMUON_ROUTE_ADAMW_SHARDED:
      return "adamw_sharded";
    case DMUON_ROUTE_FROZEN:
      return "frozen";
  }
  return "unknown";
}

const char *dmuon_side_name(DMuonSide side) {
  return side == DMUON_COLS ? "cols" : "rows";
}
