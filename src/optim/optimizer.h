/* The optimizer object, shared by the files of this room: settings.c (options and setters),
 * setup.c, live.c (calls between steps), step.c, state.c (reading it out), view.c. */
#ifndef DMUON_OPTIM_OPTIMIZER_H
#define DMUON_OPTIM_OPTIMIZER_H

#include <dmuon/group.h>
#include <dmuon/optimizer.h>

#include "base/object.h"
#include "engine/lend.h"
#include "model/model.h"
#include "ns/ns.h"
#include "optim/ballot.h"
#include "optim/verdict.h"
#include "partition/partition.h"
#include "update/update.h"

typedef struct {
  int recipe; /* index into dmuon_recipe_names */
  dmuon_rule rule;
  int clip;
  double clip_norm;
  int64_t replicate_async; /* -1: for lent parameters */
  int64_t initial_root;    /* DMUON_ALL: -1 */
  int order, grad_mode, reshard, muon_forward_unshard;
  int64_t prefetch_depth, backward_prefetch_depth, open_groups, post_step_prefetch;
  int delay_stage2_to_optimizer;
  double publish_bucket_mb;
  int check_invariants;
} dmuon_optimizer_settings;

extern const dmuon_option_table dmuon_optimizer_option_table;
extern const char *const dmuon_clip_names[]; /* by DMuonClip */

/* One SetHyper. */
typedef struct {
  char *pattern;
  DMuonHyper which;
  double value;
} dmuon_hyper_rule;

typedef struct dmuon_pass_vote dmuon_pass_vote; /* pass.c */

/* What a program opens: a group of the optimizer. */
#define DMUON_GROUP_MAGIC 0x6d75676eu
struct DMuonGroup_ {
  unsigned magic;
  DMuonOptimizer opt;
  int index;
};

struct DMuonOptimizer_ {
  dmuon_object object;
  DMuonModel model;         /* retained */
  DMuonPartition partition; /* retained; NULL: made by SetUp */
  DMuonNewtonSchulz ns;     /* retained; NULL: made by SetUp from the recipe */
  dmuon_optimizer_settings settings;
  unsigned char program[48]; /* by option: the program set it */
  int hyper_rule_count, hyper_rule_capacity;
  dmuon_hyper_rule *hyper_rules;
  DMuonInitFunction init;
  void *init_context;
  void *stream; /* the caller's, where has_stream; else the default one */
  int has_stream;
  double factor;  /* of every learning rate */
  double samples; /* of this rank's gradients; negative: means, not sums */

  /* After SetUp. Arrays by id unless said. */
  int64_t number; /* among the optimizers set up on the mesh, from 1: the same on all ranks */
  dmuon_runtime runtime;
  dmuon_lend lend;
  dmuon_verdict verdict; /* used where the device decides late */
  int group_count;
  struct DMuonGroup_ *groups;
  dmuon_pass_vote *pass_vote;
  int is_async; /* new values may be under way when Step returns */
  dmuon_param_arrays *arrays;
  dmuon_hyper *hyper;        /* without the factor */
  dmuon_param_state *states; /* filled where this rank is the owner */
  dmuon_update_plan *plans;
  unsigned char *own_master; /* the master is memory of ours, not the caller's array */
  void *workspace;
  double *ns_stamps;    /* [2 * local_count]; of alloc_host, as all that operations tell the host */
  void **accumulators;  /* NULL until the first Accumulate */
  void **accumulated;   /* the accumulator, where something was accumulated since the last Step */
  int accumulate_calls; /* since the last Step */
  double accumulated_samples;
  double pass_samples; /* as samples, when the last bracket of the pass was opened or closed */
  dmuon_ballot *ballot;
  dmuon_norm *norms;          /* by registry index; of alloc_host */
  DMuonRoute *routes;         /* by registry index */
  int64_t *nonfinite;         /* by id; of alloc_host */
  int active_count, *active;  /* bundles that take part in this step */
  int64_t newton_schulz_here; /* that this rank ran, since SetUp */
  DMuonStepInfo info;
  int pending;              /* something that was issued may still be under way */
  int is_stepping;          /* the other ranks are in the middle of the same: no going back alone */
  int has_arrays, has_lent; /* somewhere in the model, on any rank */
  int seconds_known;        /* info holds the times of the last step */
};

DMuonMesh dmuon_optimizer_mesh(DMuonOptimizer opt);
/* A live optimizer on a mesh that works: for calls that communicate. */
DMuonErrorCode dmuon_optimizer_check_live(DMuonOptimizer opt, const char *call);
/* What an error of asynchronous work does: a fatal one breaks the mesh. */
DMuonErrorCode dmuon_optimizer_settle(DMuonOptimizer opt, DMuonErrorCode code);
/* All that was issued is done. */
DMuonErrorCode dmuon_optimizer_drain(DMuonOptimizer opt);

/* The recipe's rule, then the options over it, in the right order. */
DMuonErrorCode dmuon_optimizer_apply_options(DMuonOptimizer opt);
/* Hyper-parameters of one parameter from the rule and the SetHyper rules so far. */
void dmuon_optimizer_resolve_hyper(DMuonOptimizer opt, const dmuon_param *param,
                                   dmuon_hyper *hyper);
/* Frees all that SetUp made. */
void dmuon_optimizer_teardown(DMuonOptimizer opt);
/* Accumulated gradients are used up or dropped. */
void dmuon_optimizer_forget_accumulated(DMuonOptimizer opt);
/* Parts of SetUp, on this rank (setup_parts.c): masters, state and workspace of what it updates;
 * groups and their handles. */
DMuonErrorCode dmuon_optimizer_make_owned(DMuonOptimizer opt);
DMuonErrorCode dmuon_optimizer_make_groups(DMuonOptimizer opt);
/* Lent values at SetUp: from the program's function, or zeros. */
DMuonErrorCode dmuon_optimizer_init_values(DMuonOptimizer opt);
DMuonErrorCode dmuon_optimizer_check_arrays(DMuonOptimizer opt, const dmuon_param *param,
                                            const dmuon_param_arrays *arrays);
/* On a device with streams: what queue does from now on comes behind what the caller's stream does
 * to his arrays, and the other way round. On a host both are in order anyway. */
DMuonErrorCode dmuon_optimizer_take_arrays(DMuonOptimizer opt, dmuon_queue *queue);
DMuonErrorCode dmuon_optimizer_give_arrays(DMuonOptimizer opt, dmuon_queue *queue);
/* The devices of the model's meshes know the caller's stream (stream.c). */
DMuonErrorCode dmuon_optimizer_apply_stream(DMuonOptimizer opt);
/* The owner's copy follows the caller's array again. */
DMuonErrorCode dmuon_optimizer_refresh_masters(DMuonOptimizer opt);

#endif
