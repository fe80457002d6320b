/* From settings to a recipe: decides which restarts a table gets, and refuses what cannot work at
 * any shape. Knows nothing of shapes or devices. */
#include "ns/ns.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *dmuon_ns_variant_name(dmuon_ns_variant variant) {
  switch (variant) {
    case DMUON_NS_AUTO:
      return "auto";
    case DMUON_NS_GRAM:
      return "gram";
    case DMUON_NS_DIRECT:
      return "direct";
  }
  return "unknown";
}

/* Reads "1,3" into at, which has room for steps - 1 positions: they are ascending. */
static DMuonErrorCode parse_positions(const char *text, int steps, int *count, int *at) {
  const char *p = text;
  int n = 0, last = 0;
  for (;;) {
    char *end = NULL;
    while (isspace((unsigned char)*p)) p++;
    errno = 0;
    long value = isdigit((unsigned char)*p) ? strtol(p, &end, 10) : 0;
    if (!end || errno) {
      DMUON_FAIL(DMUON_ERR_ARGUMENT,
                 "ns_restarts '%s': expected auto, none, or step indices like 1,3", text);
    }
    if (value <= last || value >= steps) {
      DMUON_FAIL(DMUON_ERR_ARGUMENT,
                 "ns_restarts '%s': position %ld is not in (%d,%d); positions ascend from 1 and a "
                 "table of %d steps has them below %d",
                 text, value, last, steps, steps, steps);
    }
    at[n++] = last = (int)value;
    for (p = end; isspace((unsigned char)*p);) p++;
    if (!*p) break;
    if (*p++ != ',') {
      DMUON_FAIL(DMUON_ERR_ARGUMENT, "ns_restarts '%s': expected ',' between step indices", text);
    }
  }
  *count = n;
  return DMUON_SUCCESS;
}

/* Fills restarts (room for steps), restart_count and condition. */
static DMuonErrorCode choose_restarts(dmuon_memory *memory, const char *text,
                                      dmuon_ns_recipe *recipe) {
  if (!strcmp(text, "auto")) {
    dmuon_ns_restarts found;
    DMUON_TRY(dmuon_ns_restarts_find(memory, recipe->steps, recipe->abc, &found));
    recipe->restart_count = found.count;
    recipe->condition = found.condition;
    memcpy(recipe->restarts, found.at, (size_t)found.count * sizeof *found.at);
    return DMUON_SUCCESS;
  }
  if (strcmp(text, "none")) {
    DMUON_TRY(parse_positions(text, recipe->steps, &recipe->restart_count, recipe->restarts));
  }
  return dmuon_ns_condition(memory, recipe->steps, recipe->abc, recipe->restart_count,
                            recipe->restarts, &recipe->condition);
}

static DMuonErrorCode check_recipe(const dmuon_ns_recipe *recipe) {
  if (recipe->variant != DMUON_NS_GRAM || !recipe->iterate_is_given) return DMUON_SUCCESS;
  if (recipe->iterate == DMUON_BFLOAT16 && recipe->restart_count == 0 && recipe->steps > 1) {
    DMUON_FAIL(DMUON_ERR_ARGUMENT,
               "a bf16 Gram iteration of %d steps without a restart is not accurate (condition "
               "%.3g); give ns_restarts auto, variant direct, or iterate in fp16 or fp32",
               recipe->steps, recipe->condition);
  }
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_ns_recipe_make(dmuon_memory *memory, dmuon_ns_variant variant, int steps,
                                    const double *abc, const char *restarts, int iterate_is_given,
                                    DMuonDType iterate, dmuon_ns_recipe *recipe) {
  dmuon_ns_recipe made = {
      .variant = variant, .steps = steps, .iterate_is_given = iterate_is_given, .iterate = iterate};
  if (steps < 1) DMUON_FAIL(DMUON_ERR_ARGUMENT, "a table of %d steps; at least 1", steps);
  for (int i = 0; i < 3 * steps; i++) {
    if (!isfinite(abc[i])) {
      DMUON_FAIL(DMUON_ERR_ARGUMENT, "coefficient %c of step %d is %g; a finite number is needed",
                 "abc"[i % 3], i / 3, abc[i]);
    }
  }
  DMuonErrorCode code = dmuon_memory_alloc(memory, 3 * (int64_t)steps, sizeof(double), &made.abc);
  if (!code) code = dmuon_memory_alloc(memory, steps, sizeof(int), &made.restarts);
  if (!code) memcpy(made.abc, abc, 3 * (size_t)steps * sizeof(double));
  if (!code) code = choose_restarts(memory, restarts, &made);
  if (!code) code = check_recipe(&made);
  if (code) {
    dmuon_ns_recipe_free(&made);
    return DMuonErrorTrace(code, __func__, __FILE__, __LINE__);
  }
  *recipe = made;
  return DMUON_SUCCESS;
}

void dmuon_ns_recipe_print(const dmuon_ns_recipe *recipe, dmuon_text *text) {
  dmuon_text_add(text, "ns_variant=%d\nns_dtype=%s\nns_batch=%lld\nns_steps=%d\n",
                 (int)recipe->variant,
                 recipe->iterate_is_given ? dmuon_dtype_name(recipe->iterate)
                 : recipe->prefers_half   ? "fp16 (of the device)"
                                          : "of the matrix",
                 recipe->batch > 0 ? (long long)recipe->batch : -(long long)recipe->prefers_batches,
                 recipe->steps);
  for (int i = 0; i < 3 * recipe->steps; i++)
    dmuon_text_add(text, "ns_coefficient %d=%.17g\n", i, recipe->abc[i]);
  for (int i = 0; i < recipe->restart_count; i++)
    dmuon_text_add(text, "ns_restart %d=%d\n", i, recipe->restarts[i]);
  for (int i = 0; i < recipe->choices.count; i++) {
    const dmuon_ns_choice *c = &recipe->choices.entries[i];
    dmuon_text_add(text, "ns_choice %lld x %lld in %s=%s, batch %lld, tile %lld\n",
                   (long long)c->small, (long long)c->big, dmuon_dtype_name(c->dtype),
                   dmuon_ns_variant_name(c->variant), (long long)c->batch, (long long)c->tile);
  }
}

void dmuon_ns_recipe_free(dmuon_ns_recipe *recipe) {
  if (!recipe) return;
  dmuon_ns_choices_free(&recipe->choices);
  dmuon_memory_release(&recipe->abc);
  dmuon_memory_release(&recipe->restarts);
}
