/* Whole tensors, between the caller's memory and the shares that ranks keep of them. */
#ifndef DMUON_OPTIM_WHOLE_H
#define DMUON_OPTIM_WHOLE_H

#include "optim/optimizer.h"

/* Something that is kept of a parameter: elements of the tensor (bytes each), this rank's share of
 * them at data; or one item of `bytes` for the whole parameter (is_single), the same on all ranks
 * that have a share. */
typedef struct {
  int index; /* registry parameter */
  int64_t bytes;
  void *data; /* NULL where this rank has no share */
  int is_single;
} dmuon_whole;

/* The bundle and place of a registry parameter; 0: it is in none. */
int dmuon_whole_find(DMuonOptimizer opt, int index, int *bundle, int *place);

/* Between two places of which each may be the host's or the device's, behind all that was issued.
 * Waits. */
DMuonErrorCode dmuon_whole_copy(DMuonOptimizer opt, void *dst, const void *src, int64_t bytes);
/* All ranks of the parameter's mesh ask for the same: a hash of the question. */
DMuonErrorCode dmuon_whole_agree(DMuonOptimizer opt, const char *call, int index, uint64_t question,
                                 DMuonErrorCode code);
/* Owners' shares to data, where it is wanted (not NULL). Collective over the parameter's mesh. */
DMuonErrorCode dmuon_whole_get(DMuonOptimizer opt, const char *call, const dmuon_whole *what,
                               void *data);
/* data of rank root (DMUON_ALL: of every rank, compared) to the owners' shares, and to copy (NULL:
 * not wanted) on every rank. */
DMuonErrorCode dmuon_whole_set(DMuonOptimizer opt, const char *call, const dmuon_whole *what,
                               const void *data, int root, void *copy);

#endif
