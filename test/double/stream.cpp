/* Devices, streams and events of the double: which operations are in which queue, what must come
 * before what, and in which of the legal orders they run. The order is drawn from the seed; an
 * operation runs only inside a call of the program. */
#include "state.h"

#include <mpi.h>
#include <nccl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static cudaError_t error(cudaError_t code) {
  return code ? state().last_error = code : code;
}

#define ENTER_DEVICE(call)                                           \
  do {                                                               \
    ENTER(call, cudaError_t);                                        \
    if (state().missing) return error((cudaError_t)state().missing); \
  } while (0)

/* ---- queues ---------------------------------------------------------------------------------- */

static CUstream_st *new_stream(int device, bool joins_default, int priority) {
  auto &streams = state().streams;
  if (streams.empty()) { /* the host's place, and the default stream */
    streams.emplace_back(new CUstream_st());
    streams.emplace_back(new CUstream_st());
    streams[0]->destroyed = streams[1]->destroyed = true;
    streams[1]->id = 1;
  }
  CUstream_st *s = new CUstream_st();
  s->id = (int)streams.size();
  s->made = state().call;
  s->device = device;
  s->joins_default = joins_default;
  s->priority = priority;
  streams.emplace_back(s);
  return s;
}

CUstream_st *stream_of(cudaStream_t stream) {
  auto &streams = state().streams;
  if (streams.empty()) new_stream(double_device, false, 0)->destroyed = true;
  if (!stream || stream == cudaStreamLegacy) {
    streams[1]->device = double_device;
    return streams[1].get();
  }
  for (auto &s : streams)
    if (s.get() == stream) {
      if (s->destroyed) fail("stream %d has been destroyed", s->id);
      return stream;
    }
  fail("%p is no stream", (void *)stream);
}

/* An operation at the end of the queue behind those given; judged here, run some time later. */
static void put(const char *what, CUstream_st *s, double_touches &&touches,
                std::function<bool()> run, std::vector<std::pair<CUstream_st *, uint64_t>> &&after,
                bool open_later = false) {
  State &g = state();
  if (s->launching && nccl_in_progress(s->launching))
    fail("%s on stream %d, where an NCCL call is still ncclInProgress", what, s->id);
  s->launching = NULL;
  join(s->clock, g.host);
  for (size_t i = 1; i < g.streams.size(); i++) { /* the default stream's own order */
    CUstream_st *other = g.streams[i].get();
    bool tied = s->id == 1 ? other->joins_default : s->joins_default && other->id == 1;
    if (!tied || other->issued == at(s->clock, other->id)) continue;
    join(s->clock, other->clock);
    after.push_back({other, other->issued});
  }
  if (s->clock.size() <= (size_t)s->id) s->clock.resize(s->id + 1);
  s->clock[s->id] = ++s->issued;
  judge(what, s, touches);
  if (open_later) touches.list.clear();
  s->queue.push_back({what, s->issued, std::move(after), std::move(touches), std::move(run)});
  unsigned luck = g.random() % 8;
  if (g.personality == 1) advance(1 << 30);
  if (g.personality == 0 && luck < 3) advance((int)luck + 1);
}

void issue(const char *what, CUstream_st *stream, double_touches &&touches,
           std::function<bool()> run) {
  put(what, stream, std::move(touches), std::move(run), {});
}

void issue_open_later(const char *what, CUstream_st *stream, double_touches &&touches,
                      std::function<bool()> run) {
  put(what, stream, std::move(touches), std::move(run), {}, true);
}

bool advance(int operations) {
  State &g = state();
  bool moved = nccl_progress();
  while (operations > 0) {
    std::vector<CUstream_st *> ready;
    for (auto &s : g.streams) {
      if (s->queue.empty()) continue;
      bool free = true;
      for (auto &a : s->queue.front().after) free = free && a.first->done >= a.second;
      if (free) ready.push_back(s.get());
    }
    bool ran = false;
    size_t first = ready.empty() ? 0 : g.random() % ready.size();
    for (size_t i = 0; i < ready.size() && !ran; i++) {
      CUstream_st *s = ready[(first + i) % ready.size()];
      CUstream_st::Op &op = s->queue.front();
      g.running = op.what;
      open_memory(op.what, op.touches);
      ran = op.run();
      close_memory(op.touches);
      g.running = NULL;
      if (!ran) continue;
      s->done = op.epoch;
      s->queue.pop_front();
    }
    if (!ran) break;
    moved = true;
    operations--;
  }
  return moved;
}

static void report_standstill(void) {
  std::string text;
  for (auto &s : state().streams)
    if (!s->queue.empty())
      text += "\n  stream " + std::to_string(s->id) + ": " + s->queue.front().what + ", " +
              std::to_string(s->queue.size()) + " operations" +
              (s->queue.front().after.empty() ? "" : ", waiting for another stream");
  fail("rank %d: nothing has moved for %g seconds; at the heads of the streams:%s", world_rank(),
       state().patience, text.empty() ? " nothing: other ranks are waited for" : text.c_str());
}

