/* One rank says something else: of a setting at set-up, of a live value at Step, of the model. All
 * ranks get DMUON_ERR_DISAGREE and a message that names it, nothing has changed, and with the
 * mistake corrected everything goes on as if it had not been made. */
#include <stdlib.h>
#include <string.h>

#include "step_case.h"
#include "tap_mpi.h"

enum { STEPS = 3 };

#define CHECKED(call, ...)                                                      \
  do {                                                                          \
    const DMuonErrorCode checked = (call);                                      \
    if (!tap_ok(!checked, __VA_ARGS__)) tap_diag("%s", DMuonErrorGetMessage()); \
  } while (0)

/* Every rank has this code, and a message that says these words. */
static int refused(DMuonErrorCode code, DMuonErrorCode wanted, const char *first,
                   const char *second, const char *label) {
  char message[1024];
  snprintf(message, sizeof message, "%s", DMuonErrorGetMessage());
  const int good = tap_ok(code == wanted && strstr(message, first) && strstr(message, second),
                          "%s: refused on all ranks, and named", label);
  if (!good)
    tap_diag("%s: %s; wanted \"%s\" and \"%s\" in: %s", label, DMuonErrorGetName(code), first,
             second, message);
  return good;
}

static DMuonErrorCode open_case(DMuonMesh *mesh, step_case *c) {
  DMUON_CALL(DMuonMeshCreate(MPI_COMM_WORLD, mesh));
  DMUON_CALL(case_create(*mesh, c));
  return DMuonOptimizerSetMuon(c->opt, .03, .9, .05);
}

static void close_case(DMuonMesh *mesh, step_case *c) {
  case_destroy(c);
  DMuonMeshDestroy(mesh);
}

static DMuonErrorCode step_once(step_case *c, int step) {
  case_fill_gradients(c, step, 0);
  return DMuonOptimizerStep(c->opt);
}

static uint64_t expected;

static DMuonErrorCode plain_run(void) {
  DMuonMesh mesh = NULL;
  step_case c = {0};
  DMUON_CALL(open_case(&mesh, &c));
  DMUON_CALL(case_set_up(mesh, &c));
  for (int t = 0; t < STEPS; t++) DMUON_CALL(step_once(&c, t));
  expected = case_hash(&c);
  close_case(&mesh, &c);
  return DMUON_SUCCESS;
}

/* ---- settings -------------------------------------------------------------------------------- */

typedef DMuonErrorCode (*say)(DMuonMesh mesh, DMuonOptimizer opt, int wrong);

static DMuonErrorCode say_rate(DMuonMesh mesh, DMuonOptimizer opt, int wrong) {
  (void)mesh;
  return DMuonOptimizerSetMuon(opt, wrong ? .07 : .03, .9, .05);
}
static DMuonErrorCode say_adamw(DMuonMesh mesh, DMuonOptimizer opt, int wrong) {
  (void)mesh;
  return DMuonOptimizerSetAdamW(opt, 1e-3, .9, wrong ? .95 : .999, 1e-8, .01);
}
static DMuonErrorCode say_rule(DMuonMesh mesh, DMuonOptimizer opt, int wrong) {
  (void)mesh;
  DMUON_CALL(DMuonOptimizerSetRule(opt, wrong ? "moonlight" : "dmuon"));
  return DMuonOptimizerSetMuon(opt, .03, .9, .05);
}
static DMuonErrorCode say_clip(DMuonMesh mesh, DMuonOptimizer opt, int wrong) {
  (void)mesh;
  return DMuonOptimizerSetClip(opt, wrong ? DMUON_CLIP_GLOBAL : DMUON_CLIP_NONE, 1);
}
static DMuonErrorCode say_norm(DMuonMesh mesh, DMuonOptimizer opt, int wrong) {
  (void)mesh;
  return DMuonOptimizerSetClip(opt, DMUON_CLIP_NONE, wrong ? 2.5 : 1);
}
static DMuonErrorCode say_scale(DMuonMesh mesh, DMuonOptimizer opt, int wrong) {
  (void)mesh;
  return DMuonOptimizerSetScale(opt, wrong ? DMUON_SCALE_SPECTRAL : DMUON_SCALE_MOONLIGHT, 1);
}
static DMuonErrorCode say_async(DMuonMesh mesh, DMuonOptimizer opt, int wrong) {
  (void)mesh;
  return DMuonOptimizerSetAsync(opt, wrong);
}
static DMuonErrorCode say_root(DMuonMesh mesh, DMuonOptimizer opt, int wrong) {
  (void)mesh;
  return DMuonOptimizerSetInitialRoot(opt, wrong ? 1 : 0);
}
static DMuonErrorCode say_hyper(DMuonMesh mesh, DMuonOptimizer opt, int wrong) {
  (void)mesh;
  return DMuonOptimizerSetHyper(opt, "*.square", DMUON_HYPER_MOMENTUM, wrong ? .5 : .9);
}
/* An option of the mesh, said before its set-up and after it. */
static DMuonErrorCode say_option(DMuonMesh mesh, DMuonOptimizer opt, int wrong) {
  (void)opt;
  return DMuonMeshSetOption(mesh, "opt.lr", wrong ? "0.07" : "0.03");
}
static DMuonErrorCode say_late_option(DMuonMesh mesh, DMuonOptimizer opt, int wrong) {
  (void)opt;
  DMUON_CALL(DMuonMeshSetUp(mesh));
  return DMuonMeshSetOption(mesh, "opt.momentum_form", wrong ? "ema" : "heavy_ball");
}

