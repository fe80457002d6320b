/* The communication seam: collectives as operations on queues.
 *
 * A dmuon_comm is one axis of a mesh in one role (shard: unshard, reduce; replicate: reduce,
 * publish), so that operations of one role never queue behind another's. Operations of one
 * communicator start in the order issued, on every rank the same; on their queue they are ordered
 * like any other operation. Issuing never blocks. Buffers and segment tables stay valid until the
 * operation is done; argument structs are copied at issue.
 *
 * Counting: payload elements (without padding), received in gather_segments, move_segments and
 * broadcast, sent in reduce_segments, whatever tree carries them: P - own(P) per rank and
 * operation. */
#ifndef DMUON_COMM_COMM_H
#define DMUON_COMM_COMM_H

#include "comm/bootstrap.h"
#include "device/device.h"

typedef struct dmuon_comm dmuon_comm;

/* One owner's part of a packed buffer. */
typedef struct {
  int root;              /* rank of the communicator */
  int64_t offset, count; /* elements of the buffer, padding between parameters included */
  int64_t payload;       /* elements that mean something; what is counted */
} dmuon_segment;

/* The sum over the communicator of each segment, to its root.
 * Association: streaming pairwise (a binary counter) in rank order, the same bits whether
 * contributions travel to the root directly or as partial sums along a tree. A contribution is
 * widened to sum_dtype and multiplied by 2^prescale; the total is divided by divisor (1: not), and
 * a finite sum whose quotient overflows becomes the largest finite value. */
typedef struct {
  int segment_count;
  const dmuon_segment *segments;
  const void *in; /* this rank's contribution to all segments */
  DMuonDType in_dtype;
  void *out; /* at a root: its segments one after another, tight, in segment order; may be NULL
                where this rank roots nothing; never overlaps in */
  DMuonDType sum_dtype; /* fp32, or fp64 */
  int prescale;
  double divisor;
} dmuon_reduce;

/* A piece that goes from one rank of the communicator to another (or stays). */
typedef struct {
  int from, to;
  int64_t in_offset;  /* elements, in the sender's array */
  int64_t out_offset; /* elements, in the receiver's */
  int64_t count, payload;
} dmuon_move;

typedef struct {
  int64_t operations;    /* done by this rank */
  int64_t bytes;         /* as counted above */
  int64_t messages;      /* point to point, sent */
  double seconds_waited; /* in waits for others */
} dmuon_comm_counters;

typedef struct {
  const char *name; /* "host" */

  /* The communicator of axis and role over the bootstrap's ranks. Collective over it. */
  DMuonErrorCode (*create)(dmuon_device *device, dmuon_bootstrap *bootstrap, DMuonAxis axis,
                           dmuon_role role, dmuon_comm **comm);
  void (*free)(dmuon_comm *comm);

  /* Memory for operations whose largest segment has so many elements of sum_dtype, taken once; at
   * most about log2(fanin) + 2 chunks (on a GPU six more), however many ranks contribute. Local. */
  DMuonErrorCode (*reserve)(dmuon_comm *comm, int64_t largest_segment, DMuonDType sum_dtype);
  /* The bytes that reserve takes on a communicator that was just made, for plans. An entry of NULL:
   * the chunks of a host. */
  int64_t (*reserve_bytes)(const dmuon_comm *comm, int64_t largest_segment, DMuonDType sum_dtype);

  /* Operations issued between begin and end may be carried out together. */
  DMuonErrorCode (*group_begin)(dmuon_comm *comm);
  DMuonErrorCode (*group_end)(dmuon_comm *comm);

  /* Each segment of buffer goes from its root to all ranks, in place. */
  DMuonErrorCode (*gather_segments)(dmuon_queue *queue, dmuon_comm *comm, int segment_count,
                                    const dmuon_segment *segments, DMuonDType dtype, void *buffer);
  DMuonErrorCode (*reduce_segments)(dmuon_queue *queue, dmuon_comm *comm, const dmuon_reduce *args);
  /* Each piece goes its way; the table is the same on all ranks. in: this rank's array of what it
   * sends, out: of what it gets; NULL where there is nothing; they do not overlap. */
  DMuonErrorCode (*move_segments)(dmuon_queue *queue, dmuon_comm *comm, int move_count,
                                  const dmuon_move *moves, DMuonDType dtype, const void *in,
                                  void *out);
  DMuonErrorCode (*broadcast)(dmuon_queue *queue, dmuon_comm *comm, int root, int64_t count,
                              DMuonDType dtype, void *buffer);
  /* buffer = sum over ranks of buffer (fp32 or fp64), associated as reduce_segments, on all. */
  DMuonErrorCode (*all_reduce)(dmuon_queue *queue, dmuon_comm *comm, int64_t count,
                               DMuonDType dtype, void *buffer);
  /* Equal parts: count elements a rank, out on root only holds size * count in rank order. */
  DMuonErrorCode (*gather)(dmuon_queue *queue, dmuon_comm *comm, int root, int64_t count,
                           DMuonDType dtype, const void *in, void *out);
  DMuonErrorCode (*scatter)(dmuon_queue *queue, dmuon_comm *comm, int root, int64_t count,
                            DMuonDType dtype, const void *in, void *out);
  /* Gives up: operations under way end with an error, buffers in flight are left to leak. */
  void (*abort)(dmuon_comm *comm);
} DMuonCommOps;

/* A backend's communicator begins with this. */
struct dmuon_comm {
  const DMuonCommOps *ops;
  dmuon_device *device;
  DMuonAxis axis;
  dmuon_role role;
  int rank, size;
  int fanin; /* reduce directly up to so many ranks, as a tree above; option reduce_fanin */
  int64_t chunk_bytes; /* option chunk_bytes */
  dmuon_comm_counters counters;
};

#endif
