/* The optimizer: the update rules, and the runtime that averages gradients onto owners, lets the
 * owner update, and publishes the new values.
 *
 *   DMuonOptimizerCreate(model, &opt);
 *   DMuonOptimizerSetUp(opt);
 *   for (...) { forward; backward; DMuonOptimizerStep(opt); }
 *   DMuonOptimizerDestroy(&opt);
 *
 * Gradients are averaged over the parameter's divisor: by default they are means over each rank's
 * samples and the divisor is the number of data ranks of the parameter's losses mesh; after
 * SetSampleCount they are sums, and the divisor is the total number of samples over those ranks and
 * over micro-batches. Micro-batches given to Accumulate add up; without sample counts their number
 * does not enter the divisor, so scale the losses. */
#ifndef DMUON_OPTIMIZER_H
#define DMUON_OPTIMIZER_H

#include <dmuon/error.h>
#include <dmuon/types.h>
#include <dmuon/model.h>
#include <dmuon/newton_schulz.h>
#include <dmuon/partition.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What one Step did: the same on all ranks, but for the seconds. Set struct_size before the call.
 */
typedef struct {
  size_t struct_size;
  int64_t step;               /* updates made so far, this one included */
  int skipped;                /* 1: a gradient was not finite; nothing changed on any rank */
  const char *nonfinite_name; /* the first such parameter in registered order, or NULL; library's */
  int nonfinite_rank;         /* the lowest rank of the model's mesh where it was so, or -1 */
  double grad_norm, muon_norm, adamw_norm; /* of the averaged gradient, before clipping: over
                                              everything, and by route; NaN without clipping */
  double clip_factor;                      /* of all gradients; by route: the smaller of the two */
  double samples;              /* total of the sample counts over the model's mesh; 0 without */
  int64_t newton_schulz_calls; /* matrices orthogonalised, over all ranks together */
  double seconds_reduce;       /* this rank's: packing, and waiting for averages */
  double seconds_update;       /* owner's step, Newton-Schulz included */
  double seconds_publish;      /* waiting for new values, and storing them */
  double seconds_newton_schulz;
} DMuonStepInfo;

/* Makes an optimizer of the model's parameters. Local; does not block. model: kept (counted); may
 * be destroyed by you at once. *opt: yours, for DMuonOptimizerDestroy. A partition and
 * Newton-Schulz of its own are made at SetUp unless set before. */
DMUON_API DMuonErrorCode DMuonOptimizerCreate(DMuonModel model, DMuonOptimizer *opt);

/* Names it, for options ("-dmuon_disc.lr" for the optimizer "disc") and messages; default "opt".
 * Local, before SetUp. name: copied. */
DMUON_API DMuonErrorCode DMuonOptimizerSetName(DMuonOptimizer opt, const char *name);

/* Uses this partition, which must be of the same model. Local, before SetUp. part: kept. */
DMUON_API DMuonErrorCode DMuonOptimizerSetPartition(DMuonOptimizer opt, DMuonPartition part);

/* Sets a published recipe whole: "dmuon" (default), "jordan", "moonlight", "dion", "emerging": all
 * that SetMuon, SetAdamW and SetScale set, momentum form, Nesterov, decay and missing-gradient
 * rule, and the Newton-Schulz coefficients (not its arithmetic). Single settings after it override
 * it. Local, before SetUp. Options: rule, momentum_form, nesterov, decay, missing_gradient. */
DMUON_API DMuonErrorCode DMuonOptimizerSetRule(DMuonOptimizer opt, const char *name);

/* Learning rate (default 0.02), momentum in [0,1] (0.95), weight decay (0) of the Muon route.
 * Local, before SetUp. Options: lr, momentum, weight_decay. Update: with G the averaged gradient,
 * B = mu B + G, U = G + mu B (Nesterov), W = (1 - lr wd) W - lr scale NewtonSchulz(U). */
DMUON_API DMuonErrorCode DMuonOptimizerSetMuon(DMuonOptimizer opt, double lr, double momentum,
                                               double weight_decay);

