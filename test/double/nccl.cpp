/* NCCL calls of the double: groups, and operations that are messages whose headers must match what
 * the receiver expects. A send ends when its receiver has it and a collective when all are in it,
 * so nobody can count on buffering; communicators of one device take turns in the order of the
 * calls, so an order that differs between ranks stands still and is reported. */
#include "nccl_state.h"

#include <stdlib.h>
#include <string.h>

#include <algorithm>

static int64_t bytes_of(int type) {
  static const int bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2}; /* by ncclDataType_t */
  if (type < 0 || type >= 10) fail("type %d is not in the double", type);
  return bytes[type];
}

/* The operation running may look at these bytes of the device, or write them, now. */
static double_touches window(const void *ptr, int64_t bytes, double_mode mode) {
  double_touches t;
  double_touch(&t, ptr, bytes, 1, mode);
  for (Touch &touch : t.list) touch.in = find_memory(ptr);
  return t;
}

static std::vector<char> read_device(const void *ptr, int64_t bytes) {
  double_touches t = window(ptr, bytes, DOUBLE_MOVE);
  open_memory("NCCL", t);
  std::vector<char> out((const char *)ptr, (const char *)ptr + bytes);
  close_memory(t);
  return out;
}

static void write_device(void *ptr, const char *data, int64_t bytes) {
  if (!bytes) return;
  double_touches t = window(ptr, bytes, DOUBLE_WRITE);
  open_memory("NCCL", t);
  memcpy(ptr, data, (size_t)bytes);
  close_memory(t);
}

template <typename T>
static void add(std::vector<char> &sum, const std::vector<char> &part) {
  for (size_t i = 0; i + sizeof(T) <= sum.size(); i += sizeof(T)) {
    T a, b;
    memcpy(&a, &sum[i], sizeof a);
    memcpy(&b, &part[i], sizeof b);
    a += b;
    memcpy(&sum[i], &a, sizeof a);
  }
}

/* The ranks that this one sends to, or receives from, in a step. */
static std::vector<int> partners(const ncclComm *c, const Step &s, bool sending) {
  int verb = s.header.verb, root = s.header.root;
  if (verb == SEND || verb == RECV)
    return (verb == SEND) == sending ? std::vector<int>{s.peer} : std::vector<int>{};
  std::vector<int> who;
  if ((verb == BROADCAST) != sending) { /* the root is on the other side */
    if (c->rank != root) who.push_back(root);
  } else if (c->rank == root) {
    for (int r = 0; r < c->size; r++)
      if (r != root) who.push_back(r);
  }
  return who;
}

static bool carry_out(ncclComm *c, Step &s) {
  Header h = s.header;
  bool peers = h.verb == SEND || h.verb == RECV;
  int data = peers ? PEER_DATA : DATA, ack = peers ? PEER_ACK : ACK;
  auto to = partners(c, s, true), from = partners(c, s, false);
  if (!s.started) {
    s.started = true;
    h.kind = data;
    std::vector<char> bytes;
    if (!to.empty()) bytes = read_device(s.in, s.bytes);
    for (int r : to) nccl_send(c->world[r], h, bytes.data(), s.bytes);
    if (h.verb == BROADCAST && c->rank == h.root && s.out && s.out != s.in)
      write_device(s.out, read_device(s.in, s.bytes).data(), s.bytes);
  }
  for (int r : from)
    if (!nccl_find(c->id, data, r, h.sequence)) return false;
  for (int r : to)
    if (!nccl_find(c->id, ack, r, h.sequence)) return false;
  for (int r : to) nccl_drop(c->id, ack, r, h.sequence);
  bool sums = h.verb == REDUCE && c->rank == h.root;
  std::vector<char> mine, result;
  if (sums) mine = read_device(s.in, s.bytes);
  for (int r = 0; r < c->size; r++) { /* in rank order */
    const std::vector<char> *part = sums && r == c->rank ? &mine : NULL;
    if (std::count(from.begin(), from.end(), r)) {
      Message *m = nccl_find(c->id, data, r, h.sequence);
      part = &m->data;
      if (m->header.count != h.count || m->header.type != h.type)
        fail("communicator %d: %s, %s", c->number, nccl_describe(h).c_str(),
             nccl_describe(m->header).c_str());
    }
    if (!part) continue;
    if (result.empty())
      result = *part;
    else if (h.type == ncclFloat32)
      add<float>(result, *part);
    else
      add<double>(result, *part);
  }
  if (!result.empty()) write_device(s.out, result.data(), s.bytes);
  Header receipt = h;
  receipt.kind = ack;
  for (int r : from) {
    nccl_drop(c->id, data, r, h.sequence);
    nccl_send(c->world[r], receipt, NULL, 0);
  }
  return true;
}

static bool run_launch(Launch &l) {
  if (!l.comm->aborted) {
    if (nc->turns.begin()->first != l.batch) return false; /* another batch is before it */
    /* A collective may need everybody to be there: here it always does. */
    ncclComm *c = l.comm;
    bool done = true;
    for (int r = 0; l.meeting && r < c->size; r++) {
      if (r == c->rank) continue;
      if (!l.came) nccl_send(c->world[r], {c->id, l.meeting, 0, HERE, c->rank, 0, 0, 0}, NULL, 0);
      done = done && nccl_find(c->id, HERE, r, l.meeting);
    }
    l.came = true;
    for (Step &s : l.steps)
      if (!s.done) s.done = carry_out(l.comm, s), done = done && s.done;
    if (!done) return false;
    for (int r = 0; l.meeting && r < c->size; r++) nccl_drop(c->id, HERE, r, l.meeting);
  }
  if (--nc->turns[l.batch] == 0) nc->turns.erase(l.batch);
  l.comm->under_way--;
  return true;
}

