/* The one list of backends, and what a device's text means. It decides which backend a name stands
 * for; what the options of a device do is the backend's. */
#include "mesh/backends.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backend/host/host.h"
#include "backend/trace/trace.h"
#include "base/glob.h"
#include "comm/bootstrap_process.h"
#include "mesh/module.h"

/* What follows the colon, item by item. */
typedef DMuonErrorCode (*device_maker)(dmuon_context *context, const char *text, const char *items,
                                       int with_mpi, const dmuon_backend_extras *extras,
                                       dmuon_device **device);

static int is_word(const char *text, size_t length, const char *word) {
  return length == strlen(word) && memcmp(text, word, length) == 0;
}

/* The items of a device's text, one after another: *items moves behind the one that it gives; 0:
 * there is none any more. */
static int next_item(const char **items, const char **item, size_t *length) {
  const char *comma = *items ? strchr(*items, ',') : NULL;
  if (!*items) return 0;
  *item = *items;
  *length = comma ? (size_t)(comma - *items) : strlen(*items);
  *items = comma ? comma + 1 : NULL;
  return 1;
}

static DMuonErrorCode read_number(const char *text, const char *what, const char *digits,
                                  size_t length, uint64_t *number) {
  char *end = NULL;
  errno = 0;
  if (length > 0 && digits[0] >= '0' && digits[0] <= '9') *number = strtoull(digits, &end, 10);
  if (end != digits + length || errno)
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "device \"%s\": %s is \"%.*s\", must be a number from 0", text,
               what, (int)length, digits);
  return DMUON_SUCCESS;
}

