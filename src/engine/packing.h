/* What is packed where. Pure: from the registry and the owners to bundles.
 *
 * A bundle is what one operation communicates: the parameters of one group that share mesh, divisor
 * and dtypes, and where they live (residency). It has one packed buffer in which each owner's
 * parameters are contiguous, ordered by (owner shard, owner replicate), each aligned to 128 bytes;
 * so each stage of reduce, unshard and of publish is one operation. Of the packed buffer this rank
 * keeps, when the values are the library's, its home, and updates what is mine:
 *
 *   residency   home (values)                          mine (master, state, update)
 *   replicated  none: the caller has arrays            what this rank owns
 *   dedicated   its column: what the replicate rows    what this rank owns
 *               of its shard coordinate own together
 *   gathered    an equal part of the buffer, by shard  what this rank owns
 *   flat        an equal part of the buffer, by shard  the part of that by replicate
 *   frozen      its column                             nothing
 *
 * packing.c forms the bundles, layout.c cuts their buffers. */
#ifndef DMUON_ENGINE_PACKING_H
#define DMUON_ENGINE_PACKING_H

#include "comm/comm.h"
#include "model/registry.h"

typedef enum {
  DMUON_RESIDENCY_REPLICATED = 0,
  DMUON_RESIDENCY_DEDICATED,
  DMUON_RESIDENCY_GATHERED,
  DMUON_RESIDENCY_FLAT,
  DMUON_RESIDENCY_FROZEN
} dmuon_residency;
const char *dmuon_residency_name(dmuon_residency residency); /* "dedicated" */

typedef struct {
  int param;      /* registry index */
  int id;         /* this rank's id of it */
  int owner[3];   /* replicate, shard, tp in the bundle's mesh; flat: of no meaning */
  int is_mine;    /* this rank updates it, or (flat) a part of it */
  int64_t offset; /* elements in the packed buffer */
  int64_t mine_first, mine_count; /* elements of it that this rank updates; frozen: speaks for */
} dmuon_bundle_param;

typedef struct {
  int mesh, losses; /* registry meshes */
  const char *group;
  int first;                               /* the registry parameter that was registered first */
  DMuonDType dtype, grad_dtype, sum_dtype; /* sum: fp32, or fp64 */
  dmuon_residency residency;
  int count;
  dmuon_bundle_param *params; /* in packed order */
  int64_t packed_count;       /* elements, of gradients and of values */
  int64_t flat_unit;          /* flat: elements of one of R x G parts */

  /* Gradients: stage 1 along the shard axis into the column, stage 2 along the replicate axis. */
  int64_t column_offset, column_count, mine_offset, mine_count; /* elements of the packed buffer */
  int shard_segment_count;                                      /* roots on the shard axis */
  dmuon_segment *shard_segments;
  int column_segment_count;       /* roots on the replicate axis */
  dmuon_segment *column_segments; /* offsets in the column */

  /* Values. Replicated: as for gradients, with offsets of the packed buffer. */
  dmuon_segment *value_segments; /* replicated only: column_segments in the packed buffer */
  int64_t home_offset, home_count;
  int unshard_segment_count; /* roots on the shard axis: whose homes make the buffer */
  dmuon_segment *unshard_segments;
  int publish_segment_count; /* roots on the replicate axis; offsets in home */
  dmuon_segment *publish_segments;
  int bucket_count; /* publish in so many operations: bucket k ends before segment bucket_end[k] */
  int *bucket_end;
  int move_count; /* gathered only: from owners to homes, along the shard axis of this row */
  dmuon_move *moves;
} dmuon_bundle;

/* In the library's memory. */
static inline int dmuon_bundle_is_lent(const dmuon_bundle *bundle) {
  return bundle->residency != DMUON_RESIDENCY_REPLICATED;
}

typedef struct {
  dmuon_memory *memory;
  int bundle_count;
  dmuon_bundle *bundles; /* those this rank takes part in, in an order all ranks share */
  /* Of replicated bundles, which share buffers. */
  int64_t largest_packed_grad_bytes, largest_packed_value_bytes, largest_column_bytes;
  int64_t largest_segment; /* elements, of all bundles */
} dmuon_packing;

typedef struct {
  int gathers;          /* lent Muon parameters are gathered, not dedicated */
  int64_t bucket_bytes; /* of one publish operation; 0: as large as the bundle's home */
} dmuon_packing_options;

/* owners[registry index] in the parameter's mesh. The caller's frozen arrays are in no bundle. */
DMuonErrorCode dmuon_packing_make(dmuon_memory *memory, const dmuon_registry *registry,
                                  int (*owners)[3], const dmuon_packing_options *options,
                                  dmuon_packing *packing);
void dmuon_packing_free(dmuon_packing *packing);

/* Cuts a bundle whose parameters are in packed order. r, s: this rank's coordinates in the bundle's
 * mesh of R x G. layout.c. */
DMuonErrorCode dmuon_bundle_lay_out(dmuon_memory *memory, const dmuon_registry *registry, int R,
                                    int G, int r, int s, int64_t bucket_bytes,
                                    dmuon_bundle *bundle);
void dmuon_bundle_free(dmuon_bundle *bundle);
/* What rank (r, s) updates of parameter `index` of the bundle: elements [*first, *first + *count)
 * of the parameter. numel: of it; R: rows of the mesh. */
void dmuon_bundle_share(const dmuon_bundle *bundle, int index, int64_t numel, int R, int r, int s,
                        int64_t *first, int64_t *count);

#endif
