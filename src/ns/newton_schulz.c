/* The public object: settings, options, set-up, and Apply on the caller's own memory. It decides
 * nothing about numbers: recipe.c, plan.c and run.c do. View is in view.c. */
#include "ns/ns.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/glob.h"
#include "mesh/mesh.h"

enum {
  OPTION_VARIANT,
  OPTION_COEFFICIENTS,
  OPTION_RESTARTS,
  OPTION_DTYPE,
  OPTION_BATCH,
  OPTION_CHOICES,
  OPTION_COUNT
};

static const char *const variant_values[] = {"auto", "gram", "direct", NULL};
/* After auto in the order of DMuonDType. */
static const char *const dtype_values[] = {"auto", "fp32", "fp64", "bf16", "fp16", NULL};
#define GIVEN "given"
#define TABLE_NAMES                                                                          \
  "polar_express, polar_express_raw, you, jordan, dion, emerging_polar_express, cans, aol, " \
  "deepseekv4, cubic5"

static const dmuon_option_spec specs[OPTION_COUNT] = {
    [OPTION_VARIANT] = {.name = "ns_variant",
                        .type = DMUON_OPTION_ENUM,
                        .offset = offsetof(dmuon_ns_settings, variant),
                        .default_text = "auto",
                        .values = variant_values,
                        .help = "form of the iteration; auto: the cheaper one that is accurate"},
    [OPTION_COEFFICIENTS] = {.name = "ns_coefficients",
                             .type = DMUON_OPTION_STRING,
                             .offset = offsetof(dmuon_ns_settings, coefficients),
                             .default_text = "polar_express",
                             .help = "table of coefficients: " TABLE_NAMES},
    [OPTION_RESTARTS] = {.name = "ns_restarts",
                         .type = DMUON_OPTION_STRING,
                         .offset = offsetof(dmuon_ns_settings, restarts),
                         .default_text = "auto",
                         .help = "steps before which the Gram form starts anew: auto (computed for "
                                 "the table), none, or indices like 2 or 1,3"},
    [OPTION_DTYPE] = {.name = "ns_dtype",
                      .type = DMUON_OPTION_ENUM,
                      .offset = offsetof(dmuon_ns_settings, dtype),
                      .default_text = "auto",
                      .values = dtype_values,
                      .help = "dtype of the iteration; auto: the matrix's, at least fp32; on a GPU "
                              "fp16 (fp64 matrices in fp64)"},
    [OPTION_BATCH] = {.name = "ns_batch",
                      .type = DMUON_OPTION_INT,
                      .offset = offsetof(dmuon_ns_settings, batch),
                      .default_text = "0",
                      .low = 0,
                      .high = DMUON_NS_BATCH_MAX,
                      .help =
                          "most matrices of one shape that run together; 0: one, with cuda:batched "
                          "as many as 256 MB of workspace hold"},
    [OPTION_CHOICES] = {.name = "ns_choices",
                        .type = DMUON_OPTION_STRING,
                        .offset = offsetof(dmuon_ns_settings, choices),
                        .default_text = NULL,
                        .help = "file of measured choices by shape, as SaveChoices and dmuon_bench "
                                "write it"},
};

const dmuon_option_table dmuon_ns_option_table = {
    .class_name = "newton_schulz", .count = OPTION_COUNT, .specs = specs};

/* ---- life ---- */

static void destroy(DMuonNewtonSchulz ns) {
  DMuonMesh mesh = ns->mesh;
  if (ns->queue) ns->device->ops->queue_destroy(ns->queue);
  if (ns->workspace) ns->device->ops->free(ns->device, ns->workspace);
  dmuon_ns_recipe_free(&ns->recipe);
  dmuon_memory_free(ns->settings.coefficients);
  dmuon_memory_free(ns->settings.restarts);
  dmuon_memory_free(ns->settings.choices);
  dmuon_memory_free(ns->settings.given);
  dmuon_memory_free(ns->object.name);
  ns->object.class_id = 0;
  if (mesh) {
    dmuon_memory_free(ns);
    dmuon_mesh_release(mesh);
    return;
  }
  if (ns->device) ns->device->ops->destroy(ns->device);
  dmuon_context_free(&ns->own_context);
  free(ns);
}

