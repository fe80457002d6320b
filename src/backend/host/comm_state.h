/* The host's communicator: what an operation under way consists of. Internal to comm*.c.
 *
 * Every operation is a sequence of items, the same on all ranks: one chunk of one segment each,
 * chunk 0 of every segment, then chunk 1, and so on, so that neighbours have different roots. An
 * item is a tree of messages. Each rank goes through the items in order with a window of several
 * under way; the oldest unfinished item is in every rank's window and never waits for a younger
 * one, so operations end. Items are numbered through the life of the communicator, which gives the
 * tags. */
#ifndef DMUON_BACKEND_HOST_COMM_STATE_H
#define DMUON_BACKEND_HOST_COMM_STATE_H

#include "backend/host/engine.h"
#include "backend/host/transfer.h"
#include "comm/comm.h"
#include "comm/tree.h"

enum {
  HOST_WINDOW = 16,    /* items under way */
  HOST_RECEIVES = 3,   /* contributions posted at a root, beyond its partial sums */
  HOST_TREE_SLOTS = 3, /* items whose partial sums this rank keeps, tree way */
};

typedef enum { HOST_SPREAD = 0, HOST_REDUCE, HOST_GATHER, HOST_SCATTER, HOST_MOVE } host_kind;

/* What is issued: the arguments of a task. */
typedef struct host_comm host_comm;
typedef struct {
  host_comm *comm;
  host_kind kind;
  const char *name; /* "unshard"-like word for messages */
  int started;
  int segment_count;
  const dmuon_segment *segments; /* NULL: `count` elements in equal parts over the ranks
                                    (all_reduce), or on `root` alone */
  const dmuon_move *moves;       /* of HOST_MOVE, segment_count of them */
  int64_t count;
  int root;
  const void *in; /* reduce, gather, scatter, move */
  void *out;      /* reduce, gather, scatter, move; or the buffer of a spread */
  DMuonDType in_dtype, sum_dtype;
  int prescale;
  double divisor;
} host_operation;

typedef struct {
  int64_t ordinal; /* in the communicator's life */
  int segment, root;
  int64_t offset, count; /* elements, in the buffer */
  int64_t out_offset;    /* elements, in a root's out */
} host_item;

typedef struct {
  host_item item;
  int stage; /* of the item's own state machine; 0: fresh */
  int done;
  int tree_slot; /* -1: none */
  int next;      /* tree: the next peer */
  int parent;    /* -1: this rank is the root */
  int leg_count;
  dmuon_transfer in;
  dmuon_transfer leg[DMUON_TREE_DEPTH]; /* sends */
} host_slot;

/* A root that takes contributions directly, one item at a time. */
typedef struct {
  int64_t ordinal;   /* of the item it works on; -1: free */
  int posted, taken; /* ranks, in order; own contribution needs no post */
  int depth;         /* partial sums on the stack */
  dmuon_transfer in[HOST_RECEIVES];
} host_collector;

struct host_comm {
  dmuon_comm base;
  dmuon_bootstrap *bootstrap;
  dmuon_host_engine *engine;
  dmuon_memory *memory;
  dmuon_host_channel channel;
  dmuon_transfer_port port;
  DMuonErrorCode aborted;

  /* Chunk buffers: as many as the way of reducing needs, one block. A block taken while an
   * operation is under way waits in `next_block` for its end. */
  char *block, *next_block;
  int block_is_left; /* MPI may still use it */
  int64_t buffer_bytes, next_buffer_bytes;
  int buffer_count, next_buffer_count;

  /* The operation under way. */
  int active;
  double idle_before; /* the engine's, when it began */
  host_operation operation;
  int is_tree;
  int64_t chunk;          /* elements */
  int64_t level;          /* of the next item: which chunk of its segment */
  int next_segment, more; /* whether any segment has a chunk at a later level */
  int exhausted;          /* no further item */
  int64_t first, end;     /* ordinals under way: [first, end) */
  int tree_slots;         /* bit set of those in use */
  int tree_is_blocked;    /* in this pass an older item waits for one */
  int64_t compute_left;   /* elements this pass may still add up */
  host_collector collector;
  host_slot slots[HOST_WINDOW];
};

static inline char *host_buffer(const host_comm *comm, int index) {
  return comm->block + index * comm->buffer_bytes;
}

/* Segment i of an operation, from its table or by rule. */
dmuon_segment dmuon_host_segment(const host_operation *operation, int size, int i);

/* One look at an item of each kind; sets slot->done. comm_spread.c: */
DMuonErrorCode dmuon_host_advance_spread(host_comm *comm, host_slot *slot);
DMuonErrorCode dmuon_host_advance_pair(host_comm *comm, host_slot *slot);
/* comm_reduce.c: */
DMuonErrorCode dmuon_host_advance_direct(host_comm *comm, host_slot *slot);
DMuonErrorCode dmuon_host_advance_tree(host_comm *comm, host_slot *slot);
/* How many chunk buffers reducing over size ranks needs. */
int dmuon_host_reduce_buffers(int size, int fanin);

#endif
