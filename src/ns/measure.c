/* Measuring which form runs faster for a shape, on the object's device, and keeping it: how a table
 * of choices comes to be. Decides what is compared (both forms one by one, then the faster one with
 * its symmetric products cut in other ways, then with more and more matrices together) and what is
 * a gain; nothing measures unless asked to. */
#include "ns/ns.h"

#include "base/json.h"
#include "base/random.h"

#define GAIN 0.95 /* of the time: what more matrices together must come below */

/* The matrices and their results on the device; stamps of the host's memory. */
typedef struct {
  DMuonNewtonSchulz ns;
  int64_t rows, cols;
  DMuonDType dtype;
  int repeat;
  int64_t tile; /* of the plans that are made */
  void *matrices;
  double *stamps; /* [2] */
} bench;

static DMuonErrorCode issue(const bench *b, const dmuon_ns_plan *plan) {
  dmuon_ns_matrix matrices[DMUON_NS_BATCH_MAX];
  const dmuon_ns_view view = {
      .rows = b->rows, .cols = b->cols, .ld = b->cols, .strips = 1, .strip = b->rows};
  /* All from the first matrix, each to its own place: the content does not matter to the time. */
  for (int64_t i = 0; i < plan->batch; i++)
    matrices[i] = (dmuon_ns_matrix){
        b->matrices, view, dmuon_dtype_at(b->matrices, (i + 1) * b->rows * b->cols, b->dtype), view,
        1.0};
  return dmuon_ns_issue_batch(b->ns->queue, b->ns->device, plan, plan->batch, matrices, b->dtype,
                              b->dtype, b->ns->workspace);
}

/* The shortest of the runs, a matrix: what disturbs only ever adds. */
static DMuonErrorCode time_plan(const bench *b, const dmuon_ns_plan *plan, double *seconds) {
  const DMuonDeviceOps *ops = b->ns->device->ops;
  double best = 0;
  for (int i = 0; i <= b->repeat; i++) { /* once to warm up */
    DMUON_TRY(ops->stamp(b->ns->queue, &b->stamps[0]));
    DMUON_TRY(issue(b, plan));
    DMUON_TRY(ops->stamp(b->ns->queue, &b->stamps[1]));
    DMUON_TRY(ops->queue_sync(b->ns->queue));
    const double now = (b->stamps[1] - b->stamps[0]) / (double)plan->batch;
    if (i == 1 || (i > 1 && now < best)) best = now;
  }
  *seconds = best > 0 ? best : 1e-9;
  return DMUON_SUCCESS;
}

/* The plan of one form, with so many together. */
static DMuonErrorCode plan_of(const bench *b, dmuon_ns_recipe *recipe, dmuon_ns_variant variant,
                              int64_t batch, dmuon_ns_plan *plan) {
  recipe->variant = variant;
  recipe->batch = batch;
  DMUON_TRY(dmuon_ns_plan_make(recipe, b->rows, b->cols, b->dtype, plan));
  dmuon_ns_plan_batch(plan, batch);
  plan->tile = b->tile;
  return dmuon_ns_prepare(b->ns, plan);
}

static int64_t most_together(const bench *b, dmuon_ns_recipe *recipe, dmuon_ns_variant variant) {
  int64_t most = 1;
  for (int64_t batch = 2; batch <= DMUON_NS_BATCH_MAX; batch *= 2) {
    dmuon_ns_plan plan;
    recipe->variant = variant;
    recipe->batch = batch;
    if (dmuon_ns_plan_make(recipe, b->rows, b->cols, b->dtype, &plan)) break;
    dmuon_ns_plan_batch(&plan, batch);
    if (plan.workspace_bytes > DMUON_NS_BATCH_BYTES) break;
    most = batch;
  }
  return most;
}

/* The time of the chosen form with so many together and such tiles; the best so far runs once more,
 * for machines that drift. */
static DMuonErrorCode against_best(bench *b, dmuon_ns_recipe *recipe, const dmuon_ns_choice *choice,
                                   int64_t batch, int64_t tile, double *seconds, double *best) {
  dmuon_ns_plan plan;
  double again = 0;
  b->tile = tile;
  DMUON_TRY(plan_of(b, recipe, choice->variant, batch, &plan));
  DMUON_TRY(time_plan(b, &plan, seconds));
  b->tile = choice->tile;
  DMUON_TRY(plan_of(b, recipe, choice->variant, choice->batch, &plan));
  DMUON_TRY(time_plan(b, &plan, &again));
  if (again < *best) *best = again;
  return DMUON_SUCCESS;
}