static DMuonErrorCode create_alone(DMuonNewtonSchulz *out) {
  /* The object holds the counter of its memory, so the counter cannot count the object. */
  DMuonNewtonSchulz ns = calloc(1, sizeof *ns);
  if (!ns) DMUON_FAIL(DMUON_ERR_MEMORY, "no memory for %zu bytes", sizeof *ns);
  dmuon_context_init(&ns->own_context);
  dmuon_object_init(&ns->object, DMUON_CLASS_NEWTON_SCHULZ, &ns->own_context);
  DMuonErrorCode code = dmuon_mesh_create_local_device(&ns->own_context, &ns->device);
  if (code) {
    destroy(ns);
    return DMuonErrorTrace(code, __func__, __FILE__, __LINE__);
  }
  *out = ns;
  return DMUON_SUCCESS;
}

static DMuonErrorCode create_on_mesh(DMuonMesh mesh, DMuonNewtonSchulz *out) {
  DMuonNewtonSchulz ns = NULL;
  DMUON_TRY(dmuon_mesh_check(mesh));
  dmuon_mesh_add_table(mesh, &dmuon_ns_option_table);
  DMUON_TRY(dmuon_memory_alloc(&mesh->context.memory, 1, sizeof *ns, &ns));
  dmuon_object_init(&ns->object, DMUON_CLASS_NEWTON_SCHULZ, &mesh->context);
  dmuon_mesh_retain(mesh);
  ns->mesh = mesh;
  *out = ns;
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonNewtonSchulzCreate(DMuonMesh mesh, DMuonNewtonSchulz *ns) {
  DMuonNewtonSchulz made = NULL;
  if (!ns) DMUON_FAIL(DMUON_ERR_ARGUMENT, "ns is NULL; it receives the new object");
  DMUON_TRY(mesh ? create_on_mesh(mesh, &made) : create_alone(&made));
  DMuonErrorCode code = dmuon_options_defaults(&made->object.context->memory,
                                               &dmuon_ns_option_table, &made->settings);
  if (code) {
    destroy(made);
    return DMuonErrorTrace(code, __func__, __FILE__, __LINE__);
  }
  *ns = made;
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_ns_check(DMuonNewtonSchulz ns) {
  DMUON_TRY(dmuon_object_check(ns, DMUON_CLASS_NEWTON_SCHULZ));
  if (ns->mesh) DMUON_TRY(dmuon_mesh_check(ns->mesh));
  return DMUON_SUCCESS;
}

void dmuon_ns_retain(DMuonNewtonSchulz ns) {
  ns->object.references++;
}

void dmuon_ns_release(DMuonNewtonSchulz ns) {
  if (ns && --ns->object.references == 0) destroy(ns);
}

DMuonErrorCode DMuonNewtonSchulzDestroy(DMuonNewtonSchulz *ns) {
  if (!ns || !*ns) return DMUON_SUCCESS;
  DMUON_TRY(dmuon_object_check(*ns, DMUON_CLASS_NEWTON_SCHULZ));
  dmuon_ns_release(*ns);
  *ns = NULL;
  return DMUON_SUCCESS;
}

/* ---- settings ---- */

static DMuonErrorCode check_setter(DMuonNewtonSchulz ns, const char *call) {
  DMUON_TRY(dmuon_object_check_state(ns, DMUON_CLASS_NEWTON_SCHULZ, 0, call));
  return dmuon_ns_check(ns);
}

static DMuonErrorCode store(DMuonNewtonSchulz ns, int option, const char *text) {
  DMUON_TRY(dmuon_options_store(&ns->object.context->memory, &specs[option], text, &ns->settings));
  ns->program[option] = 1;
  return DMUON_SUCCESS;
}

static DMuonErrorCode check_table_name(const char *name, int given) {
  if (dmuon_ns_table_find(name) || (given && !strcmp(name, GIVEN))) return DMUON_SUCCESS;
  const char *names[32];
  int count = dmuon_ns_table_count();
  for (int i = 0; i < count && i < 32; i++) names[i] = dmuon_ns_table_at(i)->name;
  const char *near = dmuon_nearest_name(name, count, names);
  DMUON_FAIL(DMUON_ERR_ARGUMENT, "no coefficient table '%s'%s%s%s; there are " TABLE_NAMES, name,
             near ? "; did you mean '" : "", near ? near : "", near ? "'" : "");
}

DMuonErrorCode DMuonNewtonSchulzSetVariant(DMuonNewtonSchulz ns, const char *name) {
  DMUON_TRY(check_setter(ns, __func__));
  if (!name) DMUON_FAIL(DMUON_ERR_ARGUMENT, "name is NULL; auto, gram or direct is expected");
  return store(ns, OPTION_VARIANT, name);
}

DMuonErrorCode DMuonNewtonSchulzSetCoefficients(DMuonNewtonSchulz ns, const char *name) {
  DMUON_TRY(check_setter(ns, __func__));
  if (!name)
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "name is NULL; a table such as polar_express is expected");
  DMUON_TRY(check_table_name(name, 0));
  return store(ns, OPTION_COEFFICIENTS, name);
}

DMuonErrorCode DMuonNewtonSchulzSetTable(DMuonNewtonSchulz ns, int steps, const double *abc) {
  double *copy = NULL;
  DMUON_TRY(check_setter(ns, __func__));
  if (steps < 1) DMUON_FAIL(DMUON_ERR_ARGUMENT, "steps is %d; at least 1", steps);
  if (!abc)
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "abc is NULL; 3*steps = %d numbers are expected", 3 * steps);
  for (int i = 0; i < 3 * steps; i++) {
    if (!(abc[i] - abc[i] == 0.0)) {
      DMUON_FAIL(DMUON_ERR_ARGUMENT, "abc[%d] is %g; coefficients are finite", i, abc[i]);
    }
  }
  DMUON_TRY(
      dmuon_memory_alloc(&ns->object.context->memory, 3 * (int64_t)steps, sizeof *abc, &copy));
  memcpy(copy, abc, 3 * (size_t)steps * sizeof *abc);
  DMuonErrorCode code = store(ns, OPTION_COEFFICIENTS, GIVEN);
  if (code) {
    dmuon_memory_free(copy);
    return code;
  }
  dmuon_memory_free(ns->settings.given);
  ns->settings.given = copy;
  ns->settings.given_steps = steps;
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonNewtonSchulzSetRestarts(DMuonNewtonSchulz ns, int n, const int *at) {
  DMUON_TRY(check_setter(ns, __func__));
  if (n < 0) DMUON_FAIL(DMUON_ERR_ARGUMENT, "n is %d restarts; at least 0", n);
  if (n > 0 && !at) DMUON_FAIL(DMUON_ERR_ARGUMENT, "at is NULL; %d step indices are expected", n);
  dmuon_text text;
  dmuon_text_init(&text, &ns->object.context->memory);
  for (int i = 0; i < n; i++) {
    if (at[i] < 1 || (i > 0 && at[i] <= at[i - 1])) {
      dmuon_text_free(&text);
      DMUON_FAIL(DMUON_ERR_ARGUMENT, "at[%d] is %d after %d; step indices ascend from 1", i, at[i],
                 i > 0 ? at[i - 1] : 0);
    }
    dmuon_text_add(&text, "%s%d", i ? "," : "", at[i]);
  }
  if (n == 0) dmuon_text_add(&text, "none");
  const char *list = NULL;
  DMuonErrorCode code = dmuon_text_finish(&text, &list);
  if (!code) code = store(ns, OPTION_RESTARTS, list);
  dmuon_text_free(&text);
  return code;
}

DMuonErrorCode DMuonNewtonSchulzSetDType(DMuonNewtonSchulz ns, DMuonDType dtype) {
  DMUON_TRY(check_setter(ns, __func__));
  if (!dmuon_dtype_is_valid(dtype)) DMUON_FAIL(DMUON_ERR_ARGUMENT, "no dtype %d", (int)dtype);
  return store(ns, OPTION_DTYPE, dmuon_dtype_name(dtype));
}

DMuonErrorCode DMuonNewtonSchulzSetBatch(DMuonNewtonSchulz ns, int64_t batch) {
  char text[32];
  DMUON_TRY(check_setter(ns, __func__));
  if (batch < 0 || batch > DMUON_NS_BATCH_MAX)
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "batch is %lld; 0 (by rule) to %d", (long long)batch,
               DMUON_NS_BATCH_MAX);
  snprintf(text, sizeof text, "%lld", (long long)batch);
  return store(ns, OPTION_BATCH, text);
}

