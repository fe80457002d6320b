/* Agreement on settings and live values. The common case is one small message; only when something
 * differs are the values themselves exchanged, to name the first that does. */
#include "optim/vote.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "mesh/mesh.h"

enum { HYPERS = DMUON_HYPER_EPS + 1 };
static const char *const hyper_names[HYPERS] = {"lr",    "momentum", "weight_decay",
                                                "beta1", "beta2",    "eps"};

/* ---- settings ------------------------------------------------------------------------------ */

static void print_setting(const dmuon_option_spec *spec, const dmuon_optimizer_settings *settings,
                          char *text, size_t size) {
  const char *field = (const char *)settings + spec->offset;
  int number;
  int64_t integer;
  double real;
  switch (spec->type) {
    case DMUON_OPTION_ENUM:
      memcpy(&number, field, sizeof number);
      snprintf(text, size, "%s", spec->values[number]);
      return;
    case DMUON_OPTION_BOOL:
      memcpy(&number, field, sizeof number);
      snprintf(text, size, "%d", number);
      return;
    case DMUON_OPTION_INT:
      memcpy(&integer, field, sizeof integer);
      snprintf(text, size, "%lld", (long long)integer);
      return;
    case DMUON_OPTION_REAL:
      memcpy(&real, field, sizeof real);
      snprintf(text, size, "%.17g", real);
      return;
    default:
      snprintf(text, size, "?");
  }
}

static DMuonErrorCode compare_settings(DMuonOptimizer opt, const dmuon_optimizer_settings *first) {
  for (int i = 0; i < dmuon_optimizer_options.count; i++) {
    const dmuon_option_spec *spec = &dmuon_optimizer_options.specs[i];
    char here[64], there[64];
    print_setting(spec, &opt->settings, here, sizeof here);
    print_setting(spec, first, there, sizeof there);
    if (strcmp(here, there) != 0)
      DMUON_FAIL(DMUON_ERR_DISAGREE,
                 "optimizer \"%s\": %s is %s on rank %d, %s on rank 0; all ranks must set the same",
                 opt->object.name, spec->name, here,
                 dmuon_bootstrap_rank(dmuon_optimizer_mesh(opt)->bootstrap), there);
  }
  return DMUON_SUCCESS;
}

static uint64_t hash_recipe(const dmuon_ns_recipe *recipe) {
  uint64_t hash = dmuon_hash_int(DMUON_HASH_SEED, recipe->variant);
  hash = dmuon_hash_int(hash, recipe->iterate_is_given ? (int)recipe->iterate : -1);
  hash = dmuon_hash_int(hash, recipe->steps);
  for (int i = 0; i < 3 * recipe->steps; i++) hash = dmuon_hash_real(hash, recipe->abc[i]);
  hash = dmuon_hash_int(hash, recipe->restart_count);
  for (int i = 0; i < recipe->restart_count; i++) hash = dmuon_hash_int(hash, recipe->restarts[i]);
  return hash;
}

DMuonErrorCode dmuon_vote_settings(DMuonOptimizer opt) {
  dmuon_bootstrap *bootstrap = dmuon_optimizer_mesh(opt)->bootstrap;
  const char *what = "comparing the optimizer's settings";
  dmuon_optimizer_settings first = opt->settings;
  int equal, other;
  DMUON_TRY(dmuon_agree_broadcast(bootstrap, what, 0, &first, sizeof first));
  DMUON_TRY(dmuon_agree_error(bootstrap, what, compare_settings(opt, &first), DMUON_ERR_DISAGREE));
  DMUON_TRY(dmuon_agree_equal(bootstrap, what, hash_recipe(&opt->ns->recipe), &equal, &other));
  if (!equal)
    DMUON_FAIL(DMUON_ERR_DISAGREE,
               "optimizer \"%s\": Newton-Schulz (variant, coefficients, restarts or dtype) is not "
               "the same on rank %d as on rank 0",
               opt->object.name, other);
  return DMUON_SUCCESS;
}

/* ---- live values --------------------------------------------------------------------------- */

/* One row a parameter, then one of the optimizer's own values. */
static void fill_values(DMuonOptimizer opt, double *values) {
  const dmuon_registry *registry = &opt->model->registry;
  memset(values, 0, sizeof(double) * HYPERS * ((size_t)registry->param_count + 1));
  for (int id = 0; id < registry->local_count; id++)
    memcpy(values + (size_t)HYPERS * (size_t)registry->local_to_global[id], opt->hyper[id].value,
           sizeof opt->hyper[id].value);
  double *own = values + (size_t)HYPERS * (size_t)registry->param_count;
  own[0] = opt->factor;
  own[1] = opt->settings.clip;
  own[2] = opt->settings.clip_norm;
}

static DMuonErrorCode compare_values(DMuonOptimizer opt, int mesh, int first_rank,
                                     const double *theirs, const double *mine) {
  static const char *const own_names[] = {"learning rate factor", "clip kind", "clip norm"};
  const dmuon_registry *registry = &opt->model->registry;
  const int rank = dmuon_bootstrap_rank(dmuon_optimizer_mesh(opt)->bootstrap);
  for (int p = 0; p < registry->param_count; p++) {
    if (registry->params[p].mesh != mesh || registry->global_to_local[p] < 0) continue;
    for (int h = 0; h < HYPERS; h++)
      if (theirs[p * HYPERS + h] != mine[p * HYPERS + h])
        DMUON_FAIL(DMUON_ERR_DISAGREE, "%s: %s is %.17g on rank %d, %.17g on rank %d",
                   registry->params[p].name, hyper_names[h], mine[p * HYPERS + h], rank,
                   theirs[p * HYPERS + h], first_rank);
  }
  const size_t own = (size_t)HYPERS * (size_t)registry->param_count;
  for (size_t i = 0; mesh == 0 && i < 3; i++)
    if (theirs[own + i] != mine[own + i])
      DMUON_FAIL(DMUON_ERR_DISAGREE, "%s is %.17g on rank %d, %.17g on rank %d", own_names[i],
                 mine[own + i], rank, theirs[own + i], first_rank);
  return DMUON_SUCCESS;
}

