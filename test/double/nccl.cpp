/* NCCL of the double: communicators, groups, and operations that are messages over MPI, each with a
 * header that must match what the receiver expects. A send ends when its receiver has it, so nobody
 * can count on buffering; communicators of one device take turns in the order of the calls, so an
 * order that differs between ranks stands still and is reported. Messages travel on MPI_COMM_WORLD
 * with one tag of ours, and only inside calls of the program. */
#include "state.h"

#include <mpi.h>
#include <nccl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <tuple>

enum { TAG = 28417 };
enum Kind { HELLO, TABLE, SPLIT, SIGN, HERE, DATA, ACK, PEER_DATA, PEER_ACK };
enum Verb { SEND, RECV, BROADCAST, REDUCE };
static const char *const verbs[] = {"ncclSend", "ncclRecv", "ncclBroadcast", "ncclReduce"};

struct Header {
  uint64_t comm, sequence;
  int64_t count;
  int kind, from, verb, root, type;
};
struct Message {
  Header header;
  std::vector<char> data;
};
struct Step {    /* one call */
  Header header; /* as this rank sees it; from: this rank */
  const char *in;
  char *out;
  int64_t bytes;
  int peer;
  bool started, done;
};
struct Outgoing {
  MPI_Request request;
  uint64_t comm;
  std::vector<char> bytes;
};
typedef std::tuple<uint64_t, int, int, uint64_t> Key; /* communicator, kind, from, sequence */

struct ncclComm {
  uint64_t id;
  int number, rank, size, device;
  std::vector<int> world; /* ranks of MPI_COMM_WORLD; empty: not joined yet */
  bool aborted, destroyed, finalizing;
  int polls;               /* ncclInProgress so many times more */
  int launches, under_way; /* so far; not done */
  uint64_t sequence, checked, splits, meetings;
  std::vector<uint64_t> sent, received; /* to and from each peer */
  std::map<uint64_t, Header> signs;     /* collectives not yet compared with a neighbour's */
  ncclComm *parent;                     /* of a split that has not joined */
  ncclComm *child, **child_at;          /* being split off, and where it shows when that is done */
};
struct Launch { /* a group's part of one communicator */
  ncclComm *comm;
  CUstream_st *stream;
  uint64_t batch;
  std::vector<Step> steps;
  uint64_t meeting; /* which of the communicator's launches of collectives, from 1; 0: none */
  bool came;
};

static struct Nccl {
  std::vector<std::unique_ptr<ncclComm>> comms;
  std::vector<std::unique_ptr<Outgoing>> outgoing;
  std::vector<std::unique_ptr<Outgoing>> incoming;
  std::map<Key, Message> inbox;
  std::map<uint64_t, std::vector<int>> joining; /* at an id's maker: who has come */
  std::vector<uint64_t> ids_used;
  std::vector<std::shared_ptr<Launch>> group;
  int depth = 0;
  uint64_t batches = 0, ids = 0;
  std::map<uint64_t, int> turns; /* batches not done: how many launches */
  struct Last {
    CUstream_st *stream;
    uint64_t epoch;
    int comm;
  };
  std::vector<Last> last; /* launches of the latest batch */
  bool thread_known = false;
  pthread_t thread;
} * nc;

static bool mpi_on(void) {
  int on = 0, off = 0;
  MPI_Initialized(&on);
  if (on) MPI_Finalized(&off);
  return on && !off;
}

static void on_thread(void) {
  if (!nc) nc = new Nccl;
  if (nc->thread_known && !pthread_equal(nc->thread, pthread_self()))
    fail("called from another thread than the NCCL calls before");
  nc->thread = pthread_self();
  nc->thread_known = true;
}

/* ---- messages ------------------------------------------------------------------------------------ */

static void send(int to, const Header &header, const void *data, int64_t bytes);

static void arrive(Message &&m) {
  const Header &h = m.header;
  if (h.kind != HELLO) {
    nc->inbox[Key(h.comm, h.kind, h.from, h.sequence)] = std::move(m);
    return;
  }
  /* At the maker of an id: rank from of count has come, and is rank root of the world. */
  auto &who = nc->joining[h.comm];
  if (who.empty()) who.assign((size_t)h.count, -1);
  if (who.size() != (size_t)h.count) fail("ranks differ about the size of a communicator");
  if (h.from < 0 || h.from >= h.count || who[h.from] >= 0)
    fail("rank %d of %lld joins twice, or is out of range", h.from, (long long)h.count);
  if (std::count(nc->ids_used.begin(), nc->ids_used.end(), h.comm))
    fail("one unique id for two communicators");
  who[h.from] = h.root;
  if (std::count(who.begin(), who.end(), -1)) return;
  nc->ids_used.push_back(h.comm);
  std::vector<int> all = std::move(who);
  nc->joining.erase(h.comm);
  Header table = h;
  table.kind = TABLE;
  table.from = 0;
  for (int world : all) send(world, table, all.data(), (int64_t)(all.size() * sizeof(int)));
}

