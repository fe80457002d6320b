/* The table of choices: found by shape, written and read back, wrong files refused with the entry
 * and what is wrong, and what it decides in a plan. */
#include "ns/ns.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tap.h"

#define HEAD "{\"dmuon_ns_choices\": 1, \"entries\": ["
#define GOOD                                                                                   \
  "{\"small\": 64, \"big\": 256, \"dtype\": \"fp32\", \"variant\": \"direct\", \"batch\": 3, " \
  "\"tile\": 32}"

static char path[64];
static dmuon_memory memory;

static void write_file(const char *text) {
  FILE *file = fopen(path, "w");
  if (!file || fputs(text, file) < 0 || fclose(file)) exit(99);
}

static void test_table(void) {
  dmuon_ns_choices choices = {0, NULL};
  int good = 1;
  for (int64_t i = 0; i < 40; i++) { /* in an order of no meaning; every shape twice */
    dmuon_ns_choice c = {.small = 1 + i * 7 % 20,
                         .big = 30 + i * 3 % 5,
                         .dtype = (DMuonDType)(i % 4),
                         .variant = i < 20 ? DMUON_NS_GRAM : DMUON_NS_DIRECT,
                         .batch = i % 3,
                         .tile = i % 5 - 1};
    good = good && !dmuon_ns_choices_add(&memory, &choices, &c);
  }
  tap_ok(good && choices.count == 20, "an entry of a shape that is there replaces it (%d)",
         choices.count);
  for (int64_t i = 20; i < 40; i++) {
    const dmuon_ns_choice *c =
        dmuon_ns_choices_find(&choices, 1 + i * 7 % 20, 30 + i * 3 % 5, (DMuonDType)(i % 4));
    good = good && c && c->variant == DMUON_NS_DIRECT && c->batch == i % 3 && c->tile == i % 5 - 1;
  }
  tap_ok(good, "each is found");
  tap_ok(!dmuon_ns_choices_find(&choices, 1, 29, DMUON_FLOAT32), "another shape is not");
  const dmuon_ns_choice wrong[] = {
      {.small = 8, .big = 4, .variant = DMUON_NS_GRAM},
      {.small = 0, .big = 4, .variant = DMUON_NS_GRAM},
      {.small = 4, .big = 4, .variant = DMUON_NS_AUTO},
      {.small = 4, .big = 4, .variant = DMUON_NS_GRAM, .batch = -1},
      {.small = 4, .big = 4, .variant = DMUON_NS_GRAM, .dtype = (DMuonDType)9},
      {.small = 4, .big = 4, .variant = DMUON_NS_GRAM, .tile = -2},
  };
  for (int i = 0; i < 6; i++)
    tap_ok(dmuon_ns_choices_add(&memory, &choices, &wrong[i]) == DMUON_ERR_ARGUMENT, "no entry: %s",
           dmuon_error_text());
  tap_is_int(choices.count, 20, "and none was added");
  dmuon_ns_choices_free(&choices);
}

static void test_wrong_files(void) {
  static const struct {
    const char *text, *phrase;
  } files[] = {
      {"{\"dmuon_ns_choices\": 1, ", "line 1"},
      {"[1]", "no table of Newton-Schulz choices"},
      {"{\"dmuon_ns_choices\": 2, \"entries\": []}", "\"dmuon_ns_choices\": 1"},
      {"{\"dmuon_ns_choices\": 1, \"entries\": [], \"entrees\": 1}", "\"entrees\""},
      {HEAD "7]}", "entry 0: it is no object"},
      {HEAD GOOD ", " GOOD "]}", "entry 1: 64 x 256 in fp32 is there twice"},
      {HEAD "{\"small\": 64, \"dtype\": \"fp32\", \"variant\": \"gram\"}]}", "\"big\" is missing"},
      {HEAD "{\"small\": 64, \"big\": 256, \"dtype\": \"fp31\", \"variant\": \"gram\"}]}", "fp31"},
      {HEAD "{\"small\": 64, \"big\": 256, \"dtype\": \"fp32\", \"variant\": \"auto\"}]}",
       "variant is \"auto\"; gram or direct"},
      {HEAD "{\"small\": 512, \"big\": 256, \"dtype\": \"fp32\", \"variant\": \"gram\"}]}",
       "small is 512, big is 256"},
      {HEAD "{\"small\": 64, \"big\": 256, \"dtype\": \"fp32\", \"variant\": \"gram\", \"batch\": "
            "0}]}",
       "batch is 0"},
      {HEAD "{\"small\": 64, \"big\": 256, \"dtype\": \"fp32\", \"variant\": \"gram\", \"tile\": "
            "-128}]}",
       "tile is -128"},
      {HEAD "{\"small\": 64, \"big\": 256, \"dtype\": \"fp32\", \"variant\": \"gram\", \"side\": "
            "128}]}",
       "\"side\""},
      {HEAD
       "{\"small\": 64, \"big\": 256, \"dtype\": \"fp32\", \"variant\": \"gram\", \"seconds\": "
       "{\"gram\": \"fast\"}}]}",
       "seconds of gram"},
  };
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    dmuon_ns_choices choices = {0, NULL};
    DMuonNewtonSchulz ns = NULL;
    write_file(files[i].text);
    tap_ok(dmuon_ns_choices_read(&memory, path, &choices) == DMUON_ERR_FORMAT && choices.count == 0,
           "refused: %s", files[i].text);
    tap_contains(DMuonErrorGetMessage(), files[i].phrase, "and why");
    int failed = DMuonNewtonSchulzCreate(NULL, &ns) || DMuonNewtonSchulzSetChoices(ns, path);
    DMuonErrorCode code = DMuonNewtonSchulzSetUp(ns);
    write_file(HEAD GOOD "]}");
    tap_ok(!failed && code == DMUON_ERR_FORMAT && !DMuonNewtonSchulzSetUp(ns) &&
               ns->recipe.choices.count == 1,
           "SetUp says so, and works once the file is right");
    DMuonNewtonSchulzDestroy(&ns);
  }
  dmuon_ns_choices choices = {0, NULL};
  remove(path);
  tap_ok(dmuon_ns_choices_read(&memory, path, &choices) == DMUON_ERR_FILE, "no file: %s",
         dmuon_error_text());
}

