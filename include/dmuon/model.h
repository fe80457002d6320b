/* The model: names, shapes, and what each parameter is.
 *
 * Register the parameters, say by pattern what is special about some, set up. All calls before
 * SetUp are local: they send nothing, and an error (DMUON_ERR_ARGUMENT, DMUON_ERR_STATE after
 * SetUp, DMUON_ERR_MEMORY) leaves the model as it was. SetUp compares what the ranks said.
 *
 * Patterns: see dmuon/types.h. For each kind of rule the last matching pattern decides; where none
 * matches, the function (if set), else the default. */
#ifndef DMUON_MODEL_H
#define DMUON_MODEL_H

#include <dmuon/error.h>
#include <dmuon/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One parameter. Set struct_size to sizeof(DMuonParamInfo) before you pass it. Strings and dims are
 * the library's, good until the model is destroyed. */
typedef struct {
  size_t struct_size;
  const char *name, *group;
  const char *route_reason; /* "pattern \"*.bias\"", "matrix in numbered block h.3" */
  DMuonDType dtype, grad_dtype, master_dtype;
  DMuonRoute route;
  DMuonSide output;
  int ndim;
  const int64_t *dims;
  int64_t batch, rows, cols; /* seen as so many matrices of rows x cols; their product is numel */
  int64_t numel;
  int nblocks;       /* row blocks, 0: not cut */
  int copies;        /* ranks that hold it; 0 where not known yet */
  int divisor_ranks; /* data ranks whose losses its gradient sums; 0 where not known yet */
  /* Coordinates in its mesh; -1 before the optimizer's SetUp. */
  int owner_replicate, owner_shard, owner_tp;
} DMuonParamInfo;

/* The route of a parameter, from SetUp, for those that no SetRoute pattern matches. param->route
 * and route_reason hold the library's choice: returning param->route keeps it. Must be a pure
 * function of param, the same on all ranks. ctx: as given to SetRouteFunction. */
typedef DMuonRoute (*DMuonRouteFunction)(void *ctx, const DMuonParamInfo *param);

/* The group key of a parameter, from SetUp, for those that no SetGroup pattern matches; copied.
 * NULL: the library's choice, which is param->group. A pure function of param, the same on all
 * ranks. */
typedef const char *(*DMuonGroupFunction)(void *ctx, const DMuonParamInfo *param);

/* Creates an empty model on mesh, which it keeps until it is destroyed itself.
 * Local. mesh: need not be set up; one of DMuonMeshCreatePlan will do. *model: the new handle. */
DMUON_API DMuonErrorCode DMuonModelCreate(DMuonMesh mesh, DMuonModel *model);

/* Registers a parameter whose memory is the library's.
 * Local.
 *   name   not NULL, not empty, copied. Names are unique on a rank (checked at SetUp).
 *   dtype  of the value.
 *   ndim   0 (a scalar) to 8.
 *   dims   [ndim] extents, slowest first, copied; NULL when ndim is 0. 0 is legal: such a parameter
 *          has no elements. All of them together span less than 2^63 bytes.
 *   id     out, may be NULL: counts up from 0 in order of registration on this rank. */
DMUON_API DMuonErrorCode DMuonModelAddParam(DMuonModel model, const char *name, DMuonDType dtype,
                                            int ndim, const int64_t *dims, int *id);

/* The same with arrays of yours.
 * Local.
 *   weights    contiguous, numel elements of dtype; borrowed until the model and all that use it
 *              are destroyed, or until DMuonOptimizerSetArrays. Read and written by the optimizer.
 *   gradients  numel elements of the gradient dtype (SetDTypes); borrowed alike, only ever read.
 * Both may be NULL and given later with DMuonOptimizerSetArrays. No two arrays of the model may
 * share memory (SetUp names the two). */
DMUON_API DMuonErrorCode DMuonModelAddParamArray(DMuonModel model, const char *name,
                                                 DMuonDType dtype, int ndim, const int64_t *dims,
                                                 void *weights, const void *gradients, int *id);

/* Registers count parameters that differ in a number only.
 * Local.
 *   name   holds "%d" exactly once; it becomes first, first + 1, ..., first + count - 1.
 *   first, count  at least 0; count 0 registers nothing.
 *   dtype, ndim, dims  of each one.
 *   id     out, may be NULL: of the first; the others follow. */
