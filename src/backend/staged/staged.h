/* Communication of a device through host memory: for ranks whose devices cannot talk to each other,
 * or are not there. Data is copied to memory that the host can read, travels by the host's
 * operations (MPI, and the host's sums: the same bits), and is copied back.
 *
 * An operation is carried out when it is issued, and issuing waits for it: every rank issues the
 * operations of all its communicators in one order. The device may be any that copies, waits for
 * events, and has memory for the host; ranks may have different ones. */
#ifndef DMUON_BACKEND_STAGED_STAGED_H
#define DMUON_BACKEND_STAGED_STAGED_H

#include "comm/comm.h"

extern const DMuonCommOps dmuon_staged_comm_ops;

#endif