/* Counts the time in which the program asks again and again and nothing moves. */
static void turn(bool moved) {
  State &g = state();
  double t = now();
  if (moved || t - g.last_poll > 1) g.idle_since = t;
  g.last_poll = t;
  bool work = false;
  for (auto &s : g.streams) work = work || !s->queue.empty();
  if (!work) g.idle_since = t;
  if (t - g.idle_since > g.patience) report_standstill();
}

void poll(void) {
  State &g = state();
  int some = g.personality == 0 ? (int)(g.random() % 16) + 1 : g.personality == 1 ? 1 << 30 : 1;
  turn(advance(some));
}

void wait_turn(void) {
  bool moved = advance(1);
  turn(moved);
  if (!moved) sched_yield();
}

static void synchronize(CUstream_st *s) {
  while (!s->queue.empty()) wait_turn();
  join(state().host, s->clock);
}

/* ---- devices --------------------------------------------------------------------------------- */

static int gpu_number(int device) { /* which GPU of the node, the same for all who see it */
  const char *shared = getenv("CUDA_DOUBLE_SHARED");
  if (shared && *shared && *shared != '0') return 0;
  if (!state().visible.empty()) return state().visible[(size_t)device];
  return state().gpus > 1 ? device : world_rank();
}

extern "C" {

cudaError_t cudaGetDeviceCount(int *count) {
  ENTER_DEVICE("cudaGetDeviceCount");
  *count = state().gpus;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device) {
  ENTER_DEVICE("cudaGetDevice");
  *device = double_device;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  ENTER_DEVICE("cudaSetDevice");
  if (device < 0 || device >= state().gpus) return error(cudaErrorInvalidDevice);
  double_device = device;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device) {
  ENTER_DEVICE("cudaGetDeviceProperties");
  if (device < 0 || device >= state().gpus) return error(cudaErrorInvalidDevice);
  memset(p, 0, sizeof *p);
  strcpy(p->name, "test double");
  char host[64] = "";
  gethostname(host, sizeof host - 1);
  int number = gpu_number(device), node = (int)std::hash<std::string>()(host);
  memcpy(p->uuid.bytes, "double", 6);
  memcpy(p->uuid.bytes + 8, &node, 4);
  memcpy(p->uuid.bytes + 12, &number, 4);
  p->pciBusID = number + 1;
  p->totalGlobalMem = state().limit;
  p->sharedMemPerBlock = 49152;
  p->warpSize = 32;
  p->maxThreadsPerBlock = 1024;
  p->major = 9;
  p->multiProcessorCount = 132;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  ENTER_DEVICE("cudaDeviceGetStreamPriorityRange");
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version) {
  ENTER("cudaDriverGetVersion", cudaError_t);
  *version = state().missing == cudaErrorInsufficientDriver ? 0 : CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) {
  ENTER("cudaRuntimeGetVersion", cudaError_t);
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetLastError(void) {
  cudaError_t code = state().last_error;
  state().last_error = cudaSuccess;
  return code;
}

const char *cudaGetErrorName(cudaError_t code) {
  return code == cudaSuccess                   ? "cudaSuccess"
         : code == cudaErrorMemoryAllocation   ? "cudaErrorMemoryAllocation"
         : code == cudaErrorNotReady           ? "cudaErrorNotReady"
         : code == cudaErrorNoDevice           ? "cudaErrorNoDevice"
         : code == cudaErrorInvalidDevice      ? "cudaErrorInvalidDevice"
         : code == cudaErrorInsufficientDriver ? "cudaErrorInsufficientDriver"
                                               : "an error of the double";
}

const char *cudaGetErrorString(cudaError_t code) {
  return cudaGetErrorName(code);
}

/* ---- streams and events ---------------------------------------------------------------------- */

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority) {
  ENTER_DEVICE("cudaStreamCreateWithPriority");
  if (priority > 0 || priority < -5) fail("priority %d is not within 0 and -5", priority);
  *stream = new_stream(double_device, !(flags & cudaStreamNonBlocking), priority);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

int double_stream_priority(cudaStream_t stream) {
  return stream_of(stream)->priority;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  ENTER("cudaStreamDestroy", cudaError_t);
  CUstream_st *s = stream_of(stream);
  if (s->id == 1) fail("the default stream cannot be destroyed");
  s->destroyed = true; /* what it holds still runs, as on a device */
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  ENTER_DEVICE("cudaStreamQuery");
  CUstream_st *s = stream_of(stream);
  poll();
  if (!s->queue.empty()) return error(cudaErrorNotReady);
  join(state().host, s->clock);
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  ENTER_DEVICE("cudaStreamSynchronize");
  blocks_host();
  synchronize(stream_of(stream));
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned) {
  ENTER_DEVICE("cudaEventCreateWithFlags");
  CUevent_st *e = new CUevent_st();
  state().events.emplace_back(e);
  e->id = (int)state().events.size();
  e->made = state().call;
  e->device = double_device;
  *event = e;
  return cudaSuccess;
}

static CUevent_st *event_of(cudaEvent_t event) {
  for (auto &e : state().events)
    if (e.get() == event) {
      if (e->destroyed) fail("event %d has been destroyed", e->id);
      return event;
    }
  fail("%p is no event", (void *)event);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  ENTER("cudaEventDestroy", cudaError_t);
  event_of(event)->destroyed = true;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  ENTER_DEVICE("cudaEventRecord");
  CUevent_st *e = event_of(event);
  CUstream_st *s = stream_of(stream);
  if (e->device != s->device)
    fail("an event of device %d on a stream of device %d", e->device, s->device);
  e->stream = s;
  e->epoch = s->issued + 1;
  issue("cudaEventRecord", s, double_touches(), [] { return true; });
  e->clock = s->clock;
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  ENTER_DEVICE("cudaEventQuery");
  CUevent_st *e = event_of(event);
  poll();
  if (e->stream && e->stream->done < e->epoch) return error(cudaErrorNotReady);
  join(state().host, e->clock);
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  ENTER_DEVICE("cudaStreamWaitEvent");
  CUstream_st *s = stream_of(stream);
  CUevent_st *e = event_of(event);
  if (flags) fail("flags %u", flags);
  if (!e->stream) return cudaSuccess; /* never recorded: nothing to wait for */
  join(s->clock, e->clock);
  put("cudaStreamWaitEvent", s, double_touches(), [] { return true; }, {{e->stream, e->epoch}});
  return cudaSuccess;
}

/* ---- copies and kernels ---------------------------------------------------------------------- */

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
  ENTER_DEVICE("cudaMemcpyAsync");
  CUstream_st *s = stream_of(stream);
  if (!bytes) return cudaSuccess;
  if (!dst || !src) fail("a null pointer");
  Allocation *to = find_memory(dst), *from = find_memory(src);
  bool to_device = to && !to->pinned, from_device = from && !from->pinned;
  if (kind != cudaMemcpyDefault && (int)kind != (from_device ? 2 : 0) + (to_device ? 1 : 0))
    fail("kind %d does not say where the pointers lie", (int)kind);
  double_touches touches;
  touches.exclusive = true;
  if (from) double_touch(&touches, src, (int64_t)bytes, 1, DOUBLE_MOVE);
  if (to) double_touch(&touches, dst, (int64_t)bytes, 1, DOUBLE_WRITE);
  std::string staged; /* pageable: copied at once */
  if (!from) staged.assign((const char *)src, bytes);
  if (!from || !to) blocks_host();
  issue("cudaMemcpyAsync", s, std::move(touches), [=] {
    memcpy(dst, from ? src : staged.data(), bytes);
    return true;
  });
  if (!to) synchronize(s); /* into pageable memory: returns when it is there */
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *ptr, int value, size_t bytes, cudaStream_t stream) {
  ENTER_DEVICE("cudaMemsetAsync");
  double_touches touches;
  double_touch(&touches, ptr, (int64_t)bytes, 1, DOUBLE_WRITE);
  issue("cudaMemsetAsync", stream_of(stream), std::move(touches),
        [=] { return memset(ptr, value, bytes), true; });
  return cudaSuccess;
}

static std::map<const void *, const double_kernel *> &kernels(void) {
  static std::map<const void *, const double_kernel *> table;
  return table;
}

int double_register(const double_kernel *table, int count) {
  for (int i = 0; i < count; i++) kernels()[table[i].handle] = &table[i];
  return count;
}

cudaError_t cudaLaunchKernel(const void *handle, dim3 grid, dim3 block, void **args, size_t shared,
                             cudaStream_t stream) {
  ENTER_DEVICE("cudaLaunchKernel");
  auto known = kernels().find(handle);
  if (known == kernels().end()) fail("%p is no kernel", handle);
  const double_kernel *k = known->second;
  state().call = k->name;
  CUstream_st *s = stream_of(stream);
  if (s->device != double_device)
    fail("stream %d is of device %d, current is %d", s->id, s->device, double_device);
  uint64_t threads = (uint64_t)block.x * block.y * block.z;
  if (!grid.x || !grid.y || !grid.z || grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535 ||
      !threads || threads > 1024 || block.z > 64)
    fail("grid (%u, %u, %u) of blocks (%u, %u, %u)", grid.x, grid.y, grid.z, block.x, block.y,
         block.z);
  if (shared > 49152) fail("%zu bytes of shared memory", shared);
  if (k->args_bytes > 4096) fail("%zu bytes of arguments", k->args_bytes);
  std::vector<max_align_t> copy(k->args_bytes / sizeof(max_align_t) + 1);
  memcpy(copy.data(), args[0], k->args_bytes);
  double_touches touches;
  k->touches(copy.data(), grid, block, &touches);
  issue(k->name, s, std::move(touches), [=] { return k->run(copy.data(), grid, block), true; });
  return cudaSuccess;
}
}
