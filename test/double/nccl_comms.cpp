/* Communicators of the double's NCCL: made, split, finalized, given up. All are nonblocking; each
 * is ncclInProgress for a few looks at least, and must be left alone until then. */
#include "nccl_state.h"

#include <stdlib.h>
#include <string.h>

#include <algorithm>

int nccl_version(void) {
  const char *text = getenv("CUDA_DOUBLE_NCCL_VERSION");
  return text && *text ? atoi(text) : NCCL_VERSION_CODE;
}

static ncclComm *comm_of(ncclComm_t comm) {
  nccl_on_thread();
  for (auto &c : nc->comms)
    if (c.get() == comm) {
      if (c->destroyed) fail("communicator %d has been destroyed", c->number);
      return comm;
    }
  fail("%p is no communicator", (void *)comm);
}

ncclComm *nccl_usable(ncclComm_t comm) {
  ncclComm *c = comm_of(comm);
  if (nccl_in_progress(c)) fail("communicator %d is still ncclInProgress", c->number);
  if (c->finalizing) fail("communicator %d is being finalized", c->number);
  if (c->device != double_device)
    fail("communicator %d is of device %d, current is %d", c->number, c->device, double_device);
  return c;
}

static ncclComm *new_comm(uint64_t id, int rank, int size, const ncclConfig_t *config) {
  if (!config || config->magic != 0xcafebeef || config->size != sizeof *config || config->blocking)
    fail("not configured as nonblocking: not in the double");
  ncclComm *c = new ncclComm();
  nc->comms.emplace_back(c);
  c->id = id;
  c->made = state().call;
  c->number = (int)nc->comms.size();
  c->rank = rank;
  c->size = size;
  c->device = double_device;
  c->polls = 1 + (int)(state().random() % 3);
  return c;
}

static void try_to_join(ncclComm *c) {
  if (!c->world.empty()) return;
  if (ncclComm *p = c->parent) {
    std::vector<std::pair<int, int>> members; /* key, rank of the parent */
    for (int r = 0; r < p->size; r++) {
      Message *split = nccl_find(p->id, SPLIT, r, c->sequence);
      if (!split) return;
      if (split->header.count == (int64_t)c->splits) members.push_back({split->header.root, r});
    }
    std::sort(members.begin(), members.end());
    for (auto &m : members) {
      if (m.second == p->rank) c->rank = (int)c->world.size();
      c->world.push_back(p->world[m.second]);
    }
    for (int r = 0; r < p->size; r++) nccl_drop(p->id, SPLIT, r, c->sequence);
    c->id = p->id * 1000003 + c->sequence * 1009 + c->splits + 1;
    c->sequence = c->splits = 0;
    c->parent = NULL;
  } else {
    Message *m = nccl_find(c->id, TABLE, 0, 0);
    if (!m) return;
    c->world.resize(m->data.size() / sizeof(int));
    memcpy(c->world.data(), m->data.data(), m->data.size());
    nccl_drop(c->id, TABLE, 0, 0);
  }
  c->size = (int)c->world.size();
  c->sent.assign(c->world.size(), 0);
  c->received.assign(c->world.size(), 0);
}

static bool drained(ncclComm *c) {
  if (c->under_way || (c->size > 1 && c->checked != c->sequence)) return false;
  for (auto &o : nc->outgoing)
    if (o->comm == c->id) return false;
  return true;
}

/* Whether other calls must still wait. */
bool nccl_in_progress(const ncclComm *c) {
  return !c->aborted && !c->destroyed && (c->world.empty() || c->polls > 0 || c->child);
}

/* One look of the program at a communicator. */
static void settle(ncclComm *c) {
  try_to_join(c);
  if (c->polls > 0) c->polls--;
  if (!c->child) return;
  try_to_join(c->child);
  if (c->polls || c->child->world.empty()) return;
  *c->child_at = c->child;
  c->child = NULL;
}

extern "C" {

ncclResult_t ncclGetVersion(int *version) {
  ENTER("ncclGetVersion", ncclResult_t);
  *version = nccl_version();
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  ENTER("ncclGetUniqueId", ncclResult_t);
  nccl_on_thread();
  uint64_t words[3] = {0x646d756f6eull, ((uint64_t)world_rank() + 1) << 32 | ++nc->ids,
                       (uint64_t)world_rank()};
  memset(id, 0, sizeof *id);
  memcpy(id, words, sizeof words);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t *config) {
  ENTER("ncclCommInitRankConfig", ncclResult_t);
  nccl_on_thread();
  blocks_host();
  if (state().missing) return ncclUnhandledCudaError;
  if (nc->depth) fail("inside a group: not in the double");
  uint64_t words[3];
  memcpy(words, &id, sizeof words);
  if (words[0] != 0x646d756f6eull) fail("an id that ncclGetUniqueId did not make");
  if (rank < 0 || rank >= size) fail("rank %d of %d", rank, size);
  if (size > 1 && !nccl_has_mpi()) fail("more than one rank, and MPI is not initialised");
  ncclComm *c = *comm = new_comm(words[1], rank, size, config);
  Header h = {c->id, 0, size, HELLO, rank, 0, world_rank(), 0};
  nccl_send((int)words[2], h, NULL, 0);
  return ncclInProgress;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *out,
                           ncclConfig_t *config) {
  ENTER("ncclCommSplit", ncclResult_t);
  ncclComm *p = nccl_usable(comm);
  blocks_host();
  if (nc->depth) fail("inside a group: not in the double");
  if (color < 0 && color != NCCL_SPLIT_NOCOLOR) fail("color %d", color);
  Header h = {p->id, p->splits++, color, SPLIT, p->rank, 0, key, 0};
  for (int world : p->world) nccl_send(world, h, NULL, 0);
  *out = NULL;
  p->polls = 1 + (int)(state().random() % 3);
  if (color == NCCL_SPLIT_NOCOLOR) return ncclInProgress;
  ncclConfig_t inherited = NCCL_CONFIG_INITIALIZER;
  inherited.blocking = 0;
  ncclComm *c = new_comm(0, 0, 0, config ? config : &inherited);
  c->parent = p;
  c->sequence = h.sequence; /* until it has joined: which split, which color */
  c->splits = (uint64_t)color;
  p->child = c;
  p->child_at = out;
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *result) {
  ENTER("ncclCommGetAsyncError", ncclResult_t);
  ncclComm *c = comm_of(comm);
  poll();
  settle(c);
  *result = nccl_in_progress(c) || (c->finalizing && !drained(c)) ? ncclInProgress : ncclSuccess;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  ENTER("ncclCommFinalize", ncclResult_t);
  ncclComm *c = nccl_usable(comm);
  c->finalizing = true;
  return drained(c) ? ncclSuccess : ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  ENTER("ncclCommDestroy", ncclResult_t);
  ncclComm *c = comm_of(comm);
  if (nccl_in_progress(c)) fail("communicator %d is still ncclInProgress", c->number);
  while (!drained(c)) wait_turn();
  c->destroyed = true;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  ENTER("ncclCommAbort", ncclResult_t);
  ncclComm *c = comm_of(comm);
  c->aborted = c->destroyed = true;        /* its operations end without having done anything */
  for (size_t i = 0; i < nc->last.size();) /* nobody has to be behind it */
    if (nc->last[i].comm == c->number)
      nc->last.erase(nc->last.begin() + (long)i);
    else
      i++;
  double_forgive_leaks();
  return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result) {
  return result ? "an error of the double" : "no error";
}

const char *ncclGetLastError(ncclComm_t) {
  return "";
}
}