/* Not cut, and squares from 128 on, beside the device's own rule. */
static DMuonErrorCode compare_tiles(bench *b, dmuon_ns_recipe *recipe, dmuon_ns_choice *choice,
                                    double *best) {
  choice->batch = 1;
  for (int64_t tile = -1; tile < 0 || 2 * tile <= choice->small; tile = tile < 0 ? 128 : 2 * tile) {
    double seconds = 0;
    DMUON_TRY(against_best(b, recipe, choice, 1, tile, &seconds, best));
    if (seconds >= GAIN * *best) continue;
    *best = seconds;
    choice->tile = tile;
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode compare_forms(bench *b, dmuon_ns_choice *choice) {
  dmuon_ns_recipe recipe = b->ns->recipe; /* shares its arrays */
  dmuon_ns_plan plan;
  recipe.choices = (dmuon_ns_choices){0, NULL};
  recipe.variant = DMUON_NS_AUTO;
  DMUON_TRY(dmuon_ns_plan_make(&recipe, b->rows, b->cols, b->dtype, &plan));
  choice->small = plan.small, choice->big = plan.big, choice->dtype = plan.iterate;
  const int gram = dmuon_ns_plan_allows_gram(&plan);
  for (int v = gram ? DMUON_NS_GRAM : DMUON_NS_DIRECT; v <= DMUON_NS_DIRECT; v++) {
    DMUON_TRY(plan_of(b, &recipe, (dmuon_ns_variant)v, 1, &plan));
    DMUON_TRY(time_plan(b, &plan, &choice->seconds[v]));
  }
  choice->variant = gram && choice->seconds[DMUON_NS_GRAM] < choice->seconds[DMUON_NS_DIRECT]
                        ? DMUON_NS_GRAM
                        : DMUON_NS_DIRECT;
  double best = choice->seconds[choice->variant];
  if (b->ns->device->cuts_products) DMUON_TRY(compare_tiles(b, &recipe, choice, &best));
  const int64_t most = most_together(b, &recipe, choice->variant);
  choice->batch = 1;
  for (int64_t batch = 2; batch <= most; batch *= 2) {
    double seconds = 0;
    DMUON_TRY(against_best(b, &recipe, choice, batch, choice->tile, &seconds, &best));
    if (seconds >= GAIN * best) continue;
    best = seconds;
    choice->batch = batch;
  }
  return DMUON_SUCCESS;
}

/* A matrix of random numbers, made here and copied there. */
static DMuonErrorCode fill(const bench *b) {
  const DMuonDeviceOps *ops = b->ns->device->ops;
  const int64_t n = b->rows * b->cols, bytes = n * (int64_t)dmuon_dtype_bytes(b->dtype);
  void *host = NULL;
  DMUON_TRY(dmuon_memory_alloc(&b->ns->object.context->memory, bytes, 1, &host));
  for (int64_t i = 0; i < n; i++)
    dmuon_dtype_set(b->dtype, host, i, dmuon_random_uniform(1, 1, (uint64_t)i) - 0.5);
  DMuonErrorCode code = ops->copy(b->ns->queue, b->matrices, host, bytes);
  if (!code) code = ops->queue_sync(b->ns->queue);
  dmuon_memory_free(host);
  return code;
}

static DMuonErrorCode measure(bench *b, dmuon_ns_choice *choice) {
  dmuon_device *device = b->ns->device;
  const int64_t bytes = b->rows * b->cols * (int64_t)dmuon_dtype_bytes(b->dtype);
  dmuon_ns_recipe recipe = b->ns->recipe;
  recipe.choices = (dmuon_ns_choices){0, NULL};
  int64_t most = most_together(b, &recipe, DMUON_NS_DIRECT);
  DMUON_TRY(device->ops->alloc(device, (most + 1) * bytes, &b->matrices));
  void *stamps = NULL;
  DMUON_TRY(device->ops->alloc_host(device, 2 * (int64_t)sizeof *b->stamps, &stamps));
  b->stamps = stamps;
  if (!b->ns->queue) DMUON_TRY(device->ops->queue_create(device, 0, &b->ns->queue));
  DMUON_TRY(device->ops->reserve(device, 8));
  DMUON_TRY(fill(b));
  return compare_forms(b, choice);
}

DMuonErrorCode DMuonNewtonSchulzMeasure(DMuonNewtonSchulz ns, int64_t rows, int64_t cols,
                                        DMuonDType dtype, int repeat) {
  bench b = {.ns = ns, .rows = rows, .cols = cols, .dtype = dtype, .repeat = repeat};
  dmuon_ns_choice choice = {.batch = 0};
  DMUON_TRY(dmuon_object_check_state(ns, DMUON_CLASS_NEWTON_SCHULZ, 1, __func__));
  DMUON_TRY(dmuon_ns_check(ns));
  if (!ns->device)
    DMUON_FAIL(DMUON_ERR_UNSUPPORTED,
               "the mesh is a plan without ranks: it has no device to measure on");
  if (rows < 1 || cols < 1 || repeat < 1)
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "%lld x %lld, %d times; each is at least 1", (long long)rows,
               (long long)cols, repeat);
  dmuon_ns_plan plan;
  DMUON_TRY(dmuon_ns_plan_make(&ns->recipe, rows, cols, dtype, &plan)); /* size and dtype */
  DMuonErrorCode code = measure(&b, &choice);
  if (code) dmuon_queue_settle(ns->device, ns->queue, code);
  ns->device->ops->free(ns->device, b.matrices);
  ns->device->ops->free_host(ns->device, b.stamps);
  DMUON_TRY(code);
  return dmuon_ns_choices_add(&ns->object.context->memory, &ns->recipe.choices, &choice);
}

DMuonErrorCode DMuonNewtonSchulzSaveChoices(DMuonNewtonSchulz ns, const char *path) {
  dmuon_text text;
  char *json = NULL;
  const char *data = NULL;
  DMUON_TRY(dmuon_object_check_state(ns, DMUON_CLASS_NEWTON_SCHULZ, 1, __func__));
  DMUON_TRY(dmuon_ns_choices_print(&ns->recipe.choices, ns->device ? ns->device->ops->name : "none",
                                   &json));
  dmuon_text_init(&text, &ns->object.context->memory);
  dmuon_text_add(&text, "%s\n", json);
  DMuonFree(json);
  DMuonErrorCode code = dmuon_text_finish(&text, &data);
  if (!code) code = dmuon_text_write(&text, path);
  dmuon_text_free(&text);
  return code;
}