/* Learning rate (default 1e-3), betas in [0,1) (0.9, 0.999), eps (1e-8) and decoupled weight decay
 * (0.01) of the AdamW route. Local, before SetUp. Options: adamw_lr, adamw_beta1, adamw_beta2,
 * adamw_eps, adamw_weight_decay. eps is added to the bias-corrected root. */
DMUON_API DMuonErrorCode DMuonOptimizerSetAdamW(DMuonOptimizer opt, double lr, double beta1,
                                                double beta2, double eps, double weight_decay);

/* The factor of the orthogonal update by output and input side (see DMuonScale), times factor.
 * Default moonlight, 1. Local, before SetUp. Options: scale, scale_factor. */
DMUON_API DMuonErrorCode DMuonOptimizerSetScale(DMuonOptimizer opt, DMuonScale rule, double factor);

/* Uses this Newton-Schulz; several optimizers may share one. Local, before SetUp. ns: kept; set up
 * by the optimizer's SetUp if it is not. */
DMUON_API DMuonErrorCode DMuonOptimizerSetNewtonSchulz(DMuonOptimizer opt, DMuonNewtonSchulz ns);

/* Clips the averaged gradient to max_norm >= 0, before momentum: the factor is min(1, max_norm /
 * (norm + 1e-6)). The norm is over all ranks and meshes, each parameter once, summed in registered
 * order. On a GPU Step then waits for the gradients, since the host agrees on the norm. Local,
 * live; must be the same on all ranks at the next Step. Options: clip, clip_norm. */
DMUON_API DMuonErrorCode DMuonOptimizerSetClip(DMuonOptimizer opt, DMuonClip kind, double max_norm);

/* async 1: Step returns when your gradients are free; weights are valid after DMuonOptimizerWait,
 * and lent values in the next bracket. Default: 1 when all parameters are in the library's memory,
 * else 0. Local, before SetUp. Option: replicate_async. */
DMUON_API DMuonErrorCode DMuonOptimizerSetAsync(DMuonOptimizer opt, int async);

/* Whose arrays all ranks start from: data rank root of each parameter's mesh (default 0), or
 * DMUON_ALL: they are equal already, and nothing is sent. Local, before SetUp. Option:
 * initial_root. */
DMUON_API DMuonErrorCode DMuonOptimizerSetInitialRoot(DMuonOptimizer opt, int root);

/* In which order the brackets of groups come: see dmuon/group.h. Default REGISTERED. Local, before
 * SetUp. Option: order. */
DMUON_API DMuonErrorCode DMuonOptimizerSetOrder(DMuonOptimizer opt, DMuonOrder order);

/* Lent gradients: ADD (default): zeroed at the first backward of a pass, you add to them;
 * OVERWRITE: undefined on entry, you write every element each time, and the library adds several
 * backwards up. Local, before SetUp. Option: grad_mode. */
DMUON_API DMuonErrorCode DMuonOptimizerSetGradMode(DMuonOptimizer opt, DMuonGradMode mode);

/* Initial values of parameters in the library's memory: fills data[0..count) with the elements
 * [first, first + count) of the tensor, in the parameter's dtype. It is called on the owner only,
 * for as much of the tensor as that rank owns, and must not depend on the rank: then any mesh
 * starts alike (DMuonRandomUniform, DMuonRandomNormal). */
typedef void (*DMuonInitFunction)(void *ctx, const DMuonParamInfo *param, int64_t first,
                                  int64_t count, void *data);
/* init NULL (default): zeros. ctx: borrowed until SetUp, which calls it. Local, before SetUp. */
DMUON_API DMuonErrorCode DMuonOptimizerSetInit(DMuonOptimizer opt, DMuonInitFunction init,
                                               void *ctx);
/* Number `index` of the stream that seed and name choose: uniform in [0, 1), normal with mean 0 and
 * variance 1. Pure; the same on every machine. */