DMuonErrorCode DMuonNewtonSchulzSetChoices(DMuonNewtonSchulz ns, const char *path) {
  DMUON_TRY(check_setter(ns, __func__));
  if (!path) DMUON_FAIL(DMUON_ERR_ARGUMENT, "path is NULL; a file of choices is expected");
  return store(ns, OPTION_CHOICES, path);
}

/* ---- set-up ---- */

/* What goes into the recipe beside table and restarts: where it runs, and what was measured. */
static DMuonErrorCode complete_recipe(DMuonNewtonSchulz ns) {
  if (ns->mesh) ns->device = ns->mesh->device;
  ns->recipe.prefers_half = ns->device && ns->device->prefers_half;
  ns->recipe.prefers_batches = ns->device && ns->device->prefers_batches;
  ns->recipe.batch = ns->settings.batch;
  if (ns->settings.choices && *ns->settings.choices)
    DMUON_TRY(dmuon_ns_choices_read(&ns->object.context->memory, ns->settings.choices,
                                    &ns->recipe.choices));
  return DMUON_SUCCESS;
}

static DMuonErrorCode set_up(DMuonNewtonSchulz ns) {
  dmuon_ns_settings *settings = &ns->settings;
  if (ns->mesh) {
    DMUON_TRY(dmuon_options_apply(&ns->mesh->context.options, &dmuon_ns_option_table,
                                  ns->object.name, ns->program, settings));
  }
  DMUON_TRY(check_table_name(settings->coefficients, settings->given != NULL));
  const dmuon_ns_table *table = dmuon_ns_table_find(settings->coefficients);
  DMUON_TRY(dmuon_ns_recipe_make(
      &ns->object.context->memory, (dmuon_ns_variant)settings->variant,
      table ? table->steps : settings->given_steps, table ? table->abc : settings->given,
      settings->restarts, settings->dtype > 0,
      settings->dtype > 0 ? (DMuonDType)(settings->dtype - 1) : DMUON_FLOAT32, &ns->recipe));
  DMuonErrorCode code = complete_recipe(ns);
  if (code) {
    dmuon_ns_recipe_free(&ns->recipe);
    return code;
  }
  ns->object.is_set_up = 1;
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonNewtonSchulzSetUp(DMuonNewtonSchulz ns) {
  DMUON_TRY(dmuon_ns_check(ns));
  if (ns->object.is_set_up) return DMUON_SUCCESS;
  if (ns->mesh && !ns->mesh->object.is_set_up) DMUON_TRY(DMuonMeshSetUp(ns->mesh));
  return set_up(ns);
}

/* ---- use ---- */

static DMuonErrorCode check_matrix(const char *what, int64_t batch, int64_t rows, int64_t cols,
                                   const void *data, int64_t ld, int64_t stride, int disjoint) {
  if (ld < cols) {
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "ld%s is %lld elements; a row has %lld (cols)", what,
               (long long)ld, (long long)cols);
  }
  if (rows == 0 || cols == 0 || batch == 0) return DMUON_SUCCESS;
  if (!data) {
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "%s is NULL; a %lld x %lld matrix is expected", what,
               (long long)rows, (long long)cols);
  }
  if (ld > INT64_MAX / 16 / rows) {
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "ld%s is %lld with %lld rows: more than memory can hold", what,
               (long long)ld, (long long)rows);
  }
  if (disjoint && batch > 1 && stride < (rows - 1) * ld + cols) {
    DMUON_FAIL(
        DMUON_ERR_ARGUMENT,
        "stride%s is %lld elements; matrices of %lld rows with ld %lld would overlap below %lld",
        what, (long long)stride, (long long)rows, (long long)ld,
        (long long)((rows - 1) * ld + cols));
  }
  return DMUON_SUCCESS;
}

