/* What a bootstrap is made of. Internal to src/comm. */
#ifndef DMUON_COMM_BOOTSTRAP_PRIVATE_H
#define DMUON_COMM_BOOTSTRAP_PRIVATE_H

#include "comm/bootstrap_link.h"
#include "comm/bootstrap_process.h"

/* One set of communicators, used by one bootstrap at a time. */
typedef struct {
  int64_t id; /* the same on all ranks */
  int busy;
  MPI_Comm base;       /* agreements, and the bell */
  dmuon_bell bell;     /* on base; opened by the first mesh that gets the entry */
  MPI_Comm axis[3][2]; /* by DMuonAxis and dmuon_role; MPI_COMM_NULL where there is none */
  int is_split;
  uint64_t split_hash; /* of sizes and order of the split that axis holds */
  int *node;           /* what dmuon_bootstrap_nodes found, or NULL */
} dmuon_cache_entry;

/* Hangs on the user's communicator. It outlives meshes, so its memory is its own. */
typedef struct {
  int references;   /* the attribute's, and each bootstrap's */
  int attached;     /* the user's communicator still lives */
  MPI_Comm control; /* agreements about which entry to take; nothing else */
  dmuon_link link;  /* on control */
  dmuon_memory memory;
  int count, capacity;
  dmuon_cache_entry **entries;
  int64_t next_id;
} dmuon_cache;

struct dmuon_bootstrap {
  dmuon_context *context;
  dmuon_link link; /* on entry->base */
  dmuon_cache *cache;
  dmuon_cache_entry *entry;
  dmuon_listener listener;
  int64_t mpi_calls; /* of create, nodes and split */
  int sizes[3], is_split;
};

/* *cache = what hangs on user, made when there is none. Collective over user. */
DMuonErrorCode dmuon_cache_find(MPI_Comm user, double timeout, dmuon_cache **cache,
                                int64_t *mpi_calls);
/* *entry = one that is free on every rank, else a new one; it is busy from now on. Collective. code
 * is this rank's state so far: all ranks get an entry, or none does. */
DMuonErrorCode dmuon_cache_take(dmuon_cache *cache, DMuonErrorCode code, dmuon_cache_entry **entry,
                                int64_t *mpi_calls);
/* Gives an entry back; broken: forgets it, its communicators are left to leak. Drops the
 * bootstrap's reference. */
void dmuon_cache_release(dmuon_cache *cache, dmuon_cache_entry *entry, int broken);
/* Frees the communicators of the axes. Does nothing once MPI is finalised. */
void dmuon_cache_unsplit(dmuon_cache_entry *entry);

/* A duplicate made without blocking for longer than timeout. */
DMuonErrorCode dmuon_cache_duplicate(MPI_Comm comm, double timeout, MPI_Comm *duplicate);

#endif
