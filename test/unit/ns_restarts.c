/* Restart positions: the criterion against numbers computed independently, what is chosen for each
 * table, and what a recipe makes of restarts that are given. */
#include "ns/ns.h"

#include "tap.h"

static dmuon_memory memory;

static double condition_of(const char *name, int count, const int *at) {
  const dmuon_ns_table *table = dmuon_ns_table_find(name);
  double value = NAN;
  if (dmuon_ns_condition(&memory, table->steps, table->abc, count, at, &value)) return NAN;
  return value;
}

typedef struct {
  const char *name;
  int count, at[2];
  double condition;
} known;

/* To the digits they were written down with: bound of half a unit of the last one, relative. */
static const known values[] = {
    {"polar_express", 0, {0}, 2.7e12},
    {"polar_express", 1, {1}, 456},
    {"polar_express", 1, {2}, 84.6},
    {"polar_express", 1, {3}, 1.1e5},
    {"polar_express", 1, {4}, 2.2e6},
    {"polar_express", 2, {1, 2}, 60.9},
    {"you", 0, {0}, 2.1e8},
    {"you", 1, {1}, 401},
    {"you", 1, {2}, 53.2},
    {"you", 1, {3}, 171},
    {"you", 1, {4}, 2437},
    {"you", 2, {1, 3}, 34.8},
    {"jordan", 0, {0}, 3.8e6},
    {"jordan", 1, {1}, 667},
    {"jordan", 1, {2}, 74.1},
    {"jordan", 1, {3}, 62.5},
    {"jordan", 1, {4}, 455},
    {"jordan", 2, {2, 3}, 19.1},
    {"dion", 0, {0}, 1.7e14},
    {"dion", 1, {1}, 660},
    {"dion", 1, {2}, 119},
    {"polar_express_raw", 1, {1}, 2.6e4},
};

static void test_found(const char *name, int count, int first, double condition) {
  const dmuon_ns_table *table = dmuon_ns_table_find(name);
  dmuon_ns_restarts found = {.count = -1};
  DMuonErrorCode code = dmuon_ns_restarts_find(&memory, table->steps, table->abc, &found);
  char list[64] = "";
  for (int i = 0, n = 0; i < found.count; i++)
    n += snprintf(list + n, sizeof list - (size_t)n, " %d", found.at[i]);
  tap_diag("%s: %d restarts:%s, condition %.4g", name, found.count, list, found.condition);
  tap_ok(code == 0 && found.count == count && (count == 0 || found.at[0] == first),
         "%s restarts at %d", name, first);
  if (condition > 0)
    tap_is_near(found.condition, condition, 0.01 * condition, "%s: condition", name);
}

static dmuon_ns_recipe make(const char *restarts, dmuon_ns_variant variant, int given,
                            DMuonDType iterate, DMuonErrorCode *code) {
  const dmuon_ns_table *table = dmuon_ns_table_find("polar_express");
  dmuon_ns_recipe recipe = {.steps = 0};
  *code = dmuon_ns_recipe_make(&memory, variant, table->steps, table->abc, restarts, given, iterate,
                               &recipe);
  return recipe;
}

static void test_recipe(void) {
  static const char *const wrong[] = {
      "", "0", "5", "2,2", "3,1", "1,", "x", "-1", "1 2", "2;3", "99999999999999999999"};
  DMuonErrorCode code;
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    dmuon_ns_recipe recipe = make(wrong[i], DMUON_NS_AUTO, 0, DMUON_FLOAT32, &code);
    tap_ok(code == DMUON_ERR_ARGUMENT && recipe.steps == 0, "restarts '%s' are refused", wrong[i]);
  }
  dmuon_ns_recipe recipe = make(" 1, 3", DMUON_NS_AUTO, 0, DMUON_FLOAT32, &code);
  tap_ok(
      code == 0 && recipe.restart_count == 2 && recipe.restarts[0] == 1 && recipe.restarts[1] == 3,
      "restarts 1, 3 are taken");
  dmuon_ns_recipe_free(&recipe);
  recipe = make("auto", DMUON_NS_AUTO, 0, DMUON_FLOAT32, &code);
  tap_ok(code == 0 && recipe.restart_count == 1 && recipe.restarts[0] == 2,
         "the default table restarts before step 2");
  dmuon_ns_recipe_free(&recipe);
  make("none", DMUON_NS_GRAM, 1, DMUON_BFLOAT16, &code);
  tap_ok(code == DMUON_ERR_ARGUMENT, "a bf16 Gram iteration without restart is refused");
  tap_contains(DMuonErrorGetMessage(), "bf16", "the message says so");
  recipe = make("none", DMUON_NS_GRAM, 1, DMUON_FLOAT16, &code);
  tap_ok(code == 0, "in fp16 it is accepted");
  dmuon_ns_recipe_free(&recipe);
}