/* Queue, task room and workspace for a plan; kept and grown. What can fail for want of memory fails
 * here, where nothing is under way. */
DMuonErrorCode dmuon_ns_prepare(DMuonNewtonSchulz ns, const dmuon_ns_plan *plan) {
  const DMuonDeviceOps *ops = ns->device->ops;
  if (!ns->queue) DMUON_TRY(ops->queue_create(ns->device, 0, &ns->queue));
  if (plan->operations > ns->reserved) {
    DMUON_TRY(ops->reserve(ns->device, plan->operations));
    ns->reserved = plan->operations;
  }
  DMUON_TRY(ops->reserve_matrix(ns->queue, plan->iterate, plan->small, plan->big));
  if (plan->workspace_bytes > ns->workspace_bytes) {
    void *larger = NULL;
    if (ns->workspace) ops->free(ns->device, ns->workspace);
    ns->workspace = NULL;
    ns->workspace_bytes = 0;
    DMUON_TRY(ops->alloc(ns->device, plan->workspace_bytes, &larger));
    ns->workspace = larger;
    ns->workspace_bytes = plan->workspace_bytes;
  }
  return DMUON_SUCCESS;
}

/* The caller's memory: the device reaches it, and what he has under way with it comes first. */
static DMuonErrorCode take_over(DMuonNewtonSchulz ns, const dmuon_ns_plan *plan, int64_t batch,
                                DMuonDType dtype, const void *data, int64_t ld, int64_t stride,
                                int written) {
  const DMuonDeviceOps *ops = ns->device->ops;
  const int64_t bytes = ((batch - 1) * stride + (plan->rows - 1) * ld + plan->cols) *
                        (int64_t)dmuon_dtype_bytes(dtype);
  if (ops->check_pointer) DMUON_TRY(ops->check_pointer(ns->device, data, bytes));
  return ops->reclaim(ns->queue, data, bytes, written);
}