DMUON_API double DMuonRandomUniform(uint64_t seed, const char *name, int64_t index);
DMUON_API double DMuonRandomNormal(uint64_t seed, const char *name, int64_t index);

/* Sets up mesh, model and partition too; compares settings and plan over all ranks; allocates all
 * that Step needs; gives all ranks the initial root's arrays. Collective over the model's mesh;
 * blocks. Twice is fine. Errors are the same on every rank and change nothing: DISAGREE (a setting
 * differs, named), SETUP (no weights, a tp axis, a pattern without match), MEMORY. */
DMUON_API DMuonErrorCode DMuonOptimizerSetUp(DMuonOptimizer opt);

/* Multiplies every learning rate by factor in [0, 1e30]: a schedule in one call. Local, live; must
 * be the same on all ranks at the next Step (DISAGREE there, nothing changed). */
DMUON_API DMuonErrorCode DMuonOptimizerSetLearningRateFactor(DMuonOptimizer opt, double factor);

/* Sets one hyper-parameter of all parameters that the pattern matches (a parameter group is a
 * pattern). Local, live; must agree over each parameter's mesh at the next Step (DISAGREE there,
 * nothing changed). NOT_FOUND, after SetUp, when the pattern matches no name on any rank. */
DMUON_API DMuonErrorCode DMuonOptimizerSetHyper(DMuonOptimizer opt, const char *pattern,
                                                DMuonHyper which, double value);

/* The value in force for parameter id, the learning rate with its factor. Not collective; after
 * SetUp. */
DMUON_API DMuonErrorCode DMuonOptimizerGetHyper(DMuonOptimizer opt, int id, DMuonHyper which,
                                                double *value);

/* Says that this rank's gradients are sums over so many samples (0 is allowed), from now on until
 * changed. Not collective, live; own value on each rank, but all ranks must say it or none
 * (DISAGREE at Step). A total of zero leaves the sums as they are. Passes (BeginPass) each count
 * with what held at their last bracket, the one before Step with what holds there. */
DMUON_API DMuonErrorCode DMuonOptimizerSetSampleCount(DMuonOptimizer opt, double samples);

/* Your arrays of parameter id have moved, or exist only now. Not collective, live; waits for a step
 * under way. Borrowed until Destroy. weights: not NULL after SetUp, same values as before (else
 * call SyncArrays). gradients: read only; NULL on every rank: the missing_gradient rule (skip: no
 * update, no decay; zero: a gradient of zeros); NULL on some ranks: counts as zero there. */
DMUON_API DMuonErrorCode DMuonOptimizerSetArrays(DMuonOptimizer opt, int id, void *weights,
                                                 const void *gradients);

/* Your stream, a cudaStream_t, on a mesh that computes with CUDA: brackets, steps and copies called
 * from now on are ordered with it, both ways, and the host waits for neither. NULL: the default
 * stream, which it is without this call. Optimizers on one mesh share it: the last call counts.
 * The host has no streams and ignores it. Not collective, live. stream: borrowed until the next
 * such call, or Destroy. DMUON_ERR_ARGUMENT: no optimizer. */
DMUON_API DMuonErrorCode DMuonOptimizerSetStream(DMuonOptimizer opt, void *stream);

/* You changed your weights (loaded a file, swapped an average): data rank root's become everyone's,
 * the owners' masters follow; DMUON_ALL: they are equal already. Momentum and moments stay.
 * Collective over the model's mesh; blocks. */
DMUON_API DMuonErrorCode DMuonOptimizerSyncArrays(DMuonOptimizer opt, int root);

/* Sets a parameter that lives in the library's memory, whole: data in its dtype from data rank root
 * of its mesh (ignored elsewhere), or with DMUON_ALL the same data on every rank, and nothing is
 * sent but to be compared. The owner's master follows; its state stays. Collective over the
 * parameter's mesh; blocks. Before the first bracket of a pass, else
 * DMUON_ERR_DISAGREE on every rank, saying so.
 * DMUON_ERR_UNSUPPORTED for your own arrays (SyncArrays). */
