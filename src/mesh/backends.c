/* The one list of backends, and what a device's text means. It decides which backend a name stands
 * for; what the options of a device do is the backend's. */
#include "mesh/backends.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backend/host/host.h"
#include "backend/trace/trace.h"
#include "base/glob.h"

/* What follows the colon, item by item. */
typedef DMuonErrorCode (*device_maker)(dmuon_context *context, const char *text, const char *items,
                                       int with_mpi, dmuon_device **device);

static int is_word(const char *text, size_t length, const char *word) {
  return length == strlen(word) && memcmp(text, word, length) == 0;
}

static DMuonErrorCode read_seed(const char *text, const char *digits, size_t length,
                                uint64_t *seed) {
  char *end = NULL;
  errno = 0;
  if (length > 0 && digits[0] >= '0' && digits[0] <= '9') *seed = strtoull(digits, &end, 10);
  if (end != digits + length || errno)
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "device \"%s\": seed is \"%.*s\", must be a number from 0", text,
               (int)length, digits);
  return DMUON_SUCCESS;
}

static DMuonErrorCode host_make(dmuon_context *context, const char *text, const char *items,
                                int with_mpi, dmuon_device **device) {
  int deferred = 0, has_seed = 0, traced = 0;
  uint64_t seed = 0;
  while (items) {
    const char *comma = strchr(items, ',');
    size_t length = comma ? (size_t)(comma - items) : strlen(items);
    if (is_word(items, length, "deferred")) {
      deferred = 1;
    } else if (is_word(items, length, "eager")) {
      deferred = 0;
    } else if (is_word(items, length, "trace")) {
      traced = 1;
    } else if (length >= 5 && memcmp(items, "seed=", 5) == 0) {
      DMUON_TRY(read_seed(text, items + 5, length - 5, &seed));
      has_seed = 1;
    } else {
      DMUON_FAIL(DMUON_ERR_ARGUMENT,
                 "device \"%s\": \"%.*s\" is no option of host; there are eager, deferred, "
                 "seed=N, trace",
                 text, (int)length, items);
    }
    items = comma ? comma + 1 : NULL;
  }
  if (has_seed && !deferred)
    DMUON_FAIL(DMUON_ERR_ARGUMENT,
               "device \"%s\": a seed orders deferred tasks; say "
               "host:deferred,seed=N",
               text);
  dmuon_device *made = NULL;
  DMUON_TRY(dmuon_host_device_create(context, deferred, seed, &made));
  DMuonErrorCode code = with_mpi ? dmuon_host_device_join_process(made) : DMUON_SUCCESS;
  if (!code && traced)
    code = dmuon_trace_device_create(context, made, &dmuon_host_comm_ops, DMUON_TRACE_LIMIT, &made);
  if (code) {
    made->ops->destroy(made);
    return DMuonErrorTrace(code, __func__, __FILE__, __LINE__);
  }
  *device = made;
  return DMUON_SUCCESS;
}

static DMuonErrorCode trace_make(dmuon_context *context, const char *text, const char *items,
                                 int with_mpi, dmuon_device **device) {
  if (items)
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "device \"%s\": trace has no options, \"%s\" is none", text,
               items);
  if (with_mpi)
    DMUON_FAIL(DMUON_ERR_UNSUPPORTED,
               "device \"%s\" carries nothing out and works on plan meshes alone; host:trace "
               "records what a run does",
               text);
  DMUON_TRY(dmuon_trace_device_create(context, NULL, NULL, DMUON_TRACE_LIMIT, device));
  return DMUON_SUCCESS;
}

/* What a traced device is told goes to the one that it records. */
static void trace_set_timeout(dmuon_device *device, double seconds) {
  dmuon_device *inner = dmuon_trace_device_inner(device);
  if (inner) dmuon_backend_set_timeout(inner, seconds);
}

static void trace_set_delay(dmuon_device *device, double seconds) {
  dmuon_device *inner = dmuon_trace_device_inner(device);
  if (inner) dmuon_backend_set_delay(inner, seconds);
}

static void trace_break(dmuon_device *device, DMuonErrorCode code) {
  dmuon_device *inner = dmuon_trace_device_inner(device);
  if (inner) dmuon_backend_break(inner, code);
}

static const struct {
  const char *name;
  device_maker make; /* NULL: known, not compiled in */
  const DMuonCommOps *comm;
  void (*set_timeout)(dmuon_device *device, double seconds);
  void (*set_delay)(dmuon_device *device, double seconds);
  void (*break_device)(dmuon_device *device, DMuonErrorCode code);
} backends[] = {
    {.name = "host",
     .make = host_make,
     .comm = &dmuon_host_comm_ops,
     .set_timeout = dmuon_host_device_set_timeout,
     .set_delay = dmuon_host_device_set_delay,
     .break_device = dmuon_host_device_break},
    {.name = "cuda"},
    {.name = "trace",
     .make = trace_make,
     .comm = &dmuon_trace_comm_ops,
     .set_timeout = trace_set_timeout,
     .set_delay = trace_set_delay,
     .break_device = trace_break},
};
enum { BACKEND_COUNT = sizeof backends / sizeof *backends };

DMuonErrorCode dmuon_backend_create_device(dmuon_context *context, const char *text, int with_mpi,
                                           dmuon_device **device) {
  const char *colon = strchr(text, ':');
  size_t length = colon ? (size_t)(colon - text) : strlen(text);
  const char *names[BACKEND_COUNT];
  for (int i = 0; i < BACKEND_COUNT; i++) {
    names[i] = backends[i].name;
    if (!is_word(text, length, backends[i].name)) continue;
    if (!backends[i].make)
      DMUON_FAIL(DMUON_ERR_UNSUPPORTED,
                 "device \"%s\": backend %s is not compiled in; this library has host and "
                 "trace",
                 text, backends[i].name);
    DMUON_TRY(backends[i].make(context, text, colon ? colon + 1 : NULL, with_mpi, device));
    return DMUON_SUCCESS;
  }
  char word[32] = "";
  if (length < sizeof word) memcpy(word, text, length);
  const char *nearest = dmuon_nearest_name(word, BACKEND_COUNT, names);
  DMUON_FAIL(DMUON_ERR_ARGUMENT, "device \"%s\": there is no backend \"%.*s\"%s%s%s", text,
             (int)length, text, nearest ? "; did you mean " : "; this library has host and trace",
             nearest ? nearest : "", nearest ? "?" : "");
}

int dmuon_backend_is_for_plans(const char *text) {
  return strcmp(text, "trace") == 0;
}

static int backend_of(const dmuon_device *device) {
  int i = 0;
  while (i < BACKEND_COUNT - 1 && strcmp(device->ops->name, backends[i].name)) i++;
  return i;
}

const DMuonCommOps *dmuon_backend_comm_ops(const dmuon_device *device) {
  return backends[backend_of(device)].comm;
}

void dmuon_backend_set_timeout(dmuon_device *device, double seconds) {
  backends[backend_of(device)].set_timeout(device, seconds);
}

void dmuon_backend_set_delay(dmuon_device *device, double seconds) {
  backends[backend_of(device)].set_delay(device, seconds);
}

void dmuon_backend_break(dmuon_device *device, DMuonErrorCode code) {
  backends[backend_of(device)].break_device(device, code);
}
