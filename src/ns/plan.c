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

/* Whether the table and its restarts keep rounding to 16 bits small. */
static int is_fit_for_half(const dmuon_ns_recipe *recipe) {
  return recipe->condition <= DMUON_NS_CONDITION_GOOD;
}

/* What the iteration runs in. A device that is much faster in fp16 gets it where nobody said
 * otherwise: not for fp64, which was chosen for its precision, nor where the Gram form was asked
 * for with a table that 16 bits do not carry (the direct form loses little). */
static DMuonDType choose_iterate(const dmuon_ns_recipe *recipe, DMuonDType dtype) {
  if (recipe->iterate_is_given) return recipe->iterate;
  if (recipe->prefers_half && dtype != DMUON_FLOAT64 &&
      (recipe->variant != DMUON_NS_GRAM || is_fit_for_half(recipe)))
    return DMUON_FLOAT16;
  return dmuon_dtype_wide(dtype);
}

static const dmuon_ns_choice *measured(const dmuon_ns_plan *plan) {
  return dmuon_ns_choices_find(&plan->recipe->choices, plan->small, plan->big, plan->iterate);
}

int dmuon_ns_plan_allows_gram(const dmuon_ns_plan *plan) {
  const dmuon_ns_recipe *recipe = plan->recipe;
  double limit = is_half(plan->iterate) ? DMUON_NS_CONDITION_GOOD : DMUON_NS_CONDITION_USELESS;
  return recipe->condition <= limit && !refuses_gram(recipe, plan->iterate);
}

static void choose_variant(dmuon_ns_plan *plan) {
  const dmuon_ns_recipe *recipe = plan->recipe;
  const dmuon_ns_choice *choice = measured(plan);
  if (recipe->variant != DMUON_NS_AUTO) {
    plan->variant = recipe->variant;
    plan->reason = "as asked for";
    return;
  }
  double gram = dmuon_ns_flops(recipe, DMUON_NS_GRAM, plan->small, plan->big);
  double direct = dmuon_ns_flops(recipe, DMUON_NS_DIRECT, plan->small, plan->big);
  if (!dmuon_ns_plan_allows_gram(plan)) {
    plan->variant = DMUON_NS_DIRECT;
    plan->reason = "the Gram form is not accurate with this table, restarts and precision";
  } else if (choice) {
    plan->variant = choice->variant;
    plan->reason = "measured: the table of choices has this shape";
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
  dmuon_ns_plan made = {.rows = rows, .cols = cols, .recipe = recipe, .batch = 1};
  made.transposed = rows > cols;
  made.small = made.transposed ? cols : rows;
  made.big = made.transposed ? rows : cols;
  made.iterate = choose_iterate(recipe, dtype);
  made.stage =
      dtype == DMUON_FLOAT64 || made.iterate == DMUON_FLOAT64 ? DMUON_FLOAT64 : DMUON_FLOAT32;
  choose_variant(&made);
  if (measured(&made)) made.tile = measured(&made)->tile;
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

static dmuon_ns_plan with_batch(const dmuon_ns_plan *plan, int64_t batch) {
  dmuon_ns_plan made = *plan;
  made.batch = batch;
  made.workspace_bytes = dmuon_ns_plan_layout(&made).bytes;
  /* A matrix each: stage, norm, normalise, result, and the diagonal of each segment's first Q. */
  int64_t each = 4 + (plan->variant == DMUON_NS_GRAM ? 1 + plan->recipe->restart_count : 0);
  made.operations += each * (batch - plan->batch);
  return made;
}

void dmuon_ns_plan_batch(dmuon_ns_plan *plan, int64_t count) {
  const dmuon_ns_choice *choice;
  int64_t most = 1, asked = plan->recipe->batch;
  if (count > DMUON_NS_BATCH_MAX) count = DMUON_NS_BATCH_MAX;
  if (plan->small == 0 || count < 1) return;
  choice = measured(plan);
  if (asked == 0 && choice) asked = choice->batch;
  if (asked > 0) {
    most = asked;
  } else if (plan->recipe->prefers_batches) {
    while (most < count && with_batch(plan, most + 1).workspace_bytes <= DMUON_NS_BATCH_BYTES)
      most++;
  }
  *plan = with_batch(plan, most < count ? most : count);
}

static int64_t padded(int64_t elements, DMuonDType dtype) {
  return (elements * (int64_t)dmuon_dtype_bytes(dtype) + 255) / 256 * 256;
}

static int64_t place(int64_t *end, int64_t bytes) {
  int64_t at = *end;
  *end += bytes;
  return at;
}

dmuon_ns_layout dmuon_ns_plan_layout(const dmuon_ns_plan *plan) {
  dmuon_ns_layout layout = {.norm = 0};
  int64_t end = (plan->batch * (int64_t)sizeof(dmuon_norm) + 255) / 256 * 256;
  int64_t big = plan->small * plan->big, square = plan->small * plan->small;
  int squares = plan->variant == DMUON_NS_GRAM ? 4 : 2;
  int64_t stage = padded(big, plan->stage);
  layout.big_stride = padded(big, plan->iterate);
  layout.square_stride = padded(square, plan->iterate);
  int64_t all = plan->batch * layout.big_stride;
  layout.big[0] = place(&end, all);
  /* First the staged matrix, one after the other, then a second X. */
  layout.big[1] = place(&end, all > stage ? all : stage);
  for (int i = 0; i < 4; i++)
    layout.square[i] = i < squares ? place(&end, plan->batch * layout.square_stride) : 0;
  layout.bytes = end;
  return layout;
}