DMUON_API DMuonErrorCode DMuonModelAddStack(DMuonModel model, const char *name, int first,
                                            int count, DMuonDType dtype, int ndim,
                                            const int64_t *dims, int *id);

/* The same with arrays of yours, shape (count, dims...): llm.c layers, expert stacks. Each
 * parameter begins numel elements after the one before, in weights and in gradients; NULL as above.
 * Local. */
DMUON_API DMuonErrorCode DMuonModelAddStackArray(DMuonModel model, const char *name, int first,
                                                 int count, DMuonDType dtype, int ndim,
                                                 const int64_t *dims, void *weights,
                                                 const void *gradients, int *id);

/* Who updates the parameters that match.
 * Local. The default is Muon for a matrix of more than one row and column inside a numbered block
 * (layers.N, blocks.N, layer.N or h.N, N digits, anywhere in the name) whose name has none of the
 * words bias, ln, rope, rotary, lm_head, ...norm, embed...; AdamW for all else. Words are cut at
 * every non-letter and where capitals begin one: "ln_1" and "LayerNorm" count, "normal_head" does
 * not. route: DMUON_ROUTE_MUON on a parameter that is no matrix (fewer than two dims beside the
 * batch) is an error at SetUp, so that a vector never goes to Muon by accident.
 * DMUON_ROUTE_ADAMW_SHARDED: AdamW on equal flat parts of the parameter, one a rank; only for
 * parameters in the library's memory (DMUON_ERR_SETUP at the optimizer's SetUp otherwise). */
DMUON_API DMuonErrorCode DMuonModelSetRoute(DMuonModel model, const char *pattern,
                                            DMuonRoute route);
/* Asked at SetUp where no pattern of SetRoute matches. Local. route NULL: nobody is asked. ctx is
 * borrowed until SetUp. */
DMUON_API DMuonErrorCode DMuonModelSetRouteFunction(DMuonModel model, DMuonRouteFunction route,
                                                    void *ctx);

/* The group of the parameters that match: a group is communicated together.
 * Local. The default key is the outermost numbered block with its prefix ("model.layers.3" of
 * "model.layers.3.mlp.weight"), else the parent path ("head" of "head.weight"), else "_root".
 * key: not NULL, not empty, copied. */
DMUON_API DMuonErrorCode DMuonModelSetGroup(DMuonModel model, const char *pattern, const char *key);
/* Asked at SetUp where no pattern of SetGroup matches. Local. group NULL: nobody is asked. ctx is
 * borrowed until SetUp. */
DMUON_API DMuonErrorCode DMuonModelSetGroupFunction(DMuonModel model, DMuonGroupFunction group,
                                                    void *ctx);

/* When the buffers of the groups whose key matches are given back (parameters in the library's
 * memory). Local. Default DMUON_Z3. Option of the optimizer: reshard, for all groups. */
DMUON_API DMuonErrorCode DMuonModelSetReshard(DMuonModel model, const char *group_pattern,
                                              DMuonReshard mode);

/* Where the parameters that match live, and what their gradients are divided by: pipeline stages,
 * tied embeddings, experts. By default both are the model's mesh.
 * Local; each rank names the mesh that it is in.
 *   copies  its ranks hold the parameter; each of them must register it, no other may. Kept.
 *   losses  the gradients of all copies together sum the losses of its data ranks, so many is the
 *           divisor. NULL: as copies. Ranks may name different meshes here (each stage its own)
 *           with equally many data ranks. Kept.
 * Both must lie inside the model's mesh, else DMUON_ERR_ARGUMENT. All ranks of a mesh named here
 * must name it; where several meshes have just the same ranks, in the same order. SetUp sets them
 * up. */
DMUON_API DMuonErrorCode DMuonModelSetMesh(DMuonModel model, const char *pattern, DMuonMesh copies,
                                           DMuonMesh losses);

/* How the parameters that match are seen as matrices. Local. The first nbatch (>= 0) dims number
 * separate matrices, the product of the next nrow (>= 1) is the rows, of the rest the columns.
 * Default 0, 1. A match with fewer dims is an error at SetUp. */
DMUON_API DMuonErrorCode DMuonModelSetMatrix(DMuonModel model, const char *pattern, int nbatch,
                                             int nrow);