/* Some rank of `mesh` has other live values than first_rank: says which value. Collective. */
static DMuonErrorCode name_difference(DMuonOptimizer opt, int mesh, int first_rank) {
  const dmuon_registry *registry = &opt->model->registry;
  dmuon_bootstrap *bootstrap = dmuon_optimizer_mesh(opt)->bootstrap;
  dmuon_memory *memory = &opt->object.context->memory;
  const int64_t count = ((int64_t)registry->param_count + 1) * HYPERS;
  const char *what = "comparing live values";
  double *mine = NULL, *theirs = NULL;
  DMuonErrorCode code = dmuon_memory_alloc(memory, count, sizeof *mine, &mine);
  if (!code) code = dmuon_memory_alloc(memory, count, sizeof *theirs, &theirs);
  code = dmuon_agree_error(bootstrap, what, code, DMUON_ERR_DISAGREE);
  if (!code) {
    fill_values(opt, mine);
    memcpy(theirs, mine, (size_t)count * sizeof *mine);
    code =
        dmuon_agree_broadcast(bootstrap, what, first_rank, theirs, count * (int64_t)sizeof *theirs);
  }
  if (!code) {
    int holds = registry->meshes[mesh].mesh != NULL;
    code = holds ? compare_values(opt, mesh, first_rank, theirs, mine) : DMUON_SUCCESS;
    code = dmuon_agree_error(bootstrap, what, code, DMUON_ERR_DISAGREE);
  }
  dmuon_memory_free(mine);
  dmuon_memory_free(theirs);
  if (!code) code = DMUON_ERROR(DMUON_ERR_DISAGREE, "live values differ between ranks");
  return code;
}

static uint64_t hash_values(DMuonOptimizer opt, int mesh) {
  const dmuon_registry *registry = &opt->model->registry;
  uint64_t hash = DMUON_HASH_SEED;
  for (int p = 0; p < registry->param_count; p++) {
    const int id = registry->global_to_local[p];
    if (id < 0 || registry->params[p].mesh != mesh) continue;
    for (int h = 0; h < HYPERS; h++) hash = dmuon_hash_real(hash, opt->hyper[id].value[h]);
  }
  if (mesh == 0) {
    hash = dmuon_hash_real(hash, opt->factor);
    hash = dmuon_hash_int(hash, opt->settings.clip);
    hash = dmuon_hash_real(hash, opt->settings.clip_norm);
  }
  return hash;
}

static void fill_ballot(DMuonOptimizer opt, const dmuon_vote_input *input) {
  const dmuon_registry *registry = &opt->model->registry;
  const int rank = dmuon_bootstrap_rank(dmuon_optimizer_mesh(opt)->bootstrap);
  dmuon_ballot *ballot = opt->ballot;

  dmuon_ballot_init(ballot, registry->mesh_count, registry->param_count);
  for (int m = 0; m < registry->mesh_count; m++) {
    dmuon_ballot_mesh *mesh = dmuon_ballot_mesh_at(ballot, m);
    if (!registry->meshes[m].mesh) continue;
    mesh->values = hash_values(opt, m);
    mesh->voters = 1;
    mesh->first_rank = rank;
    if (!input) continue;
    if (input->samples >= 0) {
      mesh->counted = 1;
      mesh->samples = input->samples;
    } else {
      mesh->uncounted_rank = rank;
    }
  }
  if (!input) return;
  if (input->code) {
    ballot->error_code = (int32_t)input->code;
    ballot->error_rank = rank;
  }
  for (int p = 0; input->with_gradients && p < registry->param_count; p++) {
    const int id = registry->global_to_local[p];
    if (id < 0 || registry->params[p].route == DMUON_ROUTE_FROZEN) continue;
    if (opt->arrays[id].gradients || opt->accumulated[id]) dmuon_ballot_set_gradient(ballot, p);
    if (opt->nonfinite[id] >= 0 && ballot->nonfinite_param < 0) {
      ballot->nonfinite_param = p;
      ballot->nonfinite_rank = rank;
    }
  }
}

DMuonErrorCode dmuon_vote(DMuonOptimizer opt, const char *what, const dmuon_vote_input *input) {
  dmuon_bootstrap *bootstrap = dmuon_optimizer_mesh(opt)->bootstrap;
  dmuon_ballot *ballot = opt->ballot;

  fill_ballot(opt, input);
  DMUON_TRY(dmuon_agree_reduce(bootstrap, what, ballot, ballot->bytes, dmuon_ballot_combine, NULL));
  if (ballot->error_code) /* its rank knows the message; all get it */
    return dmuon_agree_error(bootstrap, what, input ? input->code : DMUON_SUCCESS,
                             DMUON_ERR_DISAGREE);
  for (int m = 0; m < ballot->mesh_count; m++) {
    const dmuon_ballot_mesh *mesh = dmuon_ballot_mesh_at(ballot, m);
    if (mesh->differing_rank >= 0) return name_difference(opt, m, mesh->first_rank);
    if (mesh->counted > 0 && mesh->uncounted_rank >= 0)
      DMUON_FAIL(DMUON_ERR_DISAGREE,
                 "rank %d gave no sample count while others did; SetSampleCount on every rank, or "
                 "on none",
                 mesh->uncounted_rank);
  }
  return DMUON_SUCCESS;
}
