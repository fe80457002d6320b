/* What a Newton-Schulz object says of itself: table, response, restarts, and which form runs for
 * which shape and why. */
#include <math.h>
#include <string.h>

#include "ns/ns.h"

static void view_restarts(dmuon_text *text, DMuonNewtonSchulz ns) {
  const dmuon_ns_recipe *recipe = &ns->recipe;
  dmuon_text_add(text, "  restarts     ");
  if (recipe->restart_count == 0) dmuon_text_add(text, "none");
  for (int i = 0; i < recipe->restart_count; i++) {
    dmuon_text_add(text, "%s%d", i ? ", " : "before step ", recipe->restarts[i]);
  }
  dmuon_text_add(
      text, " (%s), condition %.3g%s\n",
      strcmp(ns->settings.restarts, "auto") ? "given" : "computed for the table", recipe->condition,
      recipe->condition <= DMUON_NS_CONDITION_GOOD     ? ""
      : recipe->condition < DMUON_NS_CONDITION_USELESS ? ": too large for 16-bit iterations"
                                                       : ": of no use");
}

/* Smallest and largest value of the polynomial on [low, 1]. */
static void view_response(dmuon_text *text, const dmuon_ns_recipe *recipe) {
  enum { POINTS = 4000 };
  double low = HUGE_VAL, high = 0.0;
  for (int i = 0; i <= POINTS; i++) {
    double value = dmuon_ns_evaluate(recipe->steps, recipe->abc, pow(10.0, -2.0 * i / POINTS));
    low = fmin(low, value);
    high = fmax(high, value);
  }
  dmuon_text_add(text, "  response     slope %.4g at 0; %.4f to %.4f on [0.01, 1]; %.6f at 1\n",
                 dmuon_ns_slope(recipe->steps, recipe->abc), low, high,
                 dmuon_ns_evaluate(recipe->steps, recipe->abc, 1.0));
}

static void view_shapes(dmuon_text *text, const dmuon_ns_recipe *recipe) {
  static const int aspects[] = {1, 2, 4, 16};
  dmuon_text_add(text, "  form by shape (long side over short side; work in units of short^3)\n");
  for (size_t i = 0; i < sizeof aspects / sizeof *aspects; i++) {
    dmuon_ns_plan plan;
    if (dmuon_ns_plan_make(recipe, 1000, 1000 * (int64_t)aspects[i], DMUON_FLOAT32, &plan))
      continue;
    dmuon_text_add(text, "    %3d  gram %6.1f  direct %6.1f  runs %-6s  %s\n", aspects[i],
                   dmuon_ns_flops(recipe, DMUON_NS_GRAM, 1000, plan.big) / 2e9,
                   dmuon_ns_flops(recipe, DMUON_NS_DIRECT, 1000, plan.big) / 2e9,
                   dmuon_ns_variant_name(plan.variant), plan.reason);
  }
}

static void view_together(dmuon_text *text, const dmuon_ns_recipe *recipe) {
  dmuon_text_add(text, "  together     ");
  if (recipe->batch > 0)
    dmuon_text_add(text, "up to %lld matrices of one shape, as asked for\n",
                   (long long)recipe->batch);
  else if (recipe->prefers_batches)
    dmuon_text_add(text, "matrices of one shape, as many as %lld MB of workspace hold\n",
                   (long long)(DMUON_NS_BATCH_BYTES >> 20));
  else
    dmuon_text_add(text, "one matrix at a time: a batch gains nothing here\n");
}

static void view_choices(dmuon_text *text, DMuonNewtonSchulz ns) {
  const dmuon_ns_choices *choices = &ns->recipe.choices;
  if (choices->count == 0) return;
  dmuon_text_add(text, "  table of choices%s%s, %d shapes (auto only)\n",
                 ns->settings.choices ? ": " : "", ns->settings.choices ? ns->settings.choices : "",
                 choices->count);
  for (int i = 0; i < choices->count; i++) {
    const dmuon_ns_choice *c = &choices->entries[i];
    dmuon_text_add(text, "    %6lld x %-6lld %s  %-6s", (long long)c->small, (long long)c->big,
                   dmuon_dtype_name(c->dtype), dmuon_ns_variant_name(c->variant));
    if (c->batch > 0) dmuon_text_add(text, "  %lld together", (long long)c->batch);
    if (c->tile > 0) dmuon_text_add(text, "  tiles of %lld", (long long)c->tile);
    if (c->tile < 0) dmuon_text_add(text, "  no tiles");
    if (c->seconds[DMUON_NS_GRAM] > 0)
      dmuon_text_add(text, "  gram %.3g s", c->seconds[DMUON_NS_GRAM]);
    if (c->seconds[DMUON_NS_DIRECT] > 0)
      dmuon_text_add(text, "  direct %.3g s", c->seconds[DMUON_NS_DIRECT]);
    dmuon_text_add(text, "\n");
  }
}

DMuonErrorCode DMuonNewtonSchulzView(DMuonNewtonSchulz ns, const char *path) {
  DMUON_TRY(dmuon_object_check_state(ns, DMUON_CLASS_NEWTON_SCHULZ, 1, __func__));
  const dmuon_ns_recipe *recipe = &ns->recipe;
  const dmuon_ns_table *table = dmuon_ns_table_find(ns->settings.coefficients);
  dmuon_text text;
  dmuon_text_init(&text, &ns->object.context->memory);
  dmuon_text_add(&text, "Newton-Schulz on device %s\n",
                 ns->device ? ns->device->ops->name : "none (plan)");
  dmuon_text_add(&text, "  coefficients %s, %d steps (%s)\n", ns->settings.coefficients,
                 recipe->steps, table ? table->source : "the program's own");
  for (int i = 0; i < recipe->steps; i++) {
    dmuon_text_add(&text, "    %2d  %22.17g  %22.17g  %22.17g\n", i, recipe->abc[3 * i],
                   recipe->abc[3 * i + 1], recipe->abc[3 * i + 2]);
  }
  view_response(&text, recipe);
  view_restarts(&text, ns);
  dmuon_text_add(&text, "  iteration    %s; norm in at least fp32, scale-invariant\n",
                 recipe->iterate_is_given ? dmuon_dtype_name(recipe->iterate)
                 : recipe->prefers_half ? "fp16, which this device prefers (fp64 matrices in fp64)"
                                        : "the matrix's dtype, at least fp32");
  view_together(&text, recipe);
  dmuon_text_add(&text, "  variant      %s\n", dmuon_ns_variant_name(recipe->variant));
  view_shapes(&text, recipe);
  view_choices(&text, ns);
  const char *data = NULL;
  DMuonErrorCode code = dmuon_text_finish(&text, &data);
  if (!code) code = dmuon_text_write(&text, path);
  dmuon_text_free(&text);
  if (code) return DMuonErrorTrace(code, __func__, __FILE__, __LINE__);
  return DMUON_SUCCESS;
}
