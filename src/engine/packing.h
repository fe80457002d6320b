/* What is packed where. Pure: from the registry and the owners to bundles.
 *
 * A bundle is what one operation communicates: the parameters of one group that share mesh, divisor
 * and dtypes. It has one packed buffer in which each owner's parameters are contiguous, ordered by
 * (owner shard, owner replicate), each aligned to 128 bytes; so each stage of reduce and of publish
 * is one operation. This rank's part of it: its column (what the replicate rows of its own shard
 * coordinate own together) and, inside, what it owns itself. */
#ifndef DMUON_ENGINE_PACKING_H
#define DMUON_ENGINE_PACKING_H

#include "comm/comm.h"
#include "model/registry.h"

typedef struct {
  int param;    /* registry index */
  int id;       /* this rank's id of it */
  int owner[3]; /* replicate, shard, tp in the bundle's mesh */
  int is_mine;
  int64_t offset; /* elements in the packed buffer */
} dmuon_bundle_param;

typedef struct {
  int mesh, losses; /* registry meshes */
  const char *group;
  int first;                               /* the registry parameter that was registered first */
  DMuonDType dtype, grad_dtype, sum_dtype; /* sum: fp32, or fp64 */
  int count;
  dmuon_bundle_param *params;                                   /* in packed order */
  int64_t packed_count;                                         /* elements */
  int64_t column_offset, column_count, mine_offset, mine_count; /* elements of the packed buffer */
  int shard_segment_count; /* one an owner shard coordinate; roots on the shard axis */
  dmuon_segment *shard_segments;
  int column_segment_count;       /* one an owner replicate coordinate of this rank's column */
  dmuon_segment *column_segments; /* offsets in the column (sums) */
  dmuon_segment *value_segments;  /* the same, offsets in the packed buffer (values) */
} dmuon_bundle;

typedef struct {
  dmuon_memory *memory;
  int bundle_count;
  dmuon_bundle *bundles; /* those this rank takes part in, in an order all ranks share */
  int64_t largest_packed_grad_bytes, largest_packed_value_bytes, largest_column_bytes;
  int64_t largest_segment; /* elements */
} dmuon_packing;

/* owners[registry index] in the parameter's mesh. Frozen parameters are in no bundle. */
DMuonErrorCode dmuon_packing_make(dmuon_memory *memory, const dmuon_registry *registry,
                                  int (*owners)[3], dmuon_packing *packing);
void dmuon_packing_free(dmuon_packing *packing);

#endif