DMUON_API DMuonErrorCode DMuonOptimizerSetParam(DMuonOptimizer opt, int id, const void *data,
                                                int root);
/* The whole tensor in the parameter's dtype to data rank root's buffer, or to all (DMUON_ALL); data
 * is ignored where it is not wanted. Inside a pass only where all ranks have opened the same groups
 * so far (so for GetState and CheckInvariants). Collective over the parameter's mesh; blocks. */
DMUON_API DMuonErrorCode DMuonOptimizerGetParam(DMuonOptimizer opt, int id, void *data, int root);

/* Sets a parameter's state, whole, from root or (DMUON_ALL) from every rank: names and dtypes as in
 * GetState. "master" also sets the values. Collective over the parameter's mesh; blocks. */
DMUON_API DMuonErrorCode DMuonOptimizerSetState(DMuonOptimizer opt, int id, const char *name,
                                                const void *data, int root);

/* Copies a parameter's state, whole, to root (a data rank of its mesh), or to all with DMUON_ALL:
 * "momentum" (Muon), "exp_avg", "exp_avg_sq" (AdamW) in the state dtype, "master" in the master
 * dtype, "step" as one int64_t. Collective over the parameter's mesh; blocks. data: room for the
 * tensor where it is wanted; ignored elsewhere. NOT_FOUND names what there is. */
DMUON_API DMuonErrorCode DMuonOptimizerGetState(DMuonOptimizer opt, int id, const char *name,
                                                void *data, int root);

/* Adds this rank's gradients (and sample count) to accumulators in at least fp32; on return they
 * may be overwritten. k micro-batches: k - 1 Accumulate, then Step, which adds the last. The sum is
 * rounded once to the gradient's dtype when it travels. Not collective; the first call allocates.
 */
DMUON_API DMuonErrorCode DMuonOptimizerAccumulate(DMuonOptimizer opt);

/* Forgets what was accumulated since the last Step; your arrays are not touched. Local. */
DMUON_API DMuonErrorCode DMuonOptimizerZeroGrad(DMuonOptimizer opt);

/* Says how the brackets opened from now on are meant, and ends the pass before (as Step does):
 * groups passed over are caught up with, brackets left open are closed. TRAIN: gradients are
 * reduced in backward; several TRAIN passes before a Step add up at the owner. ACCUMULATE:
 * gradients are added up on this rank, and reduced with the next TRAIN pass or by Step; its first
 * call ever allocates. EVAL: no backward follows. Collective over the model's mesh: a rank that
 * opens nothing in a pass says BeginPass, too. After Step it is TRAIN by itself: then, before a
 * BeginPass, either every rank opens a bracket or none does. */
DMUON_API DMuonErrorCode DMuonOptimizerBeginPass(DMuonOptimizer opt, DMuonPass kind);

/* After an exception inside a bracket: closes all brackets and drops this step's gradients, also
 * those accumulated. Collective over the model's mesh; blocks. */
DMUON_API DMuonErrorCode DMuonOptimizerCancelPass(DMuonOptimizer opt);

/* The groups that this rank takes part in, in registered order. Not collective; after SetUp.
 * *group: the optimizer's, until its Destroy. */
DMUON_API DMuonErrorCode DMuonOptimizerGetGroupCount(DMuonOptimizer opt, int *count);
DMUON_API DMuonErrorCode DMuonOptimizerGetGroup(DMuonOptimizer opt, int index, DMuonGroup *group);
/* By its key ("h.3"). DMUON_ERR_NOT_FOUND. */
DMUON_API DMuonErrorCode DMuonOptimizerFindGroup(DMuonOptimizer opt, const char *key,
                                                 DMuonGroup *group);

/* Checks what must hold between steps: every parameter has one owner; its column holds the value,
 * equal to the owner's rounded master; only the owner has a reduced gradient; replicas are equal.
 * Collective over the model's mesh; blocks. DMUON_ERR_INTERNAL names the first that fails, on every
 * rank. Option check_invariants: after every Step and pass. */
