/* From the user's communicator to the library's own: the one place above the backends that calls
 * MPI. Checks that MPI can be used, duplicates the communicator, keeps duplicates for reuse in a
 * cache on the user's communicator (a reference-counted attribute that is not copied), finds out
 * which ranks share a node, and splits by axis. It decides nothing about sizes or order.
 *
 * Two live bootstraps never share a communicator. A broken one never goes back to the cache. */
#ifndef DMUON_COMM_BOOTSTRAP_H
#define DMUON_COMM_BOOTSTRAP_H

#include <mpi.h>

#include "base/context.h"
#include "base/visible.h"

DMUON_VISIBLE_BEGIN

typedef struct dmuon_bootstrap dmuon_bootstrap;

/* What a communicator of an axis is for; each has its own. */
typedef enum { DMUON_ROLE_FIRST = 0, DMUON_ROLE_SECOND } dmuon_role;
#define DMUON_ROLE_UNSHARD DMUON_ROLE_FIRST /* shard axis: owner to all */
#define DMUON_ROLE_REDUCE DMUON_ROLE_SECOND /* shard and replicate axis: all to owner */
#define DMUON_ROLE_PUBLISH DMUON_ROLE_FIRST /* replicate axis: owner to peers */

/* MPI is initialised and not finalised, and this thread may call it (the main thread, or at least
 * MPI_THREAD_SERIALIZED). DMUON_ERR_STATE or DMUON_ERR_THREAD. */
DMuonErrorCode dmuon_bootstrap_check_mpi(void);

/* Collective over user, which is duplicated (or a cached duplicate of it is taken). MPI_COMM_NULL
 * and intercommunicators are refused with DMUON_ERR_ARGUMENT before anything is sent. Waits at
 * most timeout seconds for others (0: for ever). */
DMuonErrorCode dmuon_bootstrap_create(dmuon_context *context, MPI_Comm user, double timeout,
                                      dmuon_bootstrap **bootstrap);
/* Collective (the last release). Gives the communicators back to the cache, or, when broken, leaves
 * them. Fine with NULL and after MPI_Finalize. */
void dmuon_bootstrap_destroy(dmuon_bootstrap **bootstrap);

/* NULL: rank 0 of 1. */
int dmuon_bootstrap_rank(const dmuon_bootstrap *bootstrap);
int dmuon_bootstrap_size(const dmuon_bootstrap *bootstrap);
void dmuon_bootstrap_set_timeout(dmuon_bootstrap *bootstrap, double seconds);
double dmuon_bootstrap_timeout(const dmuon_bootstrap *bootstrap);
/* Called again and again while the bootstrap waits, so that the engines advance. */
void dmuon_bootstrap_set_progress(dmuon_bootstrap *bootstrap, DMuonErrorCode (*progress)(void *),
                                  void *argument);

/* A name for messages; must live as long as the bootstrap, or until the next call. NULL: none. */
void dmuon_bootstrap_set_name(dmuon_bootstrap *bootstrap, const char *name);
/* Called once, when the bootstrap breaks, with its code and the thread's record in place. NULL:
 * nobody any more. */
void dmuon_bootstrap_on_break(dmuon_bootstrap *bootstrap,
                              void (*on_break)(void *argument, DMuonErrorCode code),
                              void *argument);

/* The mesh is broken from now on: code is 200 or above; message is the thread's record. Every later
 * call on it returns that code at once, with that message. The other ranks are told, and break with
 * DMUON_ERR_REVOKED, this rank and its message, wherever they wait and whenever they listen. Does
 * nothing when it is broken already. Does not wait. */
void dmuon_bootstrap_break(dmuon_bootstrap *bootstrap, DMuonErrorCode code);
/* The same by this rank's will; returns what it is broken with, DMUON_ERR_REVOKED or an earlier
 * code. */
DMuonErrorCode dmuon_bootstrap_revoke(dmuon_bootstrap *bootstrap, const char *reason);
/* Breaks the bootstrap, unless it is broken, as `broken` broke and with the ranks of its own
 * numbering: who told the others of that one tells those of this one. */
void dmuon_bootstrap_follow(dmuon_bootstrap *bootstrap, const dmuon_bootstrap *broken);
/* DMUON_SUCCESS, or the code it broke with (recorded anew for this thread). */
DMuonErrorCode dmuon_bootstrap_check(const dmuon_bootstrap *bootstrap);
/* The same, after looking whether another rank has given up: at the entry of calls. Needs MPI. */
DMuonErrorCode dmuon_bootstrap_listen(dmuon_bootstrap *bootstrap);

/* node[i] = the lowest rank that shares memory with rank i. Collective. */
DMuonErrorCode dmuon_bootstrap_nodes(dmuon_bootstrap *bootstrap, int *node);

/* Makes the communicators of a replicate x shard x tp grid: rank_at[(r*G + s)*T + t] is the rank at
 * these coordinates. Collective, once. Axes of size 1 cost nothing. At most six communicators a
 * mesh in all; the number of MPI calls does not depend on anything else. */
DMuonErrorCode dmuon_bootstrap_split(dmuon_bootstrap *bootstrap, int replicate, int shard, int tp,
                                     const int *rank_at);
/* The communicator of one axis and role through this rank (ranks in coordinate order along the
 * axis); MPI_COMM_SELF-like NULL handle MPI_COMM_NULL when the axis has size 1. */
MPI_Comm dmuon_bootstrap_comm(const dmuon_bootstrap *bootstrap, DMuonAxis axis, dmuon_role role);
/* This rank's coordinate along an axis, and the axis's size. */
DMuonErrorCode dmuon_bootstrap_place(const dmuon_bootstrap *bootstrap, DMuonAxis axis, int *rank,
                                     int *size);
/* data of the rank with coordinate 0 of each line along axis becomes that of all ranks of its line.
 * Collective over all ranks, each with its own code so far: all return the first failure, below 100
 * as DMUON_ERR_SETUP. Only for an axis of several ranks. */
DMuonErrorCode dmuon_bootstrap_share(dmuon_bootstrap *bootstrap, const char *what, DMuonAxis axis,
                                     DMuonErrorCode code, void *data, int64_t bytes);

/* inner_to_outer[i] = rank in outer of rank i of inner; -1 where it is not in outer. Local. */
DMuonErrorCode dmuon_bootstrap_translate(const dmuon_bootstrap *inner, const dmuon_bootstrap *outer,
                                         int *inner_to_outer);

/* How many ranks, calls to MPI made by create and split so far: for tests of cost. */
int64_t dmuon_bootstrap_mpi_calls(const dmuon_bootstrap *bootstrap);

DMUON_VISIBLE_END

#endif
