/* Memory of the double: where it lies, who may touch it, what everybody did to each byte. Device
 * memory is inaccessible except to the operation that runs, there only what it declared; it begins
 * as NaN and is never handed out twice. Decides nothing about order: clocks come with the
 * operations. */
#include "state.h"

#include <string.h>
#include <sys/mman.h>

enum : uint64_t { PAGE = 4096 };
static const uint16_t POISON = 0xfffb; /* a NaN in bf16, fp16 and repeated in fp32, fp64; not -1 */
static const uint32_t POISON32 = 0xfffbfffbu;

/* ---- who touched what ------------------------------------------------------------------------ */

Allocation *find_memory(const void *ptr) {
  auto &memory = state().memory;
  auto i = memory.upper_bound((uint64_t)ptr);
  if (i == memory.begin()) return NULL;
  Allocation *m = (--i)->second.get();
  return (uint64_t)ptr < m->base + (m->bytes ? m->bytes : 1) ? m : NULL;
}

void join(Clock &clock, const Clock &other) {
  if (clock.size() < other.size()) clock.resize(other.size());
  for (size_t i = 0; i < other.size(); i++)
    if (clock[i] < other[i]) clock[i] = other[i];
}

void double_touch_rows(double_touches *touches, const void *ptr, int64_t rows, int64_t cols,
                       int64_t ld, int64_t element_bytes, double_mode mode) {
  if (rows <= 0 || cols <= 0) return;
  if (!ptr) fail("a null pointer to %lld elements", (long long)(rows * cols));
  if ((uint64_t)ptr % (uint64_t)element_bytes)
    fail("%p is not aligned to its elements of %lld bytes", ptr, (long long)element_bytes);
  if (ld < cols && rows > 1)
    fail("leading dimension %lld is less than %lld", (long long)ld, (long long)cols);
  Touch t = {(uint64_t)ptr,
             (uint64_t)(cols * element_bytes),
             (uint64_t)(ld * element_bytes),
             rows,
             mode,
             NULL,
             0};
  if (rows == 1 || ld == cols) t.row_bytes *= (uint64_t)rows, t.rows = 1;
  touches->list.push_back(t);
}

void double_touch(double_touches *touches, const void *ptr, int64_t count, int64_t element_bytes,
                  double_mode mode) {
  double_touch_rows(touches, ptr, 1, count, count, element_bytes, mode);
}

static Segment &split(Allocation *m, uint64_t at) { /* the segment that begins there */
  auto i = --m->segments.upper_bound(at);
  if (i->first == at) return i->second;
  Segment right = i->second;
  i->second.end = at;
  return m->segments.emplace(at, right).first->second;
}

static void conflict(const char *what, CUstream_st *stream, Allocation *m, uint64_t from,
                     uint64_t end, const char *verb, const Access &other, const char *did) {
  fail(
      "%s on stream %d %s bytes %llu to %llu of %s allocation %d (%llu bytes) without waiting for "
      "%s on stream %d, which %s them",
      what, stream->id, verb, (unsigned long long)(from - m->base),
      (unsigned long long)(end - m->base), m->pinned ? "pinned" : "device", m->id,
      (unsigned long long)m->bytes, other.what, other.stream, did);
}

static bool pending(const Access &a) {
  return a.stream >= 0 && state().streams[a.stream]->done < a.epoch;
}

static void judge_row(const char *what, CUstream_st *stream, Touch &t, uint64_t from, bool writing,
                      bool exclusive) {
  Allocation *m = t.in;
  uint64_t end = from + t.row_bytes, epoch = stream->issued;
  Access me = {what, stream->id, epoch};
  split(m, from);
  if (end < m->base + m->bytes) split(m, end);
  bool quiet = m->pinned;
  for (auto i = m->segments.find(from); i != m->segments.end() && i->first < end; ++i) {
    Segment &g = i->second;
    const char *verb = writing ? "writes" : "reads";
    if (!writing && (t.mode & 1) && g.write.stream < 0 && !m->pinned)
      fail(
          "%s on stream %d reads bytes %llu to %llu of device allocation %d (%llu bytes), which "
          "nobody has written",
          what, stream->id, (unsigned long long)(i->first - m->base),
          (unsigned long long)(g.end - m->base), m->id, (unsigned long long)m->bytes);
    if (g.write.stream >= 0 && at(stream->clock, g.write.stream) < g.write.epoch)
      conflict(what, stream, m, i->first, g.end, verb, g.write, "writes");
    quiet = quiet && !pending(g.write);
    bool known = false;
    for (Access &r : g.reads) {
      if (writing && exclusive && r.stream == stream->id && r.epoch == epoch)
        fail("%s writes bytes %llu to %llu of allocation %d, which it also reads", what,
             (unsigned long long)(i->first - m->base), (unsigned long long)(g.end - m->base),
             m->id);
      if (writing && at(stream->clock, r.stream) < r.epoch)
        conflict(what, stream, m, i->first, g.end, verb, r, "reads");
      if (writing) quiet = quiet && !pending(r);
      if (r.stream == stream->id) r.what = what, r.epoch = epoch, known = true;
    }
    if (!writing && !known) g.reads.push_back(me);
  }
  if (writing) {
    m->segments.erase(m->segments.find(from), m->segments.lower_bound(end));
    m->segments[from] = {end, me, {}};
    /* What the host may not read yet must not look like an answer. */
    if (quiet && t.mode == DOUBLE_WRITE)
      for (uint64_t p = from & ~1ull; p + 2 <= end; p += 2)
        if (p >= from) *(uint16_t *)p = POISON;
  } else if (quiet && t.rows == 1) {
    t.hash = 1 | std::hash<std::string>()(std::string((const char *)from, t.row_bytes));
  }
}