static DMuonErrorCode host_make(dmuon_context *context, const char *text, const char *items,
                                int with_mpi, const dmuon_backend_extras *extras,
                                dmuon_device **device) {
  int deferred = 0, has_seed = 0, traced = 0, late = 0;
  uint64_t seed = 0;
  const char *item = NULL;
  size_t length = 0;
  (void)extras;
  while (next_item(&items, &item, &length)) {
    if (is_word(item, length, "deferred")) {
      deferred = 1;
    } else if (is_word(item, length, "eager")) {
      deferred = 0;
    } else if (is_word(item, length, "trace")) {
      traced = 1;
    } else if (is_word(item, length, "late")) {
      late = 1;
    } else if (is_word(item, length, DMUON_BACKEND_STAGED)) {
      /* of the mesh: see device_agree.c */
    } else if (length >= 5 && memcmp(item, "seed=", 5) == 0) {
      DMUON_TRY(read_number(text, "seed", item + 5, length - 5, &seed));
      has_seed = 1;
    } else {
      DMUON_FAIL(DMUON_ERR_ARGUMENT,
                 "device \"%s\": \"%.*s\" is no option of host; there are eager, deferred, "
                 "seed=N, late, staged, trace",
                 text, (int)length, item);
    }
  }
  if (has_seed && !deferred)
    DMUON_FAIL(DMUON_ERR_ARGUMENT,
               "device \"%s\": a seed orders deferred tasks; say "
               "host:deferred,seed=N",
               text);
  dmuon_device *made = NULL;
  DMUON_TRY(dmuon_host_device_create(context, deferred, seed, &made));
  made->decides_late = late;
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

/* What else this process has under way, while a module's device waits. */
static DMuonErrorCode progress_process(void *argument) {
  (void)argument;
  dmuon_process_progress();
  dmuon_process_listen();
  return DMUON_SUCCESS;
}

static DMuonErrorCode cuda_read(const char *text, const char *items, dmuon_module_request *request,
                                int *traced) {
  const char *item = NULL;
  size_t length = 0;
  while (next_item(&items, &item, &length)) {
    uint64_t ordinal = 0;
    if (is_word(item, length, "tf32")) {
      request->allow_tf32 = 1;
    } else if (is_word(item, length, "batched")) {
      request->batched = 1;
    } else if (is_word(item, length, "trace")) {
      *traced = 1;
    } else if (length >= 8 && memcmp(item, "ordinal=", 8) == 0) {
      DMUON_TRY(read_number(text, "ordinal", item + 8, length - 8, &ordinal));
      request->ordinal = ordinal < INT32_MAX ? (int)ordinal : INT32_MAX;
      request->pci = NULL;
    } else if (!is_word(item, length, DMUON_BACKEND_STAGED)) {
      DMUON_FAIL(DMUON_ERR_ARGUMENT,
                 "device \"%s\": \"%.*s\" is no option of cuda; there are ordinal=N, tf32, "
                 "batched, staged, trace",
                 text, (int)length, item);
    }
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode cuda_make(dmuon_context *context, const char *text, const char *items,
                                int with_mpi, const dmuon_backend_extras *extras,
                                dmuon_device **device) {
  static const dmuon_backend_extras none = {.ordinal = -1};
  if (!extras) extras = &none;
  dmuon_module_request request = {.text = text,
                                  .ordinal = extras->ordinal,
                                  .pci = extras->pci,
                                  .reduce_nccl = extras->reduce_nccl,
                                  .rank = extras->rank,
                                  .progress = with_mpi ? progress_process : NULL,
                                  .alloc = extras->alloc,
                                  .release = extras->release,
                                  .alloc_context = extras->alloc_context};
  const dmuon_module *module = NULL;
  dmuon_device *made = NULL;
  int traced = 0;
  DMUON_TRY(cuda_read(text, items, &request, &traced));
  DMUON_TRY(dmuon_module_find(context, "cuda", extras->module_path, &module));
  DMUON_TRY(module->create(context, &request, &made));
  if (traced) {
    DMuonErrorCode code =
        dmuon_trace_device_create(context, made, module->comm, DMUON_TRACE_LIMIT, &made);
    if (code) {
      made->ops->destroy(made);
      return DMuonErrorTrace(code, __func__, __FILE__, __LINE__);
    }
  }
  *device = made;
  return DMUON_SUCCESS;
}

static const dmuon_module *module_of(const dmuon_device *device) {
  return ((const dmuon_module_device *)(const void *)device)->module;
}

static void module_set_timeout(dmuon_device *device, double seconds) {
  module_of(device)->set_timeout(device, seconds);
}

/* Messages between devices cannot be held back. */
static void module_set_delay(dmuon_device *device, double seconds) {
  (void)device;
  (void)seconds;
}

static void module_break(dmuon_device *device, DMuonErrorCode code) {
  module_of(device)->break_device(device, code);
}

static DMuonErrorCode trace_make(dmuon_context *context, const char *text, const char *items,
                                 int with_mpi, const dmuon_backend_extras *extras,
                                 dmuon_device **device) {
  (void)extras;
  const int late = items && strcmp(items, "late") == 0;
  if (items && !late)
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "device \"%s\": \"%s\" is no option of trace; there is late",
               text, items);
  if (with_mpi)
    DMUON_FAIL(DMUON_ERR_UNSUPPORTED,
               "device \"%s\" carries nothing out and works on plan meshes alone; host:trace "
               "records what a run does",
               text);
  DMUON_TRY(dmuon_trace_device_create(context, NULL, NULL, DMUON_TRACE_LIMIT, device));
  (*device)->decides_late = late;
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
  device_maker make;
  const DMuonCommOps *comm; /* NULL: the module's */
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
    {.name = "cuda",
     .make = cuda_make,
     .set_timeout = module_set_timeout,
     .set_delay = module_set_delay,
     .break_device = module_break},
    {.name = "trace",
     .make = trace_make,
     .comm = &dmuon_trace_comm_ops,
     .set_timeout = trace_set_timeout,
     .set_delay = trace_set_delay,
     .break_device = trace_break},
};
enum { BACKEND_COUNT = sizeof backends / sizeof *backends };

DMuonErrorCode dmuon_backend_create_device(dmuon_context *context, const char *text, int with_mpi,
                                           const dmuon_backend_extras *extras,
                                           dmuon_device **device) {
  const char *colon = strchr(text, ':');
  size_t length = colon ? (size_t)(colon - text) : strlen(text);
  const char *names[BACKEND_COUNT];
  for (int i = 0; i < BACKEND_COUNT; i++) {
    names[i] = backends[i].name;
    if (!is_word(text, length, backends[i].name)) continue;
    DMUON_TRY(backends[i].make(context, text, colon ? colon + 1 : NULL, with_mpi, extras, device));
    return DMUON_SUCCESS;
  }
  char word[32] = "";
  if (length < sizeof word) memcpy(word, text, length);
  const char *nearest = dmuon_nearest_name(word, BACKEND_COUNT, names);
  DMUON_FAIL(DMUON_ERR_ARGUMENT, "device \"%s\": there is no backend \"%.*s\"%s%s%s", text,
             (int)length, text, nearest ? "; did you mean " : "; there are host, cuda and trace",
             nearest ? nearest : "", nearest ? "?" : "");
}

static int is_module(const char *text, size_t length) {
  for (int i = 0; i < BACKEND_COUNT; i++)
    if (is_word(text, length, backends[i].name)) return !backends[i].comm;
  return 0;
}

int dmuon_backend_may_be_missing(const char *text) {
  const char *colon = strchr(text, ':');
  return is_module(text, colon ? (size_t)(colon - text) : strlen(text));
}

int dmuon_backend_wants_staged(const char *text) {
  const char *items = strchr(text, ':'), *item = NULL;
  size_t length = 0;
  if (items) items++;
  while (next_item(&items, &item, &length))
    if (is_word(item, length, DMUON_BACKEND_STAGED)) return 1;
  return 0;
}

int dmuon_backend_is_for_plans(const char *text) {
  return strcmp(text, "trace") == 0 || strncmp(text, "trace:", 6) == 0;
}

static int backend_of(const dmuon_device *device) {
  int i = 0;
  while (i < BACKEND_COUNT - 1 && strcmp(device->ops->name, backends[i].name)) i++;
  return i;
}

const DMuonCommOps *dmuon_backend_comm_ops(const dmuon_device *device) {
  const DMuonCommOps *ops = backends[backend_of(device)].comm;
  return ops ? ops : module_of(device)->comm;
}

/* The module's device, also below one that records; NULL: this process's CPU. */
static const dmuon_device *module_device(const dmuon_device *device) {
  if (device && strcmp(device->ops->name, "trace") == 0)
    device = dmuon_trace_device_inner((dmuon_device *)device);
  return device && !backends[backend_of(device)].comm ? device : NULL;
}

void dmuon_backend_identify(const dmuon_device *device, unsigned char uuid[16]) {
  const dmuon_device *of = module_device(device);
  memset(uuid, 0, 16);
  if (of) module_of(of)->identify(of, uuid);
}

void dmuon_backend_pci(const dmuon_device *device, char pci[24]) {
  const dmuon_device *of = module_device(device);
  memset(pci, 0, 24);
  if (of) memcpy(pci, ((const dmuon_module_device *)(const void *)of)->pci, 23);
}

void dmuon_backend_describe(const dmuon_device *device, dmuon_text *text) {
  const dmuon_device *of = module_device(device);
  if (of) module_of(of)->describe(of, text);
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