/* Tables of choices that differ, each in a file of its own. */
static DMuonErrorCode say_choices(DMuonMesh mesh, DMuonOptimizer opt, int wrong) {
  DMuonNewtonSchulz ns;
  char path[64];
  snprintf(path, sizeof path, "step_disagree.%d.%d.json", tap_rank, wrong);
  FILE *file = fopen(path, "w");
  if (!file) return DMUON_ERR_FILE;
  fprintf(file,
          "{\"dmuon_ns_choices\": 1, \"entries\": [{\"small\": 1000, \"big\": 2000, "
          "\"dtype\": \"fp32\", \"variant\": \"%s\"}]}",
          wrong ? "direct" : "gram");
  fclose(file);
  DMUON_CALL(DMuonNewtonSchulzCreate(mesh, &ns));
  DMUON_CALL(DMuonNewtonSchulzSetChoices(ns, path));
  DMUON_CALL(DMuonNewtonSchulzSetUp(ns));
  remove(path);
  DMUON_CALL(DMuonOptimizerSetNewtonSchulz(opt, ns));
  return DMuonNewtonSchulzDestroy(&ns);
}

static const struct {
  const char *label;
  say said;
  const char *words[2];
} at_set_up[] = {{"learning rate", say_rate, {"lr", "0.07"}},
                 {"AdamW's beta2", say_adamw, {"adamw_beta2", "0.95"}},
                 {"rule", say_rule, {"rule", "moonlight"}},
                 {"clip", say_clip, {"clip", "global"}},
                 {"clip norm", say_norm, {"clip_norm", "2.5"}},
                 {"scale", say_scale, {"scale", "spectral"}},
                 {"async", say_async, {"replicate_async", "1"}},
                 {"initial root", say_root, {"initial_root", "1"}},
                 {"SetHyper", say_hyper, {"layers.1.square", "momentum"}},
                 {"table of choices", say_choices, {"ns_choice 1000 x 2000", "direct"}},
                 {"option", say_option, {"lr", "0.07"}},
                 {"option said after the mesh's SetUp", say_late_option, {"momentum_form", "ema"}}};

static DMuonErrorCode setting_differs(size_t n, int who) {
  DMuonMesh mesh = NULL;
  step_case c = {0};
  DMUON_CALL(open_case(&mesh, &c));
  const uint64_t before = case_hash(&c);
  DMUON_CALL(at_set_up[n].said(mesh, c.opt, tap_rank == who));
  refused(DMuonOptimizerSetUp(c.opt), DMUON_ERR_DISAGREE, at_set_up[n].words[0],
          at_set_up[n].words[1], at_set_up[n].label);
  tap_ok(case_hash(&c) == before, "%s: the arrays are as they were", at_set_up[n].label);
  DMUON_CALL(at_set_up[n].said(mesh, c.opt, 0));
  DMUON_CALL(case_set_up(mesh, &c));
  for (int t = 0; t < STEPS; t++) DMUON_CALL(step_once(&c, t));
  tap_ok(case_hash(&c) == expected, "%s: corrected, as if it had not been", at_set_up[n].label);
  close_case(&mesh, &c);
  return DMUON_SUCCESS;
}