void judge(const char *what, CUstream_st *stream, double_touches &touches) {
  for (int writing = 0; writing < 2; writing++)
    for (Touch &t : touches.list) {
      if (writing ? !(t.mode & 2) : !(t.mode & 5)) continue;
      Allocation *m = t.in = find_memory((const void *)t.begin);
      uint64_t last = t.begin + (uint64_t)(t.rows - 1) * t.pitch + t.row_bytes;
      if (!m) fail("%s: %p is no device or pinned memory", what, (void *)t.begin);
      if (m->freed) fail("%s uses allocation %d, freed by %s", what, m->id, m->freed);
      if (last > m->base + m->bytes)
        fail("%s goes %llu bytes beyond the end of allocation %d (%llu bytes)", what,
             (unsigned long long)(last - m->base - m->bytes), m->id, (unsigned long long)m->bytes);
      if (!m->pinned && m->device != stream->device)
        fail("%s on a stream of device %d uses memory of device %d", what, stream->device,
             m->device);
      if (m->born.stream > 0 && at(stream->clock, m->born.stream) < m->born.epoch)
        conflict(what, stream, m, m->base, m->base + m->bytes, "uses", m->born, "allocates");
      for (int64_t row = 0; row < t.rows; row++)
        judge_row(what, stream, t, t.begin + (uint64_t)row * t.pitch, writing, touches.exclusive);
    }
}

static void protect(const Touch &t, int how) {
  if (t.in->pinned) return;
  uint64_t from = t.begin & ~(PAGE - 1);
  uint64_t end = t.begin + (uint64_t)(t.rows - 1) * t.pitch + t.row_bytes;
  uint64_t length = (end - from + PAGE - 1) & ~(PAGE - 1), first = t.in->base & ~(PAGE - 1);
  if (how != PROT_NONE)
    for (uint64_t p = from; p < from + length; p += PAGE)
      if (!t.in->filled[(p - first) / PAGE]) {
        mprotect((void *)p, PAGE, PROT_READ | PROT_WRITE);
        for (uint64_t q = p; q < p + PAGE; q += 4) *(uint32_t *)q = POISON32;
        t.in->filled[(p - first) / PAGE] = true;
      }
  mprotect((void *)from, length, how);
}

void open_memory(const char *what, const double_touches &touches) {
  for (const Touch &t : touches.list) protect(t, PROT_READ);
  for (const Touch &t : touches.list) {
    if (t.mode & 2) protect(t, PROT_READ | PROT_WRITE);
    if (t.hash &&
        t.hash != (1 | std::hash<std::string>()(std::string((const char *)t.begin, t.row_bytes))))
      fail("%s: the host changed pinned allocation %d while it was to be read", what, t.in->id);
    for (int64_t row = 0; (t.mode & 1) && !t.in->pinned && row < t.rows; row++) {
      uint64_t from = t.begin + (uint64_t)row * t.pitch, end = from + t.row_bytes;
      for (uint64_t p = (from + 3) & ~3ull; p + 4 <= end; p += 4)
        if (*(const uint32_t *)p == POISON32)
          fail("%s reads poison at byte %llu of allocation %d: a copy of what nobody has written",
               what, (unsigned long long)(p - t.in->base), t.in->id);
    }
  }
}

void close_memory(const double_touches &touches) {
  for (const Touch &t : touches.list) protect(t, PROT_NONE);
}

/* ---- entry points ---------------------------------------------------------------------------- */

static cudaError_t error(cudaError_t code) {
  return code ? state().last_error = code : code;
}

static cudaError_t allocate(void **ptr, size_t bytes, bool pinned, CUstream_st *stream) {
  State &s = state();
  if (s.missing) return error((cudaError_t)s.missing);
  if (!ptr) fail("a null pointer");
  if (!bytes) return *ptr = NULL, cudaSuccess;
  if (!pinned && s.used + bytes > s.limit) return error(cudaErrorMemoryAllocation);
  uint64_t pages = (bytes + 256 + PAGE - 1) / PAGE;
  if (s.arena_next + (pages + 1) * PAGE > s.arena_end) fail("address space exhausted");
  std::unique_ptr<Allocation> m(new Allocation());
  m->base = s.arena_next + 256; /* not page aligned: nobody may count on that */
  m->bytes = bytes;
  m->id = (int)s.memory.size() + 1;
  m->made = s.call;
  m->device = double_device;
  m->pinned = pinned;
  m->born = {"cudaMallocAsync", stream ? stream->id : -1, stream ? stream->issued : 0};
  m->segments[m->base] = {m->base + bytes, {"nobody", -1, 0}, {}};
  m->filled.resize(pages);
  if (pinned) {
    mprotect((void *)s.arena_next, pages * PAGE, PROT_READ | PROT_WRITE);
    for (uint64_t p = s.arena_next; p < s.arena_next + pages * PAGE; p += 4)
      *(uint32_t *)p = POISON32;
  } else {
    s.used += bytes;
  }
  s.arena_next += (pages + 1) * PAGE;
  *ptr = (void *)m->base;
  s.memory[m->base] = std::move(m);
  return cudaSuccess;
}

