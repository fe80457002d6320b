/* Recipes, scale rules, the matrices of a parameter, clipping factors: pure decisions. */
#include <string.h>

#include "clip/clip.h"
#include "optim/optimizer.h"
#include "tap.h"
#include "update/pieces.h"
#include "update/rule.h"

static void scales(void) {
  static const double tall[] = {12.8, 2, 64, 2, 1}, wide[] = {12.8, 1, 64, 0.5, 1};
  for (int s = 0; s < 5; s++) {
    dmuon_rule rule = {.scale = s, .scale_factor = 1};
    tap_is_near(dmuon_rule_scale(&rule, 4096, 1024), tall[s], 1e-12, "scale %s of 4096 x 1024",
                dmuon_scale_names[s]);
    tap_is_near(dmuon_rule_scale(&rule, 1024, 4096), wide[s], 1e-12, "scale %s of 1024 x 4096",
                dmuon_scale_names[s]);
  }
  dmuon_rule rule = {.scale = DMUON_SCALE_SPECTRAL, .scale_factor = 0.2};
  tap_is_near(dmuon_rule_scale(&rule, 100, 25), 2, 1e-12, "factor multiplies");
  tap_ok(dmuon_rule_scale(&rule, 0, 8) == 0, "an empty matrix has no scale");
}

static void recipes(void) {
  dmuon_rule rule;
  const char *table;
  tap_ok(!dmuon_rule_recipe("jordan", &rule, &table) && !strcmp(table, "jordan") &&
             rule.momentum_form == DMUON_MOMENTUM_EMA && rule.nesterov &&
             rule.scale == DMUON_SCALE_JORDAN && rule.missing_gradient == DMUON_MISSING_ZERO,
         "jordan: EMA, Nesterov, its scale, zeros for missing gradients");
  tap_ok(!dmuon_rule_recipe("emerging", &rule, &table) && !strcmp(table, "you") && !rule.nesterov &&
             rule.scale == DMUON_SCALE_SPECTRAL && rule.lr == 3e-4,
         "emerging: its table, no Nesterov, spectral scale");
  rule.lr = -1;
  tap_ok(dmuon_rule_recipe("jordn", &rule, &table) == DMUON_ERR_ARGUMENT && rule.lr == -1 &&
             strstr(DMuonErrorGetMessage(), "did you mean \"jordan\""),
         "an unknown rule changes nothing and names the nearest");

  dmuon_memory memory = {0};
  dmuon_optimizer_settings defaults;
  memset(&defaults, 0, sizeof defaults);
  tap_ok(!dmuon_options_defaults(&memory, &dmuon_optimizer_option_table, &defaults),
         "option defaults");
  dmuon_rule_recipe("dmuon", &rule, NULL);
  tap_ok(rule.lr == defaults.rule.lr && rule.momentum == defaults.rule.momentum &&
             rule.weight_decay == defaults.rule.weight_decay &&
             rule.scale_factor == defaults.rule.scale_factor &&
             rule.adamw_lr == defaults.rule.adamw_lr && rule.beta1 == defaults.rule.beta1 &&
             rule.beta2 == defaults.rule.beta2 && rule.eps == defaults.rule.eps &&
             rule.adamw_weight_decay == defaults.rule.adamw_weight_decay &&
             rule.momentum_form == defaults.rule.momentum_form &&
             rule.nesterov == defaults.rule.nesterov && rule.decay == defaults.rule.decay &&
             rule.scale == defaults.rule.scale &&
             rule.missing_gradient == defaults.rule.missing_gradient,
         "the defaults of the options are the recipe dmuon");
}

/* Marks every element of every piece: each must be hit once, and belong to the right block. */
static void cuts(const char *what, dmuon_param *param) {
  enum { MOST = 4096 };
  int hits[MOST] = {0}, wrong = 0;
  const int64_t side = param->output == DMUON_ROWS ? param->rows : param->cols;
  for (int64_t k = 0; k < dmuon_piece_count(param); k++) {
    dmuon_piece piece;
    dmuon_piece_get(param, k, &piece);
    const dmuon_ns_view *v = &piece.view;
    for (int64_t i = 0; i < v->rows; i++)
      for (int64_t j = 0; j < v->cols; j++) {
        int64_t at = piece.offset;
        at += v->side == DMUON_ROWS
                  ? i / v->strip * v->stride * (v->strips > 1) + (i % v->strip) * v->ld + j
                  : i * v->ld + j / v->strip * v->stride * (v->strips > 1) + j % v->strip;
        if (at < 0 || at >= param->numel) {
          wrong++;
          continue;
        }
        hits[at]++;
        if (param->nblocks == 0) continue;
        int64_t along = at % (param->rows * param->cols);
        along = param->output == DMUON_ROWS ? along / param->cols : along % param->cols;
        int64_t in_repeat = along % (side / param->repeat), block = 0;
        while (in_repeat >= param->blocks[block]) in_repeat -= param->blocks[block++];
        wrong += block != k % param->nblocks;
      }
    wrong += piece.out != (param->output == DMUON_ROWS ? v->rows : v->cols);
    wrong += piece.in != (param->output == DMUON_ROWS ? v->cols : v->rows);
  }
  for (int64_t i = 0; i < param->numel; i++) wrong += hits[i] != 1;
  tap_is_int(wrong, 0, "%s: every element in one piece, the right one", what);
}

