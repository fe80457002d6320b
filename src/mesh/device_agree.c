/* Makes the device of each rank and agrees on what all have: which ranks lack one, which have
 * which, and what all of them can do. Decides what happens to a rank without; whether devices can
 * talk to each other is decided in device_choice.c. */
#include "mesh/device_agree.h"

#include <stdio.h>
#include <string.h>

#include "backend/staged/staged.h"
#include "mesh/backends.h"

static const char agreeing[] = "setting up the device";

/* Facts of other ranks are zeros on this one. */
static void merge_facts(void *into, const void *from, int64_t bytes, void *context) {
  unsigned char *a = into;
  const unsigned char *b = from;
  (void)context;
  for (int64_t i = 0; i < bytes; i++) a[i] |= b[i];
}

static dmuon_device_fact fact_of(const dmuon_device *device) {
  dmuon_device_fact fact = {.is_missing = !device};
  if (device) {
    dmuon_backend_identify(device, fact.uuid);
    fact.decides_late = device->decides_late != 0;
    fact.prefers_half = device->prefers_half != 0;
    fact.prefers_batches = device->prefers_batches != 0;
  }
  return fact;
}

static int lowest_missing(const DMuonMesh mesh, int *count) {
  int lowest = -1;
  *count = 0;
  for (int rank = mesh->size - 1; rank >= 0; rank--) {
    if (!mesh->facts[rank].is_missing) continue;
    lowest = rank;
    (*count)++;
  }
  return lowest;
}

/* What one rank does another way, all do the simple way: steps must be the same everywhere. */
static void even_out(DMuonMesh mesh) {
  dmuon_device *device = mesh->device;
  for (int rank = 0; rank < mesh->size; rank++) {
    const dmuon_device_fact *fact = &mesh->facts[rank];
    if (!fact->decides_late) device->decides_late = 0;
    if (!fact->prefers_half) device->prefers_half = 0;
    if (!fact->prefers_batches) device->prefers_batches = 0;
  }
}

/* A rank without the device takes the host's, unless nobody has one. why: what it said. */
static DMuonErrorCode replace_missing(DMuonMesh mesh, DMuonErrorCode missing, const char *why) {
  int count;
  const int lowest = lowest_missing(mesh, &count);
  if (count == 0) return DMUON_SUCCESS;
  if (count == mesh->size)
    return dmuon_mesh_agree_error(
        mesh, agreeing, DMUON_ERROR(missing, "device \"%s\": %s", mesh->settings.device, why));
  DMuonErrorCode code = DMUON_SUCCESS;
  if (!mesh->device)
    code = dmuon_backend_create_device(&mesh->context, "host", 1, NULL, &mesh->device);
  DMUON_TRY(dmuon_mesh_agree_error(mesh, agreeing, code));
  snprintf(mesh->missing_why, sizeof mesh->missing_why, "%s", why);
  DMUON_TRY(dmuon_agree_broadcast(mesh->bootstrap, agreeing, lowest, mesh->missing_why,
                                  sizeof mesh->missing_why));
  return DMUON_SUCCESS;
}

/* The thread's record without the device's name, which all know. */
static const char *what_is_missing(void) {
  const char *text = dmuon_error_text();
  const char *rest = strncmp(text, "device \"", 8) == 0 ? strstr(text, "\": ") : NULL;
  return rest ? rest + 3 : text;
}

static DMuonErrorCode make(DMuonMesh mesh) {
  char why[sizeof mesh->missing_why] = "";
  dmuon_backend_extras extras;
  dmuon_mesh_extras(mesh, &extras);
  DMuonErrorCode code =
      dmuon_backend_create_device(&mesh->context, mesh->settings.device, 1, &extras, &mesh->device);
  if (!dmuon_backend_may_be_missing(mesh->settings.device))
    return dmuon_mesh_agree_error(mesh, agreeing, code);
  DMuonErrorCode missing = DMUON_SUCCESS;
  if (code == DMUON_ERR_UNSUPPORTED) { /* that alone: not here */
    snprintf(why, sizeof why, "%s", what_is_missing());
    missing = code;
    code = DMUON_SUCCESS;
  }
  dmuon_memory_release(&mesh->facts);
  if (!code)
    code = dmuon_memory_alloc(&mesh->context.memory, mesh->size, sizeof *mesh->facts, &mesh->facts);
  DMUON_TRY(dmuon_mesh_agree_error(mesh, agreeing, code));
  mesh->facts[mesh->rank] = fact_of(mesh->device);
  DMUON_TRY(dmuon_agree_reduce(mesh->bootstrap, agreeing, mesh->facts,
                               (int64_t)sizeof *mesh->facts * mesh->size, merge_facts, NULL));
  DMUON_TRY(replace_missing(mesh, missing, why));
  even_out(mesh);
  return DMUON_SUCCESS;
}

static DMuonErrorCode progress_device(void *argument) {
  dmuon_device *device = argument;
  return device->ops->progress(device);
}

DMuonErrorCode dmuon_mesh_make_device(DMuonMesh mesh) {
  DMUON_TRY(make(mesh));
  dmuon_backend_set_timeout(mesh->device, mesh->settings.timeout);
  dmuon_backend_set_delay(mesh->device, mesh->settings.message_delay);
  dmuon_bootstrap_set_progress(mesh->bootstrap, progress_device, mesh->device);
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_mesh_choose_transport(DMuonMesh mesh) {
  const int is_asked = dmuon_backend_wants_staged(mesh->settings.device);
  dmuon_transport_choice choice = {.reason =
                                       is_asked ? DMUON_TRANSPORT_ASKED : DMUON_TRANSPORT_OWN};
  dmuon_text text;
  const char *words = NULL;
  if (mesh->facts)
    choice = dmuon_transport_choose(mesh->size, mesh->facts, mesh->sizes, mesh->rank_at, is_asked);
  dmuon_memory_release(&mesh->transport);
  if (choice.reason == DMUON_TRANSPORT_OWN) return DMUON_SUCCESS;
  dmuon_text_init(&text, &mesh->context.memory);
  dmuon_transport_explain(&choice, mesh->size, mesh->facts, mesh->missing_why, &text);
  DMuonErrorCode code = dmuon_text_finish(&text, &words);
  if (!code) code = dmuon_memory_strdup(&mesh->context.memory, words, &mesh->transport);
  dmuon_text_free(&text);
  DMUON_TRY(code);
  return DMUON_SUCCESS;
}

const DMuonCommOps *dmuon_mesh_comm_ops(DMuonMesh mesh) {
  return mesh->transport ? &dmuon_staged_comm_ops : dmuon_backend_comm_ops(mesh->device);
}

void dmuon_mesh_forget_transport(DMuonMesh mesh) {
  dmuon_memory_release(&mesh->transport);
  dmuon_memory_release(&mesh->facts);
}