DMUON_API DMuonErrorCode DMuonOptimizerCheckInvariants(DMuonOptimizer opt);

/* Averages the gradients onto their owners, clips, updates, and gives all ranks the new values.
 * Collective over the model's mesh, like MPI_Allreduce: with several optimizers the same order on
 * all ranks. Blocks, at most for the mesh's timeout at a time. Gradients are only read, and free on
 * return. A gradient that is not finite anywhere skips the step on every rank: nothing changes, and
 * it is still DMUON_SUCCESS (see GetStepInfo). DISAGREE: live values differ, named; nothing
 * changed.
 *
 * On a GPU it waits for the other ranks' calls alone, never for the GPU: gradients are read, and
 * new values stand in your arrays, in the order of your stream; whether the step is skipped is
 * decided there, and the host hears of it in GetStepInfo, GetState or Wait. Clipping is the
 * exception: its norms are agreed on by the host, which waits for the gradients. */
DMUON_API DMuonErrorCode DMuonOptimizerStep(DMuonOptimizer opt);

/* Step of n optimizers with names that differ (SetName), which must be those of all ranks that
 * share them, given in any order: they step one after the other in order of name (strcmp), so that
 * ranks that hold different ones never wait for each other in a circle. Each clips and skips alone.
 * The first error stops; the message says which optimizer it was, and those before it have stepped.
 * Collective over the mesh of each; blocks. n 0 is fine. opts: not kept. DMUON_ERR_ARGUMENT (equal
 * names, the same handle twice), DMUON_ERR_STATE: nothing has stepped. Else as Step. */
DMUON_API DMuonErrorCode DMuonOptimizerStepMany(int n, const DMuonOptimizer *opts);

/* Returns when all that was issued is done: your weights are current. Collective over the model's
 * mesh; blocks. */
DMUON_API DMuonErrorCode DMuonOptimizerWait(DMuonOptimizer opt);

/* What the last Step did. Not collective. With async, its seconds are there after Wait; until then
 * they are those of the step before. On a GPU it waits until the step is done. */
DMUON_API DMuonErrorCode DMuonOptimizerGetStepInfo(DMuonOptimizer opt, DMuonStepInfo *info);

/* Writes rule, rates, owners, memory, counters and the plan of communication for people, once, from
 * rank 0, to the file path or to standard output (NULL). Collective over the model's mesh. */
DMUON_API DMuonErrorCode DMuonOptimizerView(DMuonOptimizer opt, const char *path);

/* This rank's facts as JSON, before any Step too: "comm_plan" says by group which parameters travel
 * together, in which dtype, through which ranks of the model's mesh, and how many bytes a step, a
 * further micro-batch and an evaluation move along each axis (as DMuonMeshGetCommInfo counts, when
 * every group runs once a pass and every parameter gets a gradient); "memory_plan" the bytes that
 * SetUp takes, by purpose. Not collective; after SetUp. *json: yours, for DMuonFree. */
DMUON_API DMuonErrorCode DMuonOptimizerSummary(DMuonOptimizer opt, char **json);

/* Gives the optimizer up and sets the handle to NULL; waits for a step under way. Collective over
 * the model's mesh. NULL and half built ones are fine. */
DMUON_API DMuonErrorCode DMuonOptimizerDestroy(DMuonOptimizer *opt);

/* A factor for SetLearningRateFactor: linear warm-up over the first `warmup` steps
 * ((step+1)/warmup), then by kind from 1 to floor at step total - 1: constant (stays 1), linear,
 * half a cosine, or wsd (stays 1, then linear over the last fifth). Pure; steps count from 0. */
DMUON_API double DMuonScheduleFactor(DMuonSchedule kind, int64_t step, int64_t warmup,
                                     int64_t total, double floor);

#ifdef __cplusplus
}
#endif
#endif