/* All that was called since the group began becomes one operation a communicator. */
static ncclResult_t launch_group(void) {
  std::vector<std::shared_ptr<Launch>> group;
  group.swap(nc->group);
  if (group.empty()) return ncclSuccess;
  const char *order = getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
  bool implicit = nccl_version() >= 22600 && order && !strcmp(order, "1");
  uint64_t batch = ++nc->batches;
  nc->turns[batch] = (int)group.size();
  std::vector<Nccl::Last> last;
  bool in_progress = false;
  for (auto &l : group) {
    ncclComm *c = l->comm;
    double_touches touches;
    for (Step &s : l->steps) {
      Header &h = s.header;
      bool reads = h.verb == SEND || h.verb == REDUCE || (h.verb == BROADCAST && c->rank == h.root);
      bool writes =
          h.verb == RECV || h.verb == BROADCAST || (h.verb == REDUCE && c->rank == h.root);
      int64_t size = bytes_of(h.type);
      if (reads) double_touch(&touches, s.in, h.count, size, DOUBLE_MOVE);
      if (writes && s.out) double_touch(&touches, s.out, h.count, size, DOUBLE_WRITE);
      if (h.verb == SEND || h.verb == RECV) {
        h.sequence = (h.verb == SEND ? c->sent : c->received)[s.peer]++;
        continue;
      }
      h.sequence = c->sequence++;
      if (!l->meeting) l->meeting = ++c->meetings;
      if (c->size == 1) continue;
      c->signs[h.sequence] = h;
      Header sign = h;
      sign.kind = SIGN;
      nccl_send(c->world[(c->rank + 1) % c->size], sign, NULL, 0);
    }
    l->batch = batch;
    c->under_way++;
    const char *what =
        l->steps.size() > 1 ? "a group of NCCL calls" : nccl_verbs[l->steps[0].header.verb];
    join(l->stream->clock, state().host);
    for (auto &before : nc->last)
      if (!implicit && before.comm != c->number &&
          at(l->stream->clock, before.stream->id) < before.epoch)
        fail(
            "%s of communicator %d is not behind the call before, of communicator %d on stream %d, "
            "and launch order is not implicit",
            what, c->number, before.comm, before.stream->id);
    issue_open_later(what, l->stream, std::move(touches), [l] { return run_launch(*l); });
    last.push_back({l->stream, l->stream->issued, c->number});
    c->polls = (int)(state().random() % 4) + (c->launches++ == 0);
    if (c->polls) in_progress = true, l->stream->launching = c;
  }
  nc->last = last;
  nccl_compare_signs();
  return in_progress ? ncclInProgress : ncclSuccess;
}

static ncclResult_t call(Verb verb, const void *in, void *out, size_t count, ncclDataType_t type,
                         int root, int reduction, ncclComm_t comm, cudaStream_t stream) {
  ENTER(nccl_verbs[verb], ncclResult_t);
  ncclComm *c = nccl_usable(comm);
  CUstream_st *s = stream_of(stream);
  if (root < 0 || root >= c->size) fail("rank %d of a communicator of %d", root, c->size);
  if (verb == REDUCE && (reduction != ncclSum || (type != ncclFloat32 && type != ncclFloat64)))
    fail("reduction %d of type %d is not in the double", reduction, (int)type);
  Launch *mine = NULL;
  for (auto &l : nc->group)
    if (l->comm == c) mine = l.get();
  if (mine && mine->stream != s)
    fail("communicator %d on streams %d and %d in one group", c->number, mine->stream->id, s->id);
  if (!mine) {
    mine = new Launch{c, s, 0, {}, 0, false};
    nc->group.emplace_back(mine);
  }
  bool peers = verb == SEND || verb == RECV;
  Header h = {c->id, 0, (int64_t)count, 0, c->rank, verb, peers ? 0 : root, (int)type};
  mine->steps.push_back({h, (const char *)in, (char *)out, (int64_t)count * bytes_of(type),
                         peers ? root : -1, false, false});
  return nc->depth ? ncclSuccess : launch_group();
}

void nccl_leaks(std::string &text) {
  if (!nc) return;
  Left comms;
  for (auto &c : nc->comms)
    if (!c->destroyed) comms.add(c->made, c->number);
  comms.tell(text, "communicators");
  if (nc->depth) text += (text.empty() ? "" : ", ") + std::string("an open NCCL group");
  delete nc;
  nc = NULL;
}

extern "C" {

ncclResult_t ncclGroupStart(void) {
  ENTER("ncclGroupStart", ncclResult_t);
  nccl_on_thread();
  nc->depth++;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void) {
  ENTER("ncclGroupEnd", ncclResult_t);
  nccl_on_thread();
  if (nc->depth == 0) fail("no group has been started");
  return --nc->depth ? ncclSuccess : launch_group();
}

ncclResult_t ncclSend(const void *in, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return call(SEND, in, NULL, count, type, peer, 0, comm, stream);
}

ncclResult_t ncclRecv(void *out, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return call(RECV, NULL, out, count, type, peer, 0, comm, stream);
}

ncclResult_t ncclBroadcast(const void *in, void *out, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return call(BROADCAST, in, out, count, type, root, 0, comm, stream);
}

ncclResult_t ncclReduce(const void *in, void *out, size_t count, ncclDataType_t type,
                        ncclRedOp_t reduction, int root, ncclComm_t comm, cudaStream_t stream) {
  return call(REDUCE, in, out, count, type, root, reduction, comm, stream);
}
}