/* What the table decides: form and batch of its shapes, for auto, where Gram is accurate. */
static void test_plans(void) {
  static const struct {
    const char *table, *variant;
    DMuonDType dtype;
    int64_t rows, cols;
    dmuon_ns_variant runs;
    int64_t batch, tile;
    const char *reason;
  } cases[] = {
      {"polar_express", "auto", DMUON_FLOAT32, 64, 256, DMUON_NS_DIRECT, 3, 32, "measured"},
      {"polar_express", "auto", DMUON_FLOAT32, 256, 64, DMUON_NS_DIRECT, 3, 32, "measured"},
      {"polar_express", "auto", DMUON_FLOAT64, 64, 256, DMUON_NS_GRAM, 1, 0, "fewer operations"},
      {"polar_express", "auto", DMUON_FLOAT32, 64, 257, DMUON_NS_GRAM, 1, 0, "fewer operations"},
      {"polar_express", "auto", DMUON_FLOAT32, 64, 64, DMUON_NS_GRAM, 1, -1, "measured"},
      {"polar_express", "gram", DMUON_FLOAT32, 64, 256, DMUON_NS_GRAM, 3, 32, "as asked for"},
  };
  write_file(HEAD GOOD
             ", {\"small\": 64, \"big\": 64, \"dtype\": \"fp32\", \"variant\": \"gram\", "
             "\"tile\": 0}, {\"small\": "
             "64, \"big\": 256, \"dtype\": \"fp16\", \"variant\": \"gram\"}]}");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    dmuon_ns_plan plan;
    DMuonNewtonSchulz ns = NULL;
    int bad = DMuonNewtonSchulzCreate(NULL, &ns) ||
              DMuonNewtonSchulzSetCoefficients(ns, cases[i].table) ||
              DMuonNewtonSchulzSetVariant(ns, cases[i].variant) ||
              DMuonNewtonSchulzSetChoices(ns, path) || DMuonNewtonSchulzSetUp(ns) ||
              dmuon_ns_plan_make(&ns->recipe, cases[i].rows, cases[i].cols, cases[i].dtype, &plan);
    if (!bad) dmuon_ns_plan_batch(&plan, 7);
    tap_ok(!bad && plan.variant == cases[i].runs && plan.batch == cases[i].batch &&
               plan.tile == cases[i].tile && strstr(plan.reason, cases[i].reason),
           "%s %s %lldx%lld: %s, %lld together (%s)", cases[i].variant,
           dmuon_dtype_name(cases[i].dtype), (long long)cases[i].rows, (long long)cases[i].cols,
           dmuon_ns_variant_name(plan.variant), (long long)plan.batch, plan.reason);
    DMuonNewtonSchulzDestroy(&ns);
  }
  /* A table made with other coefficients does not bring back what is not accurate. */
  dmuon_ns_plan plan;
  DMuonNewtonSchulz ns = NULL;
  int bad = DMuonNewtonSchulzCreate(NULL, &ns) ||
            DMuonNewtonSchulzSetCoefficients(ns, "polar_express_raw") ||
            DMuonNewtonSchulzSetDType(ns, DMUON_FLOAT16) || DMuonNewtonSchulzSetChoices(ns, path) ||
            DMuonNewtonSchulzSetUp(ns) ||
            dmuon_ns_plan_make(&ns->recipe, 64, 256, DMUON_FLOAT32, &plan);
  tap_ok(!bad && plan.variant == DMUON_NS_DIRECT && strstr(plan.reason, "not accurate"),
         "gram in the table, but not accurate in fp16 with these coefficients: direct");
  DMuonNewtonSchulzDestroy(&ns);
}

