/* Messages of the double's NCCL: over MPI_COMM_WORLD with one tag of ours, each with a header,
 * moved only inside calls of the program. Decides nothing but whether two ranks' collectives are
 * the same and when a unique id's ranks are complete. */
#include "nccl_state.h"

#include <stdio.h>
#include <string.h>

#include <algorithm>

enum { TAG = 28417 };
const char *const nccl_verbs[] = {"ncclSend", "ncclRecv", "ncclBroadcast", "ncclReduce"};
Nccl *nc;

bool nccl_has_mpi(void) {
  int on = 0, off = 0;
  MPI_Initialized(&on);
  if (on) MPI_Finalized(&off);
  return on && !off;
}

void nccl_on_thread(void) {
  if (!nc) nc = new Nccl;
  if (nc->thread_known && !pthread_equal(nc->thread, pthread_self()))
    fail("called from another thread than the NCCL calls before");
  nc->thread = pthread_self();
  nc->thread_known = true;
}

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
  for (int world : all) nccl_send(world, table, all.data(), (int64_t)(all.size() * sizeof(int)));
}

void nccl_send(int to, const Header &header, const void *data, int64_t bytes) {
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

Message *nccl_find(uint64_t comm, int kind, int from, uint64_t sequence) {
  auto i = nc->inbox.find(Key(comm, kind, from, sequence));
  return i == nc->inbox.end() ? NULL : &i->second;
}

void nccl_drop(uint64_t comm, int kind, int from, uint64_t sequence) {
  nc->inbox.erase(Key(comm, kind, from, sequence));
}

std::string nccl_describe(const Header &h) {
  char text[120];
  snprintf(text, sizeof text, "rank %d calls %s(root %d, count %lld, type %d)", h.from,
           nccl_verbs[h.verb], h.root, (long long)h.count, h.type);
  return text;
}

void nccl_compare_signs(void) {
  for (auto &c : nc->comms) {
    if (c->world.empty() || c->size == 1) continue;
    for (int before = (c->rank + c->size - 1) % c->size;;) {
      auto mine = c->signs.find(c->checked);
      Message *m = nccl_find(c->id, SIGN, before, c->checked);
      if (mine == c->signs.end() || !m) break;
      const Header &a = mine->second, &b = m->header;
      if (a.verb != b.verb || a.root != b.root || a.count != b.count || a.type != b.type)
        fail("communicator %d, collective %llu: %s, %s", c->number, (unsigned long long)c->checked,
             nccl_describe(a).c_str(), nccl_describe(b).c_str());
      nccl_drop(c->id, SIGN, before, c->checked);
      c->signs.erase(mine);
      c->checked++;
    }
  }
}

bool nccl_progress(void) {
  if (!nc || !nccl_has_mpi()) return false;
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
  nccl_compare_signs();
  return moved;
}
