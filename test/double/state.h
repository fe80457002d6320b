/* What the files of the double share: the process's one state, streams as queues of operations, and
 * memory whose every byte knows who wrote and read it last.
 *
 * Time is a vector clock: entry i counts the operations of stream i, entry 0 stands for the host.
 * Happens-before is known when a call is made (a wait means the record issued last), so accesses
 * are judged at issue, in the order of the calls, whatever order the queues drain in later. */
#ifndef TEST_DOUBLE_STATE_H
#define TEST_DOUBLE_STATE_H

#include "double.h"

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

typedef std::vector<uint64_t> Clock;

struct Access {
  const char *what;
  int stream; /* -1: nobody yet */
  uint64_t epoch;
};
struct Segment { /* bytes [key, end) of an allocation, accessed alike */
  uint64_t end;
  Access write;
  std::vector<Access> reads; /* since then, one a stream */
};
struct Allocation {
  uint64_t base, bytes;
  int id, device;
  bool pinned;
  const char *made;  /* by which call; so it is with streams and the like */
  const char *freed; /* by which call, or NULL */
  Access born;
  std::map<uint64_t, Segment> segments;
  std::vector<bool> filled; /* pages that got their poison */
};
struct Touch {
  uint64_t begin, row_bytes, pitch;
  int64_t rows;
  int mode;
  Allocation *in;
  uint64_t hash; /* of pinned bytes when they were handed over, or 0: not comparable */
};
struct double_touches {
  bool exclusive = false; /* what is written must not overlap what is read */
  std::vector<Touch> list;
};

struct CUstream_st {
  struct Op {
    const char *what;
    uint64_t epoch;
    std::vector<std::pair<CUstream_st *, uint64_t>> after; /* operations that must be done */
    double_touches touches;
    std::function<bool()> run; /* false: not done yet, ask again */
  };
  int id, device, priority;
  const char *made;
  bool destroyed, joins_default; /* joins_default: not created nonblocking */
  uint64_t issued, done;
  Clock clock;
  std::deque<Op> queue;
  struct ncclComm *launching; /* an NCCL call on this stream, perhaps not launched yet */
};
struct CUevent_st {
  int id, device;
  const char *made;
  bool destroyed;
  CUstream_st *stream; /* of the record issued last, or NULL */
  uint64_t epoch;
  Clock clock;
};

struct State {
  const char *call = "?", *running = nullptr; /* the entry point called; the operation being run */
  std::mt19937 random;
  int personality = 0; /* 0: runs a little at each call; 1: all it can; 2: as late as possible */
  int gpus = 1, missing = 0;
  std::vector<int> visible; /* by ordinal: the node's number of the GPU; empty: as they come */
  double patience = 30, idle_since = 0, last_poll = 0;
  int64_t blocking_calls = 0;
  bool blocking_forbidden = false, forgiven = false;
  std::map<std::string, std::pair<int, int>> planned_failures;
  cudaError_t last_error = cudaSuccess;
  Clock host;
  uint64_t arena = 0, arena_end = 0, arena_next = 0, limit = 0, used = 0;
  std::map<uint64_t, std::unique_ptr<Allocation>> memory;
  std::vector<std::unique_ptr<CUstream_st>>
      streams; /* by id; [0] is none, [1] the default stream */
  std::vector<std::unique_ptr<CUevent_st>> events;
  std::vector<std::shared_ptr<struct cublasContext>> blas_handles;
};
State &state(void);
extern thread_local int double_device; /* the current one, of this thread */

/* Prints "double: CALL: ..." and aborts. */
[[noreturn]] __attribute__((format(printf, 1, 2))) void fail(const char *format, ...);
/* Start of every entry point; a code other than 0: return it. */
int enter(const char *call);
#define ENTER(call, type)                            \
  do {                                               \
    if (int code_ = enter(call)) return (type)code_; \
  } while (0)
void blocks_host(void); /* this call makes the host wait */
int world_rank(void);
double now(void);

/* ---- memory.cpp */
Allocation *find_memory(const void *ptr); /* also freed memory; NULL: not ours */
/* Checks what an operation with this clock touches, and remembers it. */
void judge(const char *what, CUstream_st *stream, double_touches &touches);
void open_memory(const char *what, const double_touches &touches); /* for the operation that runs */
void close_memory(const double_touches &touches);
void join(Clock &clock, const Clock &other);
inline uint64_t at(const Clock &clock, int i) {
  return (size_t)i < clock.size() ? clock[i] : 0;
}

/* ---- stream.cpp */
CUstream_st *stream_of(cudaStream_t stream); /* checked; the default stream for NULL */
void issue(const char *what, CUstream_st *stream, double_touches &&touches,
           std::function<bool()> run);
/* The same for an operation that opens by itself, piece by piece, what was judged. */
void issue_open_later(const char *what, CUstream_st *stream, double_touches &&touches,
                      std::function<bool()> run);
bool advance(int operations); /* runs at most so many; whether anything moved */
void poll(void);              /* what each query does */
void wait_turn(void); /* one turn of a wait of the host: fails when nothing moves any more */

/* What is left of one kind at exit, with what made the first of it. */
struct Left {
  int count = 0, number = 0;
  const char *made = nullptr;
  void add(const char *by, int its_number) {
    if (!count++) made = by, number = its_number;
  }
  void tell(std::string &text, const char *what) const {
    if (!count) return;
    text += (text.empty() ? "" : ", ") + std::to_string(count) + " " + what + " (first: " + made +
            ", number " + std::to_string(number) + ")";
  }
};

/* ---- cublas.cpp */
Left blas_leaks(void);

/* ---- nccl.cpp */
bool nccl_progress(void); /* messages; whether any came */
bool nccl_in_progress(const struct ncclComm *comm);
void nccl_leaks(std::string &text);

#endif