static void send(int to, const Header &header, const void *data, int64_t bytes) {
  if (to == world_rank()) {
    Message m = {header, std::vector<char>((const char *)data, (const char *)data + bytes)};
    arrive(std::move(m));
    return;
  }
  if (bytes > 0x7fffff00) fail("a message of %lld bytes", (long long)bytes);
  std::unique_ptr<Outgoing> o(new Outgoing{MPI_REQUEST_NULL, header.comm, {}});
  o->bytes.resize(sizeof header + (size_t)bytes);
  memcpy(o->bytes.data(), &header, sizeof header);
  if (bytes) memcpy(o->bytes.data() + sizeof header, data, (size_t)bytes);
  MPI_Isend(o->bytes.data(), (int)o->bytes.size(), MPI_BYTE, to, TAG, MPI_COMM_WORLD, &o->request);
  nc->outgoing.push_back(std::move(o));
}

static Message *find(uint64_t comm, int kind, int from, uint64_t sequence) {
  auto i = nc->inbox.find(Key(comm, kind, from, sequence));
  return i == nc->inbox.end() ? NULL : &i->second;
}

static void drop(uint64_t comm, int kind, int from, uint64_t sequence) {
  nc->inbox.erase(Key(comm, kind, from, sequence));
}

static std::string describe(const Header &h) {
  char text[120];
  snprintf(text, sizeof text, "rank %d calls %s(root %d, count %lld, type %d)", h.from,
           verbs[h.verb], h.root, (long long)h.count, h.type);
  return text;
}

static void compare_signs(void) {
  for (auto &c : nc->comms) {
    if (c->world.empty() || c->size == 1) continue;
    for (int before = (c->rank + c->size - 1) % c->size;;) {
      auto mine = c->signs.find(c->checked);
      Message *m = find(c->id, SIGN, before, c->checked);
      if (mine == c->signs.end() || !m) break;
      const Header &a = mine->second, &b = m->header;
      if (a.verb != b.verb || a.root != b.root || a.count != b.count || a.type != b.type)
        fail("communicator %d, collective %llu: %s, %s", c->number, (unsigned long long)c->checked,
             describe(a).c_str(), describe(b).c_str());
      drop(c->id, SIGN, before, c->checked);
      c->signs.erase(mine);
      c->checked++;
    }
  }
}

bool nccl_progress(void) {
  if (!nc || !mpi_on()) return false;
  bool moved = false;
  for (int there = 1; there;) {
    MPI_Message message;
    MPI_Status status;
    MPI_Improbe(MPI_ANY_SOURCE, TAG, MPI_COMM_WORLD, &there, &message, &status);
    if (!there) break;
    int bytes;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    std::unique_ptr<Outgoing> in(new Outgoing{MPI_REQUEST_NULL, 0, std::vector<char>(bytes)});
    MPI_Imrecv(in->bytes.data(), bytes, MPI_BYTE, &message, &in->request);
    nc->incoming.push_back(std::move(in));
  }
  for (auto *list : {&nc->incoming, &nc->outgoing})
    for (size_t i = 0; i < list->size();) {
      int done;
      MPI_Test(&(*list)[i]->request, &done, MPI_STATUS_IGNORE);
      if (!done) {
        i++;
        continue;
      }
      std::unique_ptr<Outgoing> o = std::move((*list)[i]);
      list->erase(list->begin() + (long)i);
      moved = true;
      if (list == &nc->outgoing) continue;
      Message m;
      memcpy(&m.header, o->bytes.data(), sizeof m.header);
      m.data.assign(o->bytes.begin() + sizeof m.header, o->bytes.end());
      arrive(std::move(m));
    }
  compare_signs();
  return moved;
}

static int nccl_version(void) {
  const char *text = getenv("CUDA_DOUBLE_NCCL_VERSION");
  return text && *text ? atoi(text) : NCCL_VERSION_CODE;
}

/* ---- communicators ------------------------------------------------------------------------------- */

static ncclComm *comm_of(ncclComm_t comm) {
  on_thread();
  for (auto &c : nc->comms)
    if (c.get() == comm) {
      if (c->destroyed) fail("communicator %d has been destroyed", c->number);
      return comm;
    }
  fail("%p is no communicator", (void *)comm);
}

