/* Groups: parameters that live in the library's memory, and the brackets between which they can be
 * read and given gradients.
 *
 *   for (k = 0; k < n; k++) {                    // DMuonOptimizerGetGroup(opt, k, &group[k])
 *     DMuonGroupForwardBegin(group[k]);          // DMuonGroupGetData: read
 *     DMuonGroupForwardEnd(group[k]);
 *   }
 *   for (k = n; k-- > 0;) {
 *     DMuonGroupBackwardBegin(group[k]);         // read again; DMuonGroupGetGrad: add to it
 *     DMuonGroupBackwardEnd(group[k]);           // gradients are on their way to their owners
 *   }
 *   DMuonOptimizerStep(opt);
 *
 * A group is made of the parameters with one group key (DMuonModelSetGroup), whoever owns them.
 * Brackets are collective over the group's meshes. Those of one group nest, and only the outermost
 * communicates: a forward inside the group's own backward (recomputation) sends nothing. Brackets
 * of different groups nest too, as far as there are buffers (option open_groups, default 2). A
 * group may run forward several times in a pass; it is reduced once, at the BackwardEnd that
 * balances the last of them. What never comes back is reduced by Step as it stands.
 *
 * Order (DMuonOptimizerSetOrder). REGISTERED: any rank may leave any group out; a bracket, Step or
 * BeginPass first does the communication of the groups that were passed over, whose gradients then
 * count as zero here. Run groups in the order in which this rank registered them (their
 * first parameters), backward in the reverse; a forward after the first backward of a pass counts
 * as recomputation; a gradient that comes after its turn is sent by Step, at the cost of a further
 * reduction. A group that runs again after others have taken its buffer must be Z2
 * (DMuonModelSetReshard): DMUON_ERR_STATE says so. On GPUs with NCCL, which does what it is given
 * in the order given: where a rank leaves groups out in backward, the others may not open groups
 * further ahead there than backward_prefetch_depth (as recomputing two groups before the backward
 * of the first does); ranks that do run into the timeout. PROGRAM: any order and any number of
 * runs, the same on all ranks; nothing is fetched ahead.
 *
 * A parameter used in two places (a tied embedding) is in one group, which is opened in both: nest
 * it around the others, or make it Z2.
 *
 * An optimizer with parameters in the library's memory has its meshes for itself: another optimizer
 * needs another mesh, which may be made on the same communicator.
 *
 * With arrays of yours (AddParamArray) the brackets are optional: ForwardBegin waits for the
 * weights of a Step that is still under way (SetAsync), and the rest does nothing.
 *
 * Errors of all brackets, beside those named: DMUON_ERR_STATE for an order that makes no sense,
 * with the group, its state and what was called: the group is as before (others may have been
 * caught up with). From 200: the mesh is broken. */
#ifndef DMUON_GROUP_H
#define DMUON_GROUP_H

#include <dmuon/error.h>
#include <dmuon/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Makes the group's values readable: on return (on a device: in stream order) GetData's pointers
 * are good. Collective over the group's meshes; blocks until the values are there. */
DMUON_API DMuonErrorCode DMuonGroupForwardBegin(DMuonGroup group);
/* The pointers of GetData are dead (Z2 in training: alive until Step). Collective; does not wait.
 */
DMUON_API DMuonErrorCode DMuonGroupForwardEnd(DMuonGroup group);
/* Values can be read and gradients written. DMUON_ERR_STATE when the group did not run forward in
 * this pass, or in an EVAL pass. Collective; blocks as ForwardBegin, and until a gradient buffer is
 * free. */
DMUON_API DMuonErrorCode DMuonGroupBackwardBegin(DMuonGroup group);
/* The library has taken the gradients; all pointers are dead. Collective; does not wait for others
 * (with option delay_stage2_to_optimizer 0: for the mean of the group before). */
DMUON_API DMuonErrorCode DMuonGroupBackwardEnd(DMuonGroup group);

/* The whole tensor of parameter id in its dtype, 128-byte aligned; it may lie elsewhere from
 * bracket to bracket. Not collective; inside a bracket. DMUON_ERR_ARGUMENT when id is not of this
 * group. */
DMUON_API DMuonErrorCode DMuonGroupGetData(DMuonGroup group, int id, const void **data);
/* Where its gradient goes, in the gradient's dtype; a parameter whose gradient was never asked for
 * has none (see DMuonOptimizerSetGradMode). Good until BackwardEnd. Not collective;
 * inside a backward bracket. DMUON_ERR_UNSUPPORTED for frozen parameters and your own arrays. */
DMUON_API DMuonErrorCode DMuonGroupGetGrad(DMuonGroup group, int id, void **grad);
/* Instead of GetGrad: a gradient of yours, complete, added to what the pass has of it from earlier
 * brackets. It is read before the outermost BackwardEnd returns (on a device: in stream order);
 * said again inside one bracket it replaces what was said. NULL: none, counts as zero. Not
 * collective; inside a backward bracket. */
DMUON_API DMuonErrorCode DMuonGroupSetGrad(DMuonGroup group, int id, const void *grad);
/* Both of the above for all parameters of the group, in the order of GetParams; either may be NULL.
 * grad[i] of a frozen parameter is NULL. Not collective. */
DMUON_API DMuonErrorCode DMuonGroupGetArrays(DMuonGroup group, const void **data, void **grad);

/* 1 inside a bracket: pointers are good. Not collective. 0 for NULL. */
DMUON_API int DMuonGroupIsOpen(DMuonGroup group);
/* The library's string. Not collective. */
DMUON_API DMuonErrorCode DMuonGroupGetKey(DMuonGroup group, const char **key);
/* The ids of its parameters, in registered order: the library's array. Not collective. */
DMUON_API DMuonErrorCode DMuonGroupGetParams(DMuonGroup group, int *count, const int **ids);

#ifdef __cplusplus
}
#endif
#endif
