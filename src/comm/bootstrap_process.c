/* The attribute of MPI_COMM_SELF that holds what advances all meshes of the process. One of the two
 * MPI keyvals of the library. */
#include "comm/bootstrap_process.h"

#include <mpi.h>
#include <stdlib.h>

static int process_keyval = MPI_KEYVAL_INVALID;

static int delete_process(MPI_Comm comm, int keyval, void *value, void *extra) {
  (void)comm, (void)keyval, (void)extra;
  free(value);
  return MPI_SUCCESS;
}

dmuon_process *dmuon_process_find(void) {
  dmuon_process *process = NULL;
  int found = 0, finalized = 0;
  if (process_keyval == MPI_KEYVAL_INVALID) return NULL;
  if (MPI_Finalized(&finalized) || finalized) return NULL;
  if (MPI_Comm_get_attr(MPI_COMM_SELF, process_keyval, &process, &found)) return NULL;
  return found ? process : NULL;
}

DMuonErrorCode dmuon_process_get(dmuon_process **out) {
  dmuon_process *process = dmuon_process_find();
  if (!process) {
    if (process_keyval == MPI_KEYVAL_INVALID &&
        MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, delete_process, &process_keyval, NULL))
      DMUON_FAIL(DMUON_ERR_COMM, "MPI_Comm_create_keyval failed");
    /* Not of a dmuon_memory: those belong to meshes, and this lives as long as MPI. */
    process = calloc(1, sizeof *process);
    if (!process)
      DMUON_FAIL(DMUON_ERR_MEMORY, "out of memory: %zu bytes for the process's record",
                 sizeof *process);
    if (MPI_Comm_set_attr(MPI_COMM_SELF, process_keyval, process)) {
      free(process);
      DMUON_FAIL(DMUON_ERR_COMM, "MPI_Comm_set_attr on MPI_COMM_SELF failed");
    }
  }
  *out = process;
  return DMUON_SUCCESS;
}

void dmuon_process_progress(void) {
  dmuon_process *process = dmuon_process_find();
  if (process && process->anchor) (void)process->progress(process->anchor);
}

void dmuon_process_listen(void) {
  const dmuon_process *process = dmuon_process_find();
  if (!process) return;
  for (dmuon_listener *l = process->listeners; l; l = l->next) l->listen(l->argument);
}

DMuonErrorCode dmuon_process_add_listener(dmuon_listener *listener) {
  dmuon_process *process = NULL;
  DMUON_TRY(dmuon_process_get(&process));
  listener->next = process->listeners;
  process->listeners = listener;
  return DMUON_SUCCESS;
}

void dmuon_process_remove_listener(dmuon_listener *listener) {
  dmuon_process *process = dmuon_process_find();
  if (!process) return;
  for (dmuon_listener **place = &process->listeners; *place; place = &(*place)->next) {
    if (*place != listener) continue;
    *place = listener->next;
    return;
  }
}