static ncclComm *usable(ncclComm_t comm) {
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
      Message *split = find(p->id, SPLIT, r, c->sequence);
      if (!split) return;
      if (split->header.count == (int64_t)c->splits) members.push_back({split->header.root, r});
    }
    std::sort(members.begin(), members.end());
    for (auto &m : members) {
      if (m.second == p->rank) c->rank = (int)c->world.size();
      c->world.push_back(p->world[m.second]);
    }
    for (int r = 0; r < p->size; r++) drop(p->id, SPLIT, r, c->sequence);
    c->id = p->id * 1000003 + c->sequence * 1009 + c->splits + 1;
    c->sequence = c->splits = 0;
    c->parent = NULL;
  } else {
    Message *m = find(c->id, TABLE, 0, 0);
    if (!m) return;
    c->world.resize(m->data.size() / sizeof(int));
    memcpy(c->world.data(), m->data.data(), m->data.size());
    drop(c->id, TABLE, 0, 0);
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
  on_thread();
  uint64_t words[3] = {0x646d756f6eull, ((uint64_t)world_rank() + 1) << 32 | ++nc->ids,
                       (uint64_t)world_rank()};
  memset(id, 0, sizeof *id);
  memcpy(id, words, sizeof words);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t *config) {
  ENTER("ncclCommInitRankConfig", ncclResult_t);
  on_thread();
  blocks_host();
  if (state().missing) return ncclUnhandledCudaError;
  if (nc->depth) fail("inside a group: not in the double");
  uint64_t words[3];
  memcpy(words, &id, sizeof words);
  if (words[0] != 0x646d756f6eull) fail("an id that ncclGetUniqueId did not make");
  if (rank < 0 || rank >= size) fail("rank %d of %d", rank, size);
  if (size > 1 && !mpi_on()) fail("more than one rank, and MPI is not initialised");
  ncclComm *c = *comm = new_comm(words[1], rank, size, config);
  Header h = {c->id, 0, size, HELLO, rank, 0, world_rank(), 0};
  send((int)words[2], h, NULL, 0);
  return ncclInProgress;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *out,
                           ncclConfig_t *config) {
  ENTER("ncclCommSplit", ncclResult_t);
  ncclComm *p = usable(comm);
  blocks_host();
  if (nc->depth) fail("inside a group: not in the double");
  if (color < 0 && color != NCCL_SPLIT_NOCOLOR) fail("color %d", color);
  Header h = {p->id, p->splits++, color, SPLIT, p->rank, 0, key, 0};
  for (int world : p->world) send(world, h, NULL, 0);
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
  ncclComm *c = usable(comm);
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
  c->aborted = c->destroyed = true; /* its operations end without having done anything */
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

/* ---- operations ---------------------------------------------------------------------------------- */

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
    for (int r : to) send(c->world[r], h, bytes.data(), s.bytes);
    if (h.verb == BROADCAST && c->rank == h.root && s.out && s.out != s.in)
      write_device(s.out, read_device(s.in, s.bytes).data(), s.bytes);
  }
  for (int r : from)
    if (!find(c->id, data, r, h.sequence)) return false;
  for (int r : to)
    if (!find(c->id, ack, r, h.sequence)) return false;
  for (int r : to) drop(c->id, ack, r, h.sequence);
  bool sums = h.verb == REDUCE && c->rank == h.root;
  std::vector<char> mine, result;
  if (sums) mine = read_device(s.in, s.bytes);
  for (int r = 0; r < c->size; r++) { /* in rank order */
    const std::vector<char> *part = sums && r == c->rank ? &mine : NULL;
    if (std::count(from.begin(), from.end(), r)) {
      Message *m = find(c->id, data, r, h.sequence);
      part = &m->data;
      if (m->header.count != h.count || m->header.type != h.type)
        fail("communicator %d: %s, %s", c->number, describe(h).c_str(),
             describe(m->header).c_str());
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
    drop(c->id, data, r, h.sequence);
    send(c->world[r], receipt, NULL, 0);
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
      if (!l.came) send(c->world[r], {c->id, l.meeting, 0, HERE, c->rank, 0, 0, 0}, NULL, 0);
      done = done && find(c->id, HERE, r, l.meeting);
    }
    l.came = true;
    for (Step &s : l.steps)
      if (!s.done) s.done = carry_out(l.comm, s), done = done && s.done;
    if (!done) return false;
    for (int r = 0; l.meeting && r < c->size; r++) drop(c->id, HERE, r, l.meeting);
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
      send(c->world[(c->rank + 1) % c->size], sign, NULL, 0);
    }
    l->batch = batch;
    c->under_way++;
    const char *what =
        l->steps.size() > 1 ? "a group of NCCL calls" : verbs[l->steps[0].header.verb];
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
  compare_signs();
  return in_progress ? ncclInProgress : ncclSuccess;
}

static ncclResult_t call(Verb verb, const void *in, void *out, size_t count, ncclDataType_t type,
                         int root, int reduction, ncclComm_t comm, cudaStream_t stream) {
  ENTER(verbs[verb], ncclResult_t);
  ncclComm *c = usable(comm);
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
  int comms = 0;
  for (auto &c : nc->comms) comms += !c->destroyed;
  if (comms) text += (text.empty() ? "" : ", ") + std::to_string(comms) + " communicators";
  if (nc->depth) text += (text.empty() ? "" : ", ") + std::string("an open NCCL group");
  delete nc;
  nc = NULL;
}

extern "C" {

ncclResult_t ncclGroupStart(void) {
  ENTER("ncclGroupStart", ncclResult_t);
  on_thread();
  nc->depth++;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void) {
  ENTER("ncclGroupEnd", ncclResult_t);
  on_thread();
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