/* Measured, saved, read by another: the same choices. What is measured is one of the two. */
static void test_measure(void) {
  DMuonNewtonSchulz ns = NULL, other = NULL;
  int bad = DMuonNewtonSchulzCreate(NULL, &ns);
  tap_ok(!bad && DMuonNewtonSchulzMeasure(ns, 8, 8, DMUON_FLOAT32, 1) == DMUON_ERR_STATE,
         "Measure before SetUp");
  tap_ok(!DMuonNewtonSchulzSetUp(ns) &&
             DMuonNewtonSchulzMeasure(ns, 0, 8, DMUON_FLOAT32, 1) == DMUON_ERR_ARGUMENT &&
             DMuonNewtonSchulzMeasure(ns, 8, 8, DMUON_FLOAT32, 0) == DMUON_ERR_ARGUMENT &&
             ns->recipe.choices.count == 0,
         "nothing to measure");
  tap_ok(!DMuonNewtonSchulzMeasure(ns, 48, 16, DMUON_FLOAT32, 2) &&
             !DMuonNewtonSchulzMeasure(ns, 16, 16, DMUON_BFLOAT16, 2) &&
             !DMuonNewtonSchulzMeasure(ns, 16, 48, DMUON_FLOAT32, 2) &&
             ns->recipe.choices.count == 2,
         "two shapes measured");
  const dmuon_ns_choice *c = dmuon_ns_choices_find(&ns->recipe.choices, 16, 48, DMUON_FLOAT32);
  tap_ok(c && c->seconds[DMUON_NS_GRAM] > 0 && c->seconds[DMUON_NS_DIRECT] > 0 && c->batch >= 1 &&
             c->seconds[c->variant] <= c->seconds[DMUON_NS_GRAM] &&
             c->seconds[c->variant] <= c->seconds[DMUON_NS_DIRECT],
         "with the times of both, and the shorter one chosen");
  ns->recipe.choices.entries[0].tile = 256; /* as a GPU might have it */
  ns->recipe.choices.entries[1].tile = -1;
  int same = !DMuonNewtonSchulzSaveChoices(ns, path) && !DMuonNewtonSchulzCreate(NULL, &other) &&
             !DMuonNewtonSchulzSetChoices(other, path) && !DMuonNewtonSchulzSetUp(other) &&
             other->recipe.choices.count == 2;
  for (int i = 0; same && i < 2; i++) {
    const dmuon_ns_choice *x = &ns->recipe.choices.entries[i],
                          *y = &other->recipe.choices.entries[i];
    same = x->small == y->small && x->big == y->big && x->dtype == y->dtype &&
           x->variant == y->variant && x->batch == y->batch && x->tile == y->tile &&
           !memcmp(x->seconds, y->seconds, sizeof x->seconds);
  }
  tap_ok(same, "saved and read: the same");
  dmuon_text a, b;
  const char *one = "", *two = "none";
  dmuon_text_init(&a, &memory), dmuon_text_init(&b, &memory);
  dmuon_ns_recipe_print(&ns->recipe, &a), dmuon_ns_recipe_print(&other->recipe, &b);
  tap_ok(!dmuon_text_finish(&a, &one) && !dmuon_text_finish(&b, &two) && !strcmp(one, two) &&
             strstr(one, "ns_choice 16 x 48 in fp32="),
         "and what ranks compare is the same, choices too");
  dmuon_text_free(&a), dmuon_text_free(&b);
  tap_ok(!DMuonNewtonSchulzView(other, path), "View");
  char text[8192] = "";
  FILE *file = fopen(path, "r");
  if (file && fread(text, 1, sizeof text - 1, file) > 0) {
  }
  if (file) fclose(file);
  tap_contains(text, "table of choices", "it shows the table");
  remove(path);
  DMuonNewtonSchulzDestroy(&ns);
  DMuonNewtonSchulzDestroy(&other);
}

/* The k-th allocation of Measure fails: it says so, nothing is kept but what was, and it can be
 * called again. */
static void test_no_memory(void) {
  DMuonErrorCode code = DMUON_ERR_MEMORY;
  int tries = 0, honest = 1;
  for (int k = 1; code && k < 60; k++) {
    DMuonNewtonSchulz ns = NULL;
    if (DMuonNewtonSchulzCreate(NULL, &ns) || DMuonNewtonSchulzSetDType(ns, DMUON_FLOAT16) ||
        DMuonNewtonSchulzSetUp(ns))
      exit(99);
    dmuon_memory *counter = &ns->own_context.memory;
    counter->fail_at = counter->allocations + k;
    code = DMuonNewtonSchulzMeasure(ns, 6, 9, DMUON_FLOAT32, 1);
    counter->fail_at = 0;
    if (code) {
      tries++;
      honest = honest && code == DMUON_ERR_MEMORY && ns->recipe.choices.count == 0 &&
               !DMuonNewtonSchulzMeasure(ns, 6, 9, DMUON_FLOAT32, 1) &&
               ns->recipe.choices.count == 1;
    }
    DMuonNewtonSchulzDestroy(&ns);
  }
  tap_ok(!code && tries > 4 && honest, "%d allocations of Measure, each failed once", tries);
}

int main(void) {
  snprintf(path, sizeof path, "ns_choices.%ld.json", (long)getpid());
  test_table();
  test_wrong_files();
  test_plans();
  test_measure();
  test_no_memory();
  return tap_done();
}