/* Pieces of one shape are known as such: each has its place among them, and is found at it. */
static void alike(const char *what, dmuon_param *param, int64_t first_count) {
  int wrong = 0;
  for (int64_t i = 0; i < dmuon_piece_count(param); i++) {
    const dmuon_piece_alike a = dmuon_piece_alike_of(param, i);
    dmuon_piece one, other;
    int64_t count = 0, before = 0;
    dmuon_piece_get(param, i, &one);
    for (int64_t k = 0; k < dmuon_piece_count(param); k++) {
      dmuon_piece_get(param, k, &other);
      const int same = one.view.rows == other.view.rows && one.view.cols == other.view.cols;
      if (!same) continue;
      wrong += dmuon_piece_alike_at(param, i, count) != k;
      count++;
      before += k < i;
    }
    wrong += a.count != count || a.rank != before;
    if (i == 0) wrong += count != first_count;
  }
  tap_is_int(wrong, 0, "%s: pieces of one shape find each other", what);
}

static void pieces(void) {
  int64_t qkv[] = {6, 1, 1}, gated[] = {4, 4, 2, 2};
  dmuon_param plain = {.numel = 24, .batch = 1, .rows = 4, .cols = 6};
  dmuon_param batch = {.numel = 60, .batch = 5, .rows = 3, .cols = 4};
  dmuon_param rows = {.numel = 2 * 16 * 5,
                      .batch = 2,
                      .rows = 16,
                      .cols = 5,
                      .nblocks = 3,
                      .blocks = qkv,
                      .repeat = 2};
  dmuon_param cols = {.numel = 7 * 24,
                      .batch = 1,
                      .rows = 7,
                      .cols = 24,
                      .output = DMUON_COLS,
                      .nblocks = 4,
                      .blocks = gated,
                      .repeat = 2};
  tap_is_int(dmuon_piece_count(&plain), 1, "a matrix is one piece");
  tap_is_int(dmuon_piece_count(&batch), 5, "a batch of five is five");
  tap_is_int(dmuon_piece_count(&rows), 6, "two matrices of three blocks are six");
  cuts("plain", &plain);
  cuts("batch", &batch);
  cuts("row blocks, two repeats, two matrices", &rows);
  cuts("column blocks, two repeats", &cols);
  alike("plain", &plain, 1);
  alike("batch", &batch, 5);
  alike("row blocks, two repeats, two matrices", &rows, 2);
  alike("column blocks, two repeats", &cols, 2);
}

static void clipping(void) {
  const dmuon_norm norms[] = {{9, 0}, {16, 0}, {144, 0}, {0, 0}};
  const DMuonRoute routes[] = {DMUON_ROUTE_MUON, DMUON_ROUTE_MUON, DMUON_ROUTE_ADAMW,
                               DMUON_ROUTE_MUON};
  dmuon_clip_result r;
  dmuon_clip_decide(DMUON_CLIP_GLOBAL, 6.5, 4, norms, routes, &r);
  tap_is_near(r.grad_norm, 13, 1e-14, "norm of everything");
  tap_is_near(r.muon_norm, 5, 1e-14, "norm of muon");
  tap_is_near(r.adamw_norm, 12, 1e-14, "norm of adamw");
  tap_is_near(r.factor, 6.5 / (13 + 1e-6), 1e-15, "one factor");
  tap_ok(r.muon_factor == r.factor && r.adamw_factor == r.factor, "for both routes");
  dmuon_clip_decide(DMUON_CLIP_BY_ROUTE, 6, 4, norms, routes, &r);
  tap_ok(r.muon_factor == 1, "a small norm is left alone");
  tap_is_near(r.adamw_factor, 6 / (12 + 1e-6), 1e-15, "a large one is cut");
  tap_ok(r.factor == r.adamw_factor, "the smaller is reported");
  const dmuon_norm huge[] = {{1, 2000}, {1, 2000}};
  dmuon_clip_decide(DMUON_CLIP_GLOBAL, 1, 2, huge, routes, &r);
  tap_ok(r.factor == 0 || r.factor < 1e-300, "a norm beyond fp64 clips to nothing, not to NaN");
  dmuon_clip_decide(DMUON_CLIP_NONE, 1, 4, norms, routes, &r);
  tap_ok(r.factor == 1 && r.grad_norm > 12.9, "without clipping the norms are there");
}

int main(void) {
  scales();
  recipes();
  pieces();
  clipping();
  return tap_done();
}
