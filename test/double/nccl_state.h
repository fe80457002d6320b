/* What the NCCL files of the double share: communicators, calls, and the messages they became. */
#ifndef TEST_DOUBLE_NCCL_STATE_H
#define TEST_DOUBLE_NCCL_STATE_H

#include "state.h"

#include <mpi.h>
#include <nccl.h>
#include <pthread.h>

#include <tuple>

enum Kind { HELLO, TABLE, SPLIT, SIGN, HERE, DATA, ACK, PEER_DATA, PEER_ACK };
enum Verb { SEND, RECV, BROADCAST, REDUCE };
extern const char *const nccl_verbs[];

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
  const char *made; /* by which call */
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

struct Nccl {
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
};
extern Nccl *nc; /* made by the first call */

/* ---- nccl_messages.cpp */
bool nccl_has_mpi(void);
void nccl_on_thread(void); /* every NCCL call comes from one thread */
void nccl_send(int to, const Header &header, const void *data, int64_t bytes);
Message *nccl_find(uint64_t comm, int kind, int from, uint64_t sequence); /* NULL: not here yet */
void nccl_drop(uint64_t comm, int kind, int from, uint64_t sequence);
std::string nccl_describe(const Header &header);
void nccl_compare_signs(void); /* this rank's collectives with those of the rank before it */

/* ---- nccl_comms.cpp */
int nccl_version(void);
ncclComm *nccl_usable(ncclComm_t comm); /* checked, for a call that begins an operation */

#endif