DMuonErrorCode DMuonNewtonSchulzApplyBatch(DMuonNewtonSchulz ns, int64_t batch, int64_t rows,
                                           int64_t cols, DMuonDType dtype, const void *in,
                                           int64_t ldin, int64_t stridein, void *out, int64_t ldout,
                                           int64_t strideout) {
  dmuon_ns_plan plan;
  DMUON_TRY(dmuon_object_check_state(ns, DMUON_CLASS_NEWTON_SCHULZ, 1, __func__));
  DMUON_TRY(dmuon_ns_check(ns));
  if (!ns->device) {
    DMUON_FAIL(DMUON_ERR_UNSUPPORTED,
               "the mesh is a plan without ranks: it has no device to run on");
  }
  if (batch < 0) DMUON_FAIL(DMUON_ERR_ARGUMENT, "batch is %lld; at least 0", (long long)batch);
  DMUON_TRY(dmuon_ns_plan_make(&ns->recipe, rows, cols, dtype, &plan));
  DMUON_TRY(check_matrix("in", batch, rows, cols, in, ldin, stridein, 0));
  DMUON_TRY(check_matrix("out", batch, rows, cols, out, ldout, strideout, 1));
  if (in == out && in && (ldin != ldout || (batch > 1 && stridein != strideout))) {
    DMUON_FAIL(
        DMUON_ERR_ARGUMENT,
        "in and out are the same memory with ld %lld and %lld, stride %lld and %lld; in place "
        "they must be equal",
        (long long)ldin, (long long)ldout, (long long)stridein, (long long)strideout);
  }
  if (batch == 0 || plan.small == 0) return DMUON_SUCCESS;
  dmuon_ns_plan_batch(&plan, batch);
  DMUON_TRY(dmuon_ns_prepare(ns, &plan));
  DMUON_TRY(take_over(ns, &plan, batch, dtype, in, ldin, stridein, 0));
  DMUON_TRY(take_over(ns, &plan, batch, dtype, out, ldout, strideout, 1));
  dmuon_ns_view from = {.rows = rows, .cols = cols, .ld = ldin, .strips = 1, .strip = rows};
  dmuon_ns_view to = from;
  to.ld = ldout;
  for (int64_t done = 0; done < batch; done += plan.batch) {
    dmuon_ns_matrix matrices[DMUON_NS_BATCH_MAX];
    int64_t count = batch - done < plan.batch ? batch - done : plan.batch;
    for (int64_t k = 0; k < count; k++)
      matrices[k] = (dmuon_ns_matrix){dmuon_dtype_at(in, (done + k) * stridein, dtype), from,
                                      dmuon_dtype_at(out, (done + k) * strideout, dtype), to, 1.0};
    DMuonErrorCode code = dmuon_ns_issue_batch(ns->queue, ns->device, &plan, count, matrices, dtype,
                                               dtype, ns->workspace);
    if (code)
      dmuon_queue_settle(ns->device, ns->queue, code); /* the caller's memory is his again */
    DMUON_TRY(code);
    DMUON_TRY(ns->device->ops->queue_sync(ns->queue));
  }
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonNewtonSchulzApply(DMuonNewtonSchulz ns, int64_t rows, int64_t cols,
                                      DMuonDType dtype, const void *in, int64_t ldin, void *out,
                                      int64_t ldout) {
  DMUON_TRY(DMuonNewtonSchulzApplyBatch(ns, 1, rows, cols, dtype, in, ldin, 0, out, ldout, 0));
  return DMUON_SUCCESS;
}

DMuonErrorCode DMuonNewtonSchulzEvaluate(DMuonNewtonSchulz ns, double sigma, double *value) {
  DMUON_TRY(dmuon_object_check_state(ns, DMUON_CLASS_NEWTON_SCHULZ, 1, __func__));
  if (!value)
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "value is NULL; it receives the polynomial at %g", sigma);
  if (!(sigma >= 0 && sigma <= 1 + 1e-9)) /* a caller's division may round up */
    DMUON_FAIL(DMUON_ERR_ARGUMENT,
               "sigma is %g; a singular value of a normalised matrix is between 0 and 1", sigma);
  *value = dmuon_ns_evaluate(ns->recipe.steps, ns->recipe.abc, sigma);
  return DMUON_SUCCESS;
}
