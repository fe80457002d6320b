/* The pieces of the host's communicator that its table of operations is made of (comm_ops.c). */
#ifndef DMUON_BACKEND_HOST_COMM_OPERATION_H
#define DMUON_BACKEND_HOST_COMM_OPERATION_H

#include "backend/host/comm_state.h"

/* What the entries of DMuonCommOps say. */
DMuonErrorCode dmuon_host_comm_create(dmuon_device *device, dmuon_bootstrap *bootstrap,
                                      DMuonAxis axis, dmuon_role role, dmuon_comm **out);
void dmuon_host_comm_free(dmuon_comm *comm);
DMuonErrorCode dmuon_host_comm_reserve(dmuon_comm *comm, int64_t largest_segment,
                                       DMuonDType sum_dtype);
void dmuon_host_comm_abort(dmuon_comm *comm);

/* The task class's functions; args is a host_operation. */
DMuonErrorCode dmuon_host_comm_advance(dmuon_host_engine *engine, void *args, int *done);
void dmuon_host_comm_describe(const void *args, dmuon_text *text);
void dmuon_host_comm_give_up(dmuon_host_engine *engine, void *args);

#endif