/* ---- live values ----------------------------------------------------------------------------- */

static DMuonErrorCode live_factor(step_case *c, int wrong) {
  return DMuonOptimizerSetLearningRateFactor(c->opt, wrong ? .5 : 1);
}
static DMuonErrorCode live_rate(step_case *c, int wrong) {
  return DMuonOptimizerSetHyper(c->opt, "layers.2.*brain", DMUON_HYPER_LR, wrong ? .125 : .03);
}
static DMuonErrorCode live_decay(step_case *c, int wrong) {
  return DMuonOptimizerSetHyper(c->opt, "embed.*", DMUON_HYPER_WEIGHT_DECAY, wrong ? .5 : .01);
}
static DMuonErrorCode live_clip(step_case *c, int wrong) {
  return DMuonOptimizerSetClip(c->opt, wrong ? DMUON_CLIP_BY_ROUTE : DMUON_CLIP_NONE, 1);
}
static DMuonErrorCode live_norm(step_case *c, int wrong) {
  return DMuonOptimizerSetClip(c->opt, DMUON_CLIP_NONE, wrong ? 3 : 1);
}
/* One sample a rank is what means count, too. */
static DMuonErrorCode live_samples(step_case *c, int wrong) {
  return wrong ? DMUON_SUCCESS : DMuonOptimizerSetSampleCount(c->opt, 1);
}

static const struct {
  const char *label;
  DMuonErrorCode (*said)(step_case *c, int wrong);
  const char *words[2];
} at_step[] = {{"factor", live_factor, {"learning rate factor", "0.5"}},
               {"rate of one parameter", live_rate, {"layers.2.brain", "0.125"}},
               {"decay of one parameter", live_decay, {"embed.weight", "weight_decay"}},
               {"clipping", live_clip, {"clip", "rank"}},
               {"clip norm", live_norm, {"clip norm", "3"}},
               {"samples on some ranks", live_samples, {"sample count", "rank"}}};

static DMuonErrorCode value_differs(size_t n, int who, int async) {
  DMuonMesh mesh = NULL;
  step_case c = {0};
  uint64_t weights, state[2] = {0};
  DMuonStepInfo info = {.struct_size = sizeof info};
  DMUON_CALL(open_case(&mesh, &c));
  DMUON_CALL(DMuonOptimizerSetAsync(c.opt, async));
  DMUON_CALL(case_set_up(mesh, &c));
  DMUON_CALL(step_once(&c, 0));
  DMUON_CALL(DMuonOptimizerWait(c.opt));
  weights = case_hash(&c);
  DMUON_CALL(case_state_hash(&c, &state[0]));
  DMUON_CALL(at_step[n].said(&c, tap_rank == who));
  for (int twice = 0; twice < 2; twice++)
    refused(step_once(&c, 1), DMUON_ERR_DISAGREE, at_step[n].words[0], at_step[n].words[1],
            at_step[n].label);
  DMUON_CALL(case_state_hash(&c, &state[1]));
  tap_ok(case_hash(&c) == weights && state[0] == state[1], "%s: nothing changed", at_step[n].label);
  DMUON_CALL(at_step[n].said(&c, 0));
  for (int t = 1; t < STEPS; t++) DMUON_CALL(step_once(&c, t));
  DMUON_CALL(DMuonOptimizerWait(c.opt));
  DMUON_CALL(DMuonOptimizerGetStepInfo(c.opt, &info));
  tap_ok(case_hash(&c) == expected && info.step == STEPS, "%s: corrected, as if it had not been",
         at_step[n].label);
  close_case(&mesh, &c);
  return DMUON_SUCCESS;
}

