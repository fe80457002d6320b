/* The double's one state: read from the environment at the first call, looked through for leaks at
 * exit; failures, and what tests may ask. The settings stand in README.md. */
#include "state.h"

#include <mpi.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum : uint64_t { ARENA = 64ull << 30 }; /* of addresses, never used twice */

static State *the_state;
static struct sigaction earlier_handler;
thread_local int double_device;

static void on_fault(int signal, siginfo_t *info, void *context) {
  uint64_t a = (uint64_t)info->si_addr;
  State *s = the_state;
  if (s && a >= s->arena && a < s->arena_end) {
    Allocation *m = find_memory(info->si_addr);
    if (s->running)
      s->call = s->running;
    else
      s->call = "host access to device memory";
    if (m && a < m->base + m->bytes)
      fail("byte %llu of %sallocation %d (%llu bytes)%s", (unsigned long long)(a - m->base),
           m->freed ? "freed " : "", m->id, (unsigned long long)m->bytes,
           s->running ? ", which the operation did not declare" : "");
    fail("%p, outside all allocations", info->si_addr);
  }
  sigaction(SIGSEGV, &earlier_handler, NULL);
  if (earlier_handler.sa_flags & SA_SIGINFO) earlier_handler.sa_sigaction(signal, info, context);
}

int world_rank(void) {
  int rank = 0, on = 0, off = 0;
  MPI_Initialized(&on);
  if (on) MPI_Finalized(&off);
  if (on && !off) {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
  }
  for (const char *name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"})
    if (const char *text = getenv(name)) return atoi(text);
  return 0;
}

static double setting(const char *name, double otherwise) {
  const char *text = getenv(name);
  return text && *text ? atof(text) : otherwise;
}

double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

State &state(void) {
  if (the_state) return *the_state;
  State *s = the_state = new State;
  int rank = world_rank(), seed = (int)setting("CUDA_DOUBLE_SEED", 0);
  s->random.seed((unsigned)(seed * 1009 + rank));
  s->personality = (seed + rank) % 3;
  s->patience = setting("CUDA_DOUBLE_PATIENCE", 30);
  s->gpus = (int)setting("CUDA_DOUBLE_GPUS", 1);
  for (const char *p = getenv("CUDA_DOUBLE_VISIBLE"); p && *p;) { /* "5,2": ordinals 0 and 1 */
    char *end;
    s->visible.push_back((int)strtol(p, &end, 10));
    p = end + strspn(end, ",");
  }
  if (!s->visible.empty()) s->gpus = (int)s->visible.size();
  s->limit = (uint64_t)setting("CUDA_DOUBLE_MEMORY", 8e9);
  for (const char *p = getenv("CUDA_DOUBLE_MISSING");
       p && *p;) { /* "0,2": no GPU; "1d": no driver */
    char *end;
    long r = strtol(p, &end, 10);
    if (end != p && r == rank)
      s->missing = *end == 'd' ? cudaErrorInsufficientDriver : cudaErrorNoDevice;
    p = end + strcspn(end, ",");
    if (*p) p++;
  }
  void *arena = mmap(NULL, ARENA, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (arena == MAP_FAILED) fail("no room for device memory");
  s->arena = s->arena_next = (uint64_t)arena;
  s->arena_end = s->arena + ARENA;
  struct sigaction action = {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGSEGV, &action, &earlier_handler);
  return *s;
}

void fail(const char *format, ...) {
  char text[1024];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  fflush(stdout);
  fprintf(stderr, "double: %s: %s\n", the_state ? the_state->call : "start", text);
  fflush(stderr);
  abort();
}

int enter(const char *call) {
  State &s = state();
  s.call = call;
  auto planned = s.planned_failures.find(call);
  if (planned != s.planned_failures.end() && --planned->second.first == 0) {
    int code = planned->second.second;
    s.planned_failures.erase(planned);
    return code;
  }
  return 0;
}

void blocks_host(void) {
  State &s = state();
  s.blocking_calls++;
  if (s.blocking_forbidden) fail("makes the host wait where it must not");
}

extern "C" {

int64_t double_blocking_calls(void) {
  return state().blocking_calls;
}

void double_forbid_blocking(int on) {
  state().blocking_forbidden = on != 0;
}

void double_fail_call(const char *call, int nth, int code) {
  state().planned_failures[call] = {nth, code};
}

void double_forgive_leaks(void) {
  state().forgiven = true;
}
}

__attribute__((destructor)) static void leaks(void) {
  State *s = the_state;
  if (!s) return;
  std::string text;
  Left memory, pinned, streams, events;
  for (auto &m : s->memory)
    if (!m.second->freed) (m.second->pinned ? pinned : memory).add(m.second->made, m.second->id);
  for (size_t i = 2; i < s->streams.size(); i++)
    if (!s->streams[i]->destroyed) streams.add(s->streams[i]->made, s->streams[i]->id);
  for (auto &e : s->events)
    if (!e->destroyed) events.add(e->made, e->id);
  streams.tell(text, "streams");
  events.tell(text, "events");
  memory.tell(text, "device allocations");
  pinned.tell(text, "pinned allocations");
  blas_leaks().tell(text, "cuBLAS handles");
  nccl_leaks(text);
  bool bad = !text.empty() && !s->forgiven;
  if (bad) fprintf(stderr, "double: at exit: left behind: %s\n", text.c_str());
  sigaction(SIGSEGV, &earlier_handler, NULL);
  munmap((void *)s->arena, ARENA);
  the_state = NULL;
  delete s;
  if (bad) {
    fflush(stdout);
    _exit(1);
  }
}
