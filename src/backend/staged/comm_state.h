/* A staged communicator and the rounds that its operations go in. Internal to this directory. */
#ifndef DMUON_BACKEND_STAGED_COMM_STATE_H
#define DMUON_BACKEND_STAGED_COMM_STATE_H

#include "backend/staged/staged.h"

enum {
  STAGED_BYTES = 4 * 1024 * 1024, /* of each of the two areas: what a round may carry */
  STAGED_PIECES = 64              /* pieces of a round */
};

typedef struct {
  dmuon_comm base;
  dmuon_bootstrap *bootstrap;
  dmuon_device *host;      /* its own, for the messages */
  dmuon_comm *inner;       /* of the host */
  dmuon_queue *host_queue; /* of the host */
  dmuon_event *event;      /* of the device: behind the last copy from or to an area */
  char *in, *out;          /* areas in memory of the device for the host */
  DMuonErrorCode aborted;
  dmuon_comm_counters before;
} staged_comm;

static inline staged_comm *staged_of(dmuon_comm *comm) {
  return (staged_comm *)(void *)comm;
}

/* Rounds over a table of pieces (segments or moves): so many pieces of it, a part of each, then the
 * next part. The same on all ranks. Pure (rounds.c). */
typedef struct {
  int64_t budget;               /* elements of a round */
  int first, count;             /* pieces [first, first + count) of the table */
  int64_t part, level;          /* elements of each that a round takes; rounds over them so far */
  int piece[STAGED_PIECES];     /* this round: numbers in the table, */
  int64_t at[STAGED_PIECES];    /* where in the piece, */
  int64_t take[STAGED_PIECES];  /* how much of it, */
  int64_t place[STAGED_PIECES]; /* where in an area */
  int taken;
} staged_rounds;

void dmuon_staged_begin(staged_rounds *rounds, DMuonDType a, DMuonDType b);
/* The next round over `total` pieces whose lengths count(i) tells; 0: there is none. */
int dmuon_staged_next(staged_rounds *rounds, int total, int64_t (*count)(const void *table, int i),
                      const void *table);

/* Room for an operation: the areas are free, the host knows timeout and shape (comm.c). */
DMuonErrorCode dmuon_staged_open(staged_comm *comm, const char *name, int root);
/* Between copies to the areas and the host's operation: all copied so far is there. */
DMuonErrorCode dmuon_staged_arrive(staged_comm *comm, dmuon_queue *queue);
/* The host's operation is done. */
DMuonErrorCode dmuon_staged_finish(staged_comm *comm);
/* Behind the copies back: the areas are not free until they are done. */
DMuonErrorCode dmuon_staged_depart(staged_comm *comm, dmuon_queue *queue);
/* Counts what is issued; messages and seconds are the host's. */
void dmuon_staged_close(staged_comm *comm);

/* Entries of the table. operations.c: */
DMuonErrorCode dmuon_staged_gather_segments(dmuon_queue *queue, dmuon_comm *comm, int segment_count,
                                            const dmuon_segment *segments, DMuonDType dtype,
                                            void *buffer);
DMuonErrorCode dmuon_staged_reduce_segments(dmuon_queue *queue, dmuon_comm *comm,
                                            const dmuon_reduce *args);
DMuonErrorCode dmuon_staged_move_segments(dmuon_queue *queue, dmuon_comm *comm, int move_count,
                                          const dmuon_move *moves, DMuonDType dtype, const void *in,
                                          void *out);
DMuonErrorCode dmuon_staged_broadcast(dmuon_queue *queue, dmuon_comm *comm, int root, int64_t count,
                                      DMuonDType dtype, void *buffer);
DMuonErrorCode dmuon_staged_all_reduce(dmuon_queue *queue, dmuon_comm *comm, int64_t count,
                                       DMuonDType dtype, void *buffer);
DMuonErrorCode dmuon_staged_gather(dmuon_queue *queue, dmuon_comm *comm, int root, int64_t count,
                                   DMuonDType dtype, const void *in, void *out);
DMuonErrorCode dmuon_staged_scatter(dmuon_queue *queue, dmuon_comm *comm, int root, int64_t count,
                                    DMuonDType dtype, const void *in, void *out);

#endif