static Allocation *to_free(void *ptr, bool pinned, const Clock &clock, const char *who) {
  Allocation *m = find_memory(ptr);
  if (!m || (uint64_t)ptr != m->base) fail("%p was not allocated", ptr);
  if (m->freed) fail("allocation %d has been freed by %s", m->id, m->freed);
  if (m->pinned != pinned) fail("allocation %d is %s memory", m->id, pinned ? "device" : "pinned");
  for (auto &g : m->segments) {
    const Access *late = NULL;
    if (g.second.write.stream >= 0 && at(clock, g.second.write.stream) < g.second.write.epoch)
      late = &g.second.write;
    for (Access &r : g.second.reads)
      if (at(clock, r.stream) < r.epoch) late = &r;
    if (late)
      fail("allocation %d is freed, but %s has not waited for %s on stream %d, which uses it",
           m->id, who, late->what, late->stream);
  }
  m->freed = state().call;
  return m;
}

static void release(Allocation *m) {
  uint64_t first = m->base & ~(PAGE - 1);
  mprotect((void *)first, m->filled.size() * PAGE, PROT_NONE);
  madvise((void *)first, m->filled.size() * PAGE, MADV_DONTNEED);
  if (!m->pinned) state().used -= m->bytes;
  m->segments.clear();
}

extern "C" {

cudaError_t cudaMalloc(void **ptr, size_t bytes) {
  ENTER("cudaMalloc", cudaError_t);
  blocks_host();
  return allocate(ptr, bytes, false, NULL);
}

cudaError_t cudaFree(void *ptr) {
  ENTER("cudaFree", cudaError_t);
  if (!ptr) return cudaSuccess;
  blocks_host();
  release(to_free(ptr, false, state().host, "the host"));
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **ptr, size_t bytes, unsigned) {
  ENTER("cudaHostAlloc", cudaError_t);
  blocks_host();
  return allocate(ptr, bytes, true, NULL);
}

cudaError_t cudaFreeHost(void *ptr) {
  ENTER("cudaFreeHost", cudaError_t);
  if (!ptr) return cudaSuccess;
  blocks_host();
  release(to_free(ptr, true, state().host, "the host"));
  return cudaSuccess;
}

cudaError_t cudaMallocAsync(void **ptr, size_t bytes, cudaStream_t stream) {
  ENTER("cudaMallocAsync", cudaError_t);
  CUstream_st *s = stream_of(stream);
  issue("cudaMallocAsync", s, double_touches(), [] { return true; });
  return allocate(ptr, bytes, false, s);
}

cudaError_t cudaFreeAsync(void *ptr, cudaStream_t stream) {
  ENTER("cudaFreeAsync", cudaError_t);
  if (!ptr) return cudaSuccess;
  CUstream_st *s = stream_of(stream);
  join(s->clock, state().host);
  Allocation *m = to_free(ptr, false, s->clock, "that stream");
  issue("cudaFreeAsync", s, double_touches(), [m] { return release(m), true; });
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *ptr) {
  ENTER("cudaPointerGetAttributes", cudaError_t);
  if (state().missing) return error((cudaError_t)state().missing);
  Allocation *m = find_memory(ptr);
  memset(attributes, 0, sizeof *attributes);
  attributes->device = -2; /* as cudaInvalidDeviceId */
  if (!m || m->freed) {
    attributes->type = cudaMemoryTypeUnregistered;
    attributes->hostPointer = (void *)ptr;
    return cudaSuccess;
  }
  attributes->type = m->pinned ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
  attributes->device = m->device;
  attributes->devicePointer = (void *)ptr;
  attributes->hostPointer = m->pinned ? (void *)ptr : NULL;
  return cudaSuccess;
}

void double_host_reads(const void *ptr, int64_t bytes) {
  state().call = "host read of pinned memory";
  Allocation *m = find_memory(ptr);
  if (!m || !m->pinned || m->freed) fail("%p is no pinned memory", ptr);
  for (auto &g : m->segments)
    if (g.first < (uint64_t)ptr + (uint64_t)bytes && g.second.end > (uint64_t)ptr &&
        g.second.write.stream >= 0 &&
        at(state().host, g.second.write.stream) < g.second.write.epoch)
      fail("the host has not waited for %s on stream %d, which writes allocation %d",
           g.second.write.what, g.second.write.stream, m->id);
}
}
