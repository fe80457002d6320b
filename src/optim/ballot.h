/* The ballot of Step: all that ranks must agree on before anything moves, in one message. Pure.
 *
 * Each rank fills a ballot; ballots are combined in rank order; the result is the same on all
 * ranks: whether a rank is in trouble, whether live values differ, which gradient is not finite and
 * where, which parameters have a gradient anywhere, and how many samples each mesh has seen. */
#ifndef DMUON_OPTIM_BALLOT_H
#define DMUON_OPTIM_BALLOT_H

#include <stdint.h>

#include "base/memory.h"

/* One mesh's part. `voters` is 0 until a rank of the mesh has voted. */
typedef struct {
  uint64_t values;        /* hash of the live values of its parameters */
  int32_t voters;         /* ranks that voted */
  int32_t first_rank;     /* the lowest that did */
  int32_t differing_rank; /* the lowest whose values differ from first_rank's, or -1 */
  int32_t counted;        /* ranks that gave a sample count */
  int32_t uncounted_rank; /* the lowest that gave none, or -1 */
  int32_t padding;
  double samples;
} dmuon_ballot_mesh;

typedef struct {
  int64_t bytes; /* of the whole, with both tables */
  int32_t mesh_count, param_count;
  int64_t caller; /* which optimizer this rank steps: its number */
  int32_t first_rank,
      other_caller_rank;          /* of these ballots; the lowest that steps another, or -1 */
  int32_t error_code, error_rank; /* the lowest rank in trouble, or 0, -1 */
  int32_t nonfinite_param, nonfinite_rank; /* lowest parameter, then lowest rank; -1 */
  /* then dmuon_ballot_mesh[mesh_count], then a bit a parameter */
} dmuon_ballot;

int64_t dmuon_ballot_bytes(int mesh_count, int param_count);
void dmuon_ballot_init(dmuon_ballot *ballot, int mesh_count, int param_count);
dmuon_ballot_mesh *dmuon_ballot_mesh_at(dmuon_ballot *ballot, int mesh);
void dmuon_ballot_set_gradient(dmuon_ballot *ballot, int param);
int dmuon_ballot_has_gradient(const dmuon_ballot *ballot, int param);

/* The dmuon_combine of ballots. */
void dmuon_ballot_combine(void *into, const void *from, int64_t bytes, void *context);

#endif