/* Accumulated gradients survive a step that ranks disagreed about. */
static DMuonErrorCode accumulated(void) {
  DMuonMesh mesh = NULL;
  step_case c = {0};
  uint64_t hash[2];
  for (int wrong = 0; wrong < 2; wrong++) {
    DMUON_CALL(open_case(&mesh, &c));
    DMUON_CALL(case_set_up(mesh, &c));
    case_fill_gradients(&c, 0, 0);
    DMUON_CALL(DMuonOptimizerAccumulate(c.opt));
    case_fill_gradients(&c, 0, 1);
    if (wrong) {
      DMUON_CALL(live_factor(&c, tap_rank == 0));
      refused(DMuonOptimizerStep(c.opt), DMUON_ERR_DISAGREE, "learning rate factor", "0.5",
              "accumulated");
      DMUON_CALL(live_factor(&c, 0));
    }
    DMUON_CALL(DMuonOptimizerStep(c.opt));
    hash[wrong] = case_hash(&c);
    close_case(&mesh, &c);
  }
  tap_ok(hash[0] == hash[1], "accumulated gradients are still there for the next Step");
  return DMUON_SUCCESS;
}

/* ---- models ---------------------------------------------------------------------------------- */

typedef enum { ORDER, EXTRA, SHAPE, ROUTE } mistake;

static DMuonErrorCode model_differs(mistake kind, int who) {
  static const struct {
    const char *label, *word;
  } kinds[] = {{"order of names", "layers."},
               {"an extra name", "layers.9.extra"},
               {"another shape", "layers.1.w"},
               {"another route", "layers.1.w"}};
  static float memory[3][2][32];
  static const int64_t dims[][2] = {{4, 8}, {8, 4}};
  const int wrong = tap_rank == who;
  DMuonMesh mesh = NULL;
  DMuonModel model = NULL;
  DMuonOptimizer opt = NULL;
  DMUON_CALL(DMuonMeshCreate(MPI_COMM_WORLD, &mesh));
  DMUON_CALL(DMuonModelCreate(mesh, &model));
  for (int i = 0; i < 2; i++) {
    char name[32];
    const int n = kind == ORDER && wrong ? 1 - i : i;
    snprintf(name, sizeof name, "layers.%d.w", n);
    DMUON_CALL(DMuonModelAddParamArray(model, name, DMUON_FLOAT32, 2,
                                       dims[kind == SHAPE && wrong && n == 1], memory[n][0],
                                       memory[n][1], NULL));
  }
  if (kind == EXTRA && wrong)
    DMUON_CALL(DMuonModelAddParamArray(model, "layers.9.extra", DMUON_FLOAT32, 2, dims[0],
                                       memory[2][0], memory[2][1], NULL));
  if (kind == ROUTE)
    DMUON_CALL(
        DMuonModelSetRoute(model, "layers.1.w", wrong ? DMUON_ROUTE_ADAMW : DMUON_ROUTE_MUON));
  DMUON_CALL(DMuonOptimizerCreate(model, &opt));
  refused(DMuonOptimizerSetUp(opt), DMUON_ERR_DISAGREE, kinds[kind].word, "", kinds[kind].label);
  DMuonOptimizerDestroy(&opt);
  DMuonModelDestroy(&model);
  DMuonMeshDestroy(&mesh);
  return DMUON_SUCCESS;
}

int main(int argc, char **argv) {
  tap_mpi_init(&argc, &argv);
  tap_plan(0);
  CHECKED(plain_run(), "a run without mistakes");
  for (size_t n = 0; n < sizeof at_set_up / sizeof *at_set_up; n++)
    CHECKED(setting_differs(n, (int)(n + 1) % tap_size), "%s: no other call fails",
            at_set_up[n].label);
  for (size_t n = 0; n < sizeof at_step / sizeof *at_step; n++)
    CHECKED(value_differs(n, (int)(n + 3) % tap_size, (int)n % 2), "%s: no other call fails",
            at_step[n].label);
  CHECKED(accumulated(), "no other call fails");
  for (int kind = ORDER; kind <= ROUTE; kind++)
    CHECKED(model_differs((mistake)kind, (kind + 2) % tap_size), "no other call fails");
  return tap_mpi_done();
}
