/* Agreement on settings and live values. The common case is one small message; only when something
 * differs are the values themselves exchanged, to name the first that does. */
#include "optim/vote.h"

#include <string.h>

#include "base/hash.h"
#include "mesh/mesh.h"

enum { HYPERS = DMUON_HYPER_EPS + 1 };

/* ---- settings ------------------------------------------------------------------------------ */

DMuonErrorCode dmuon_vote_settings(DMuonOptimizer opt, DMuonErrorCode code) {
  dmuon_text text;
  dmuon_text_init(&text, &opt->object.context->memory);
  if (!code) {
    dmuon_text_add(&text, "name=%s\n", opt->object.name);
    dmuon_options_print(&dmuon_optimizer_option_table, &opt->settings, &text);
    dmuon_ns_recipe_print(&opt->ns->recipe, &text);
  }
  code = dmuon_mesh_agree_text(dmuon_optimizer_mesh(opt), "optimizer", code, &text);
  dmuon_text_free(&text);
  return code;
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
  const int rank = dmuon_optimizer_mesh(opt)->rank;
  for (int p = 0; p < registry->param_count; p++) {
    if (registry->params[p].mesh != mesh || registry->global_to_local[p] < 0) continue;
    for (int h = 0; h < HYPERS; h++)
      if (theirs[p * HYPERS + h] != mine[p * HYPERS + h])
        DMUON_FAIL(DMUON_ERR_DISAGREE, "%s: %s is %.17g on rank %d, %.17g on rank %d",
                   registry->params[p].name, dmuon_hyper_names[h], mine[p * HYPERS + h], rank,
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
  const int rank = dmuon_optimizer_mesh(opt)->rank;
  dmuon_ballot *ballot = opt->ballot;

  dmuon_ballot_init(ballot, registry->mesh_count, registry->param_count);
  ballot->caller = opt->number;
  ballot->first_rank = rank;
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
    if (opt->arrays[id].gradients || opt->accumulated[id] || opt->lend.has_gradient[id])
      dmuon_ballot_set_gradient(ballot, p);
    if (!dmuon_verdict_is_used(&opt->verdict) && opt->nonfinite[id] >= 0 &&
        ballot->nonfinite_param < 0) {
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
  if (ballot->other_caller_rank >= 0)
    DMUON_FAIL(
        DMUON_ERR_DISAGREE,
        "rank %d called Step of another optimizer than rank 0; here of \"%s\", number %lld on "
        "its mesh; step several optimizers in the same order on all ranks",
        ballot->other_caller_rank, opt->object.name, (long long)opt->number);
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
