/* What runs for one shape: decides orientation, precision, the direct or the Gram form, and where
 * things lie in the workspace. Pure; run.c carries it out.
 *
 * With m the small and n the large side, and symmetric products at half work, a step of the direct
 * form costs 1.5 m^2 n + 0.5 m^3 multiply-adds: five steps 7.5 m^2 n + 2.5 m^3. The Gram form needs
 * 1.5 m^2 n a segment and otherwise only products of the small side: with five steps and one
 * restart before the third 3 m^2 n + 8.5 m^3. They meet at n = 4/3 m. */
#include "ns/ns.h"

static int is_half(DMuonDType dtype) {
  return dtype == DMUON_BFLOAT16 || dtype == DMUON_FLOAT16;
}

/* Counts in units of m^2 n (big) and m^3 (square), and the operations issued. */
typedef struct {
  double big, square;
  int64_t operations;
} work;

static work direct_work(const dmuon_ns_recipe *recipe) {
  double steps = recipe->steps;
  return (work){1.5 * steps, 0.5 * steps, 5 * (int64_t)recipe->steps};
}

static work gram_work(const dmuon_ns_recipe *recipe) {
  work w = {1.5, 0.0, 2}; /* the first Gram matrix, the last application of Q */
  int next = 0, fresh = 1;
  for (int i = 0; i < recipe->steps; i++) {
    if (next < recipe->restart_count && recipe->restarts[next] == i) {
      w.big += 1.5;
      w.operations += 2;
      fresh = 1;
      next++;
    }
    w.square += 0.5; /* Z */
    w.operations += 2;
    if (!fresh) w.square += 1.0; /* Q, which is not kept symmetric */
    w.operations += 2;
    fresh = 0;
    int ends =
        i + 1 == recipe->steps || (next < recipe->restart_count && recipe->restarts[next] == i + 1);
    if (!ends) w.square += 1.0, w.operations += 4; /* R */
  }
  return w;
}

static work work_of(const dmuon_ns_recipe *recipe, dmuon_ns_variant variant) {
  return variant == DMUON_NS_DIRECT ? direct_work(recipe) : gram_work(recipe);
}

double dmuon_ns_flops(const dmuon_ns_recipe *recipe, dmuon_ns_variant variant, int64_t small,
                      int64_t big) {
  work w = work_of(recipe, variant);
  double m = (double)small, n = (double)big;
  return 2.0 * m * m * (w.big * n + w.square * m);
}

/* Rounded to bf16, a Gram matrix is too coarse to be carried through all steps. */
static int refuses_gram(const dmuon_ns_recipe *recipe, DMuonDType iterate) {
  return iterate == DMUON_BFLOAT16 && recipe->steps > 1 && recipe->restart_count == 0;
}

static void choose_variant(dmuon_ns_plan *plan) {
  const dmuon_ns_recipe *recipe = plan->recipe;
  if (recipe->variant != DMUON_NS_AUTO) {
    plan->variant = recipe->variant;
    plan->reason = "as asked for";
    return;
  }
  double limit = is_half(plan->iterate) ? DMUON_NS_CONDITION_GOOD : DMUON_NS_CONDITION_USELESS;
  double gram = dmuon_ns_flops(recipe, DMUON_NS_GRAM, plan->small, plan->big);
  double direct = dmuon_ns_flops(recipe, DMUON_NS_DIRECT, plan->small, plan->big);
  if (!(recipe->condition <= limit) || refuses_gram(recipe, plan->iterate)) {
    plan->variant = DMUON_NS_DIRECT;
    plan->reason = "the Gram form is not accurate with this table, restarts and precision";
  } else if (gram < direct) {
    plan->variant = DMUON_NS_GRAM;
    plan->reason = "fewer operations";
  } else {
    plan->variant = DMUON_NS_DIRECT;
    plan->reason =
        gram > direct ? "fewer operations" : "as many operations, smaller rounding error";
  }
}

DMuonErrorCode dmuon_ns_plan_make(const dmuon_ns_recipe *recipe, int64_t rows, int64_t cols,
                                  DMuonDType dtype, dmuon_ns_plan *plan) {
  if (rows < 0 || cols < 0) {
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "a matrix of %lld x %lld; sides are at least 0", (long long)rows,
               (long long)cols);
  }
  if (!dmuon_dtype_is_valid(dtype)) DMUON_FAIL(DMUON_ERR_ARGUMENT, "no dtype %d", (int)dtype);
  if (cols > 0 && rows > INT64_MAX / 64 / cols) {
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "a matrix of %lld x %lld is larger than memory can be",
               (long long)rows, (long long)cols);
  }
  dmuon_ns_plan made = {.rows = rows, .cols = cols, .recipe = recipe};
  made.transposed = rows > cols;
  made.small = made.transposed ? cols : rows;
  made.big = made.transposed ? rows : cols;
  made.iterate = recipe->iterate_is_given ? recipe->iterate : dmuon_dtype_wide(dtype);
  made.stage =
      dtype == DMUON_FLOAT64 || made.iterate == DMUON_FLOAT64 ? DMUON_FLOAT64 : DMUON_FLOAT32;
  choose_variant(&made);
  if (made.variant == DMUON_NS_GRAM && refuses_gram(recipe, made.iterate)) {
    DMUON_FAIL(DMUON_ERR_ARGUMENT,
               "a bf16 Gram iteration of %d steps without a restart is not accurate; give "
               "ns_restarts auto or variant direct",
               recipe->steps);
  }
  if (made.small > 0) {
    made.flops = dmuon_ns_flops(recipe, made.variant, made.small, made.big);
    made.workspace_bytes = dmuon_ns_plan_layout(&made).bytes;
    /* Besides the iteration: stage, norm, normalise, result. */
    made.operations = work_of(recipe, made.variant).operations + 4;
  } else {
    made.reason = "empty: nothing to do";
  }
  *plan = made;
  return DMUON_SUCCESS;
}

static int64_t place(int64_t *end, int64_t elements, DMuonDType dtype) {
  int64_t at = *end;
  *end += (elements * (int64_t)dmuon_dtype_bytes(dtype) + 255) / 256 * 256;
  return at;
}

dmuon_ns_layout dmuon_ns_plan_layout(const dmuon_ns_plan *plan) {
  dmuon_ns_layout layout = {.norm = 0};
  int64_t end = 256; /* the norm */
  int64_t big = plan->small * plan->big, square = plan->small * plan->small;
  int squares = plan->variant == DMUON_NS_GRAM ? 4 : 2;
  layout.big[0] = place(&end, big, plan->iterate);
  layout.big[1] = place(&end, big, plan->stage); /* first the staged matrix, then a second X */
  for (int i = 0; i < 4; i++)
    layout.square[i] = i < squares ? place(&end, square, plan->iterate) : 0;
  layout.bytes = end;
  return layout;
}
