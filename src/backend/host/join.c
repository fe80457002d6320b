/* How an engine becomes one of those that every library call in the process advances: it joins the
 * ring whose way in hangs on MPI_COMM_SELF, and its waits listen for all meshes. */
#include "backend/host/engine.h"
#include "backend/host/host.h"
#include "comm/bootstrap_process.h"

static DMuonErrorCode progress(void *engine) {
  return dmuon_host_engine_progress(engine);
}

/* The engine that the process knows goes: another of the ring takes its place. */
static void leave(dmuon_host_engine *engine, dmuon_host_engine *remaining) {
  dmuon_process *process = dmuon_process_find();
  if (process && process->anchor == engine) process->anchor = remaining;
}

DMuonErrorCode dmuon_host_device_join_process(dmuon_device *device) {
  dmuon_host_engine *engine = dmuon_host_device_engine(device);
  dmuon_process *process;
  DMUON_TRY(dmuon_process_get(&process));
  dmuon_host_engine_link(engine, process->anchor);
  dmuon_host_engine_on_leave(engine, leave);
  dmuon_host_engine_on_wait(engine, dmuon_process_listen);
  if (!process->anchor) process->anchor = engine;
  process->progress = progress;
  return DMUON_SUCCESS;
}