/* The chosen form and its work, for the default table: 3n + 8.5m against 7.5n + 2.5m. */
static void test_plan(void) {
  DMuonErrorCode code;
  dmuon_ns_plan plan;
  dmuon_ns_recipe recipe = make("auto", DMUON_NS_AUTO, 0, DMUON_FLOAT32, &code);
  tap_is_near(dmuon_ns_flops(&recipe, DMUON_NS_GRAM, 100, 300) / 2e6, 17.5, 1e-9,
              "gram: 3n + 8.5m");
  tap_is_near(dmuon_ns_flops(&recipe, DMUON_NS_DIRECT, 100, 300) / 2e6, 25, 1e-9,
              "direct: 7.5n + 2.5m");
  code = dmuon_ns_plan_make(&recipe, 64, 64, DMUON_FLOAT32, &plan);
  tap_ok(!code && plan.variant == DMUON_NS_DIRECT && !plan.transposed, "a square matrix: direct");
  code = dmuon_ns_plan_make(&recipe, 256, 64, DMUON_BFLOAT16, &plan);
  tap_ok(!code && plan.variant == DMUON_NS_GRAM && plan.transposed && plan.small == 64 &&
             plan.big == 256 && plan.iterate == DMUON_FLOAT32,
         "a tall one: gram on the transpose, bf16 iterates in fp32");
  code = dmuon_ns_plan_make(&recipe, 0, 8, DMUON_FLOAT32, &plan);
  tap_ok(!code && plan.workspace_bytes == 0 && plan.operations == 0, "an empty one: nothing");
  tap_ok(dmuon_ns_plan_make(&recipe, -1, 8, DMUON_FLOAT32, &plan) == DMUON_ERR_ARGUMENT,
         "negative sides are refused");
  tap_ok(dmuon_ns_plan_make(&recipe, INT64_C(1) << 40, INT64_C(1) << 40, DMUON_FLOAT32, &plan) ==
             DMUON_ERR_ARGUMENT,
         "sizes beyond memory are refused");
  dmuon_ns_recipe_free(&recipe);
  recipe = make("none", DMUON_NS_AUTO, 1, DMUON_BFLOAT16, &code);
  code = dmuon_ns_plan_make(&recipe, 64, 1024, DMUON_FLOAT32, &plan);
  tap_ok(!code && plan.variant == DMUON_NS_DIRECT, "auto never takes an inaccurate Gram form");
  dmuon_ns_recipe_free(&recipe);
}

int main(void) {
  for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
    const known *k = &values[i];
    tap_is_near(condition_of(k->name, k->count, k->at) / k->condition, 1, 0.025,
                "%s, %d restarts at %d %d", k->name, k->count, k->at[0], k->at[1]);
  }
  test_found("polar_express", 1, 2, 84.6);
  test_found("you", 1, 2, 53.2);
  test_found("jordan", 1, 3, 62.5);
  test_found("dion", 1, 2, 119);
  for (int i = 0; i < dmuon_ns_table_count(); i++) {
    const dmuon_ns_table *table = dmuon_ns_table_at(i);
    dmuon_ns_restarts found;
    DMuonErrorCode code = dmuon_ns_restarts_find(&memory, table->steps, table->abc, &found);
    tap_ok(!code && found.condition < DMUON_NS_CONDITION_USELESS, "%s has usable restarts",
           table->name);
    tap_diag("%s: %d restarts from %d, condition %.3g", table->name, found.count,
             found.count ? found.at[0] : 0, found.condition);
  }
  double one[] = {1.5, -0.5, 0};
  dmuon_ns_restarts found;
  tap_ok(!dmuon_ns_restarts_find(&memory, 1, one, &found) && found.count == 0,
         "a table of one step has no restarts");
  test_recipe();
  test_plan();
  tap_is_int(memory.bytes, 0, "all memory is given back");
  return tap_done();
}
