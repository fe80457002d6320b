/* Agreement between all ranks of a mesh: small reductions up a binomial tree to rank 0 and back
 * down, by our own point-to-point messages, so that each wait can be given up. One association, in
 * rank order, so results are the same bits on all ranks and for every grid of the same ranks.
 *
 * All calls are collective over the bootstrap's ranks and block, at most for its timeout: then
 * DMUON_ERR_TIMEOUT names what (a short phrase: "agreement of Step") and the silent rank, and the
 * bootstrap is broken; the other ranks hear of it (DMUON_ERR_REVOKED) wherever they are. While they
 * wait they progress the engines and listen whether another rank gives up. `what` must be the same
 * on all ranks (39 bytes of it are compared): ranks that meet in different calls get
 * DMUON_ERR_DISAGREE with both names. Data is the caller's again when they return, whatever they
 * return: no message refers to it.
 *
 * A bootstrap of NULL is a mesh of one rank (a plan mesh): what it says is agreed, at once. */
#ifndef DMUON_COMM_AGREE_H
#define DMUON_COMM_AGREE_H

#include "comm/bootstrap.h"
#include "base/visible.h"

DMUON_VISIBLE_BEGIN

/* into = into (+) from; ranks of `into` all come before those of `from`. */
typedef void (*dmuon_combine)(void *into, const void *from, int64_t bytes, void *context);

/* data (the same number of bytes everywhere) becomes the combination over all ranks. Allocates
 * nothing up to what dmuon_agree_reserve made room for. */
DMuonErrorCode dmuon_agree_reduce(dmuon_bootstrap *bootstrap, const char *what, void *data,
                                  int64_t bytes, dmuon_combine combine, void *context);
/* A combine of int arrays: the larger of each two. */
void dmuon_agree_larger(void *into, const void *from, int64_t bytes, void *context);
DMuonErrorCode dmuon_agree_reserve(dmuon_bootstrap *bootstrap, int64_t bytes);

/* rank root's data to all. */
DMuonErrorCode dmuon_agree_broadcast(dmuon_bootstrap *bootstrap, const char *what, int root,
                                     void *data, int64_t bytes);

/* Data of differing length: merge turns two pieces (ranks of `a` before those of `b`) into a new
 * one, allocated from memory (then *out, *out_bytes); the result on all ranks replaces *data
 * (allocated from memory; the old one is freed). An error of merge is agreed: all ranks return its
 * code with its message, *data unchanged. */
typedef DMuonErrorCode (*dmuon_merge)(dmuon_memory *memory, const void *a, int64_t a_bytes,
                                      const void *b, int64_t b_bytes, void **out,
                                      int64_t *out_bytes, void *context);
DMuonErrorCode dmuon_agree_merge(dmuon_bootstrap *bootstrap, const char *what, void **data,
                                 int64_t *bytes, dmuon_merge merge, void *context);

/* Every rank enters with its own code; all return the same: DMUON_SUCCESS, or the code of the
 * lowest rank that failed, its message in every rank's record ("rank 3: ..."). A code below 100
 * comes out as `local_as` (usually DMUON_ERR_SETUP), for a rank-local mistake met inside a
 * collective call. */
DMuonErrorCode dmuon_agree_error(dmuon_bootstrap *bootstrap, const char *what, DMuonErrorCode code,
                                 DMuonErrorCode local_as);

/* *equal = 1 when all ranks passed the same value; else 0, *other the lowest rank that differs from
 * rank 0. other may be NULL. */
DMuonErrorCode dmuon_agree_equal(dmuon_bootstrap *bootstrap, const char *what, uint64_t value,
                                 int *equal, int *other);

DMUON_VISIBLE_END

#endif
