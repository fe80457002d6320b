/* The coefficient tables: names, lengths, and the response p(s) of each: slope at 0, range, value
 * at 1, compared with values computed independently (to the digits they were written down with). */
#include "ns/ns.h"

#include "tap.h"

typedef struct {
  const char *name;
  int steps;
  double slope, low, high, at_one; /* range on [0.01, 1]; 0: not known */
} expected;

static const expected tables[] = {
    {"polar_express", 5, 803.9, .8461, 1.1236, 1.0190},
    {"polar_express_raw", 5, 1026.1, .8764, 1.1236, 1.1236},
    {"you", 5, 492.7, .9778, 1.0318, .9783},
    {"jordan", 5, 484.9, .6818, 1.1344, .6964},
    {"dion", 5, 989.5, .8589, 1.1411, .8591},
    {"emerging_polar_express", 8, 0, 0, 0, 0},
    {"cans", 5, 1048.9, .8844, 1.1198, 1.0051},
    {"aol", 4, 0, 0, 0, 0},
    {"deepseekv4", 10, 7.9e4, 1.0000, 1.0005, 1.0000},
    {"cubic5", 5, 119.3, .7741, 1.300, .7741},
};

static void test_response(const expected *e) {
  const dmuon_ns_table *table = dmuon_ns_table_find(e->name);
  if (!tap_ok(table != NULL, "%s is there", e->name)) return;
  tap_is_int(table->steps, e->steps, "%s: steps", e->name);
  if (e->slope == 0) return;
  enum { POINTS = 20000 };
  double low = HUGE_VAL, high = 0;
  for (int i = 0; i <= POINTS; i++) {
    double value = dmuon_ns_evaluate(table->steps, table->abc, pow(10, -2.0 * i / POINTS));
    low = fmin(low, value), high = fmax(high, value);
  }
  double slope = dmuon_ns_slope(table->steps, table->abc);
  tap_is_near(slope, e->slope, e->slope > 1e4 ? 500 : 0.05, "%s: slope at 0", e->name);
  tap_is_near(low, e->low, 6e-5, "%s: lowest on [0.01, 1]", e->name);
  tap_is_near(high, e->high, 6e-5, "%s: highest on [0.01, 1]", e->name);
  tap_is_near(dmuon_ns_evaluate(table->steps, table->abc, 1.0), e->at_one, 6e-5, "%s: at 1",
              e->name);
  tap_is_near(dmuon_ns_evaluate(table->steps, table->abc, 1e-12) / 1e-12, slope, 1e-9 * slope,
              "%s: the slope is that of the polynomial", e->name);
}

static double power(double x, int n) {
  return n ? x * power(x, n - 1) : 1;
}

int main(void) {
  for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) test_response(&tables[i]);
  tap_is_int(dmuon_ns_table_count(), sizeof tables / sizeof *tables, "no other tables");
  tap_ok(dmuon_ns_table_find("polar") == NULL, "an unknown name finds nothing");

  /* The default is the unmodified table with safety 1.05 on every step. */
  const dmuon_ns_table *safe = dmuon_ns_table_find("polar_express");
  const dmuon_ns_table *raw = dmuon_ns_table_find("polar_express_raw");
  double worst = 0;
  for (int i = 0; i < 15; i++) {
    double value = raw->abc[i] / power(1.05, 2 * (i % 3) + 1);
    worst = fmax(worst, fabs(value / safe->abc[i] - 1));
  }
  tap_is_near(worst, 0, 1e-15, "polar_express is polar_express_raw with safety 1.05");

  /* Whoever reads the help of ns_coefficients finds every table there. */
  const dmuon_option_table *options = &dmuon_ns_option_table;
  int index = dmuon_options_find(options, "ns_coefficients");
  for (int i = 0; index >= 0 && i < dmuon_ns_table_count(); i++) {
    tap_contains(options->specs[index].help, dmuon_ns_table_at(i)->name, "the help names table %d",
                 i);
  }
  tap_ok(index >= 0, "ns_coefficients is an option");
  return tap_done();
}
