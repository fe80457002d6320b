/* What ranks.h promises. */
#include "ranks.h"

#include <mpi.h>
#include <sched.h>

/* Waits without keeping the processor from the other ranks: there may be more ranks than cores. */
static void await(MPI_Request *request) {
  for (int done = 0; !done;) {
    MPI_Test(request, &done, MPI_STATUS_IGNORE);
    if (!done) sched_yield();
  }
}

void ranks_sum(double *values, int count) {
  MPI_Request request;
  MPI_Iallreduce(MPI_IN_PLACE, values, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request);
  await(&request);
}

double ranks_max(double value) {
  MPI_Request request;
  MPI_Iallreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD, &request);
  await(&request);
  return value;
}

void ranks_broadcast(void *data, size_t size) {
  while (size > 0) {
    const int part = size > 1 << 30 ? 1 << 30 : (int)size;
    MPI_Request request;
    MPI_Ibcast(data, part, MPI_BYTE, 0, MPI_COMM_WORLD, &request);
    await(&request);
    data = (char *)data + part;
    size -= (size_t)part;
  }
}