/* Which side of the matrix is the layer's output, for scale rules and blocks. Local. Default
 * DMUON_ROWS; DMUON_COLS for x*W storage (Keras, GPT-2's Conv1D, W(out,in) in Fortran). */
DMUON_API DMuonErrorCode DMuonModelSetOutput(DMuonModel model, const char *pattern, DMuonSide side);

/* Cuts the output side: each block is orthogonalised and scaled as a matrix of its own.
 * Local. The side is repeat x (sizes[0] + ... + sizes[n-1]) long (else an error at SetUp, with the
 * values); part j of all repeats together is one matrix of repeat * sizes[j] rows. Fused q, k, v:
 * 3, {C, C, C}, 1. n >= 0 (0: not cut), sizes[n] >= 1, copied, repeat >= 1. */
DMUON_API DMuonErrorCode DMuonModelSetBlocks(DMuonModel model, const char *pattern, int n,
                                             const int64_t *sizes, int repeat);

/* What gradients arrive in, and what masters and optimizer states are kept in.
 * Local. Each may be (DMuonDType)DMUON_DECIDE, the default: the parameter's dtype; it, at least
 * fp32; the same. master and state: fp32 or fp64; a master narrower than the parameter is an error
 * at SetUp. */
DMUON_API DMuonErrorCode DMuonModelSetDTypes(DMuonModel model, const char *pattern, DMuonDType grad,
                                             DMuonDType master, DMuonDType state);

/* Decides what each parameter is and makes sure that all ranks mean the same; sets up the model's
 * mesh and those of SetMesh.
 * Collective over the model's mesh; blocks, no longer than the mesh's timeout per wait. Optional:
 * the SetUp of a partition or optimizer does it. Again: does nothing. On a mesh of
 * DMuonMeshCreatePlan it is local. Errors come out with one code on all ranks, name what is wrong
 * with its values and ranks, and leave the model open for correction (a pattern that was said
 * cannot be taken back, though: one that matches nothing wants a new model):
 *   DMUON_ERR_SETUP     duplicate names, shared arrays, a pattern that matches no name on any rank,
 *                       a vector routed to Muon, blocks or views that do not fit
 *   DMUON_ERR_DISAGREE  ranks of one mesh differ in names, order, shape, dtypes, route, group,
 *                       view, blocks, or meshes
 *   DMUON_ERR_MEMORY    on some rank
 * From 200 on (a rank did not come, a mesh of SetMesh is broken) the model's mesh is broken too. */
DMUON_API DMuonErrorCode DMuonModelSetUp(DMuonModel model);

/* How many parameters this rank registered. Not collective; at any time. */
DMUON_API DMuonErrorCode DMuonModelGetCount(DMuonModel model, int *count);

/* The id of a parameter that this rank registered. Not collective; at any time. DMUON_ERR_NOT_FOUND
 * names the nearest. */
DMUON_API DMuonErrorCode DMuonModelFindParam(DMuonModel model, const char *name, int *id);

/* What was decided about parameter id, 0 <= id < count. Not collective; after SetUp; the owner is
 * known after the optimizer's. info->struct_size bytes of *info are filled at most. */
DMUON_API DMuonErrorCode DMuonModelGetParam(DMuonModel model, int id, DMuonParamInfo *info);

/* Writes a line a parameter, of all ranks: dtype, matrix view, route and why, group, output side,
 * mesh, divisor, owner where known.
 * Collective; after SetUp; written once, by rank 0. path: file (replaced); NULL: standard output.
 * DMUON_ERR_FILE, on all ranks, when it cannot be written. */
DMUON_API DMuonErrorCode DMuonModelView(DMuonModel model, const char *path);

/* The same as JSON: {"hash", "local_count", "meshes": [...], "parameters": [...]}.
 * Not collective; after SetUp. *json: yours, to be freed with DMuonFree. */
DMUON_API DMuonErrorCode DMuonModelSummary(DMuonModel model, char **json);

/* Gives the handle up and sets it to NULL; the model lives on while partitions or optimizers hold
 * it. Not collective, but for the last release of its meshes (dmuon/types.h). NULL and *model NULL
 * are fine. */
DMUON_API DMuonErrorCode DMuonModelDestroy(DMuonModel *model);

#ifdef __cplusplus
}
#endif
#endif
