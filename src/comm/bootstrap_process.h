/* The one thing of this process that all meshes share: what advances all of them, and who listens
 * whether another rank has given up. It hangs on MPI_COMM_SELF, and goes when MPI is finalised. */
#ifndef DMUON_COMM_BOOTSTRAP_PROCESS_H
#define DMUON_COMM_BOOTSTRAP_PROCESS_H

#include "base/error.h"
#include "base/visible.h"

DMUON_VISIBLE_BEGIN

typedef struct dmuon_listener dmuon_listener;
struct dmuon_listener {
  dmuon_listener *next;
  void (*listen)(void *argument);
  void *argument;
};

typedef struct {
  dmuon_listener *listeners; /* in their owners' memory */
  void *anchor;              /* whose progress is everybody's; NULL: nobody is there */
  DMuonErrorCode (*progress)(void *anchor);
  void *last_call; /* of a device's own communication, of any mesh: its backend's; NULL: none */
} dmuon_process;

/* The process's record, made when there is none. Needs MPI. Local. */
DMuonErrorCode dmuon_process_get(dmuon_process **process);
/* The same, NULL when there is none or MPI is finalised. */
dmuon_process *dmuon_process_find(void);
/* Advances every engine of the process; errors stay with the engine that has them. Before anybody
 * has joined, and without MPI, it does nothing. */
void dmuon_process_progress(void);
/* Every listener of the process listens: called by those who wait. */
void dmuon_process_listen(void);
DMuonErrorCode dmuon_process_add_listener(dmuon_listener *listener);
/* One that was never added, or after MPI_Finalize: fine. */
void dmuon_process_remove_listener(dmuon_listener *listener);

DMUON_VISIBLE_END

#endif
