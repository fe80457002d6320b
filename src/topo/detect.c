/* One node's picture from the places there are: hwloc first, then what the driver and Linux add.
 * Decides their order, what counts as lost, and how a user's text and a path are told apart. */
#include "topo/detect.h"

#include <stdio.h>
#include <string.h>

#include "topo/describe.h"
#include "topo/sources.h"

/* Looks at this node; what is lost goes into the machine. */
static void look(dmuon_machine_kind *kind, uint64_t *fabric, dmuon_machine *machine) {
  char *lost = machine->lost;
  size_t size = sizeof machine->lost;
  int hwloc = dmuon_hwloc_present() && dmuon_hwloc_read(NULL, kind, lost, size) == DMUON_SUCCESS;
  if (!hwloc) {
    *kind = (dmuon_machine_kind){0};
    dmuon_machine_note(lost, size,
                       dmuon_hwloc_present()
                           ? "packages and which port is near which GPU: hwloc fails here"
                           : "packages and which port is near which GPU: built without hwloc");
  }
  dmuon_machine_note(machine->source, sizeof machine->source, hwloc ? "hwloc" : "the system alone");
  dmuon_nvml_read("libnvidia-ml.so.1", kind, fabric, lost, size);
  dmuon_sysfs_read("/sys", !hwloc, kind);
  dmuon_arrange_ports(kind);
}

DMuonErrorCode dmuon_detect_node(dmuon_memory *memory, dmuon_machine *machine) {
  dmuon_machine found = {0};
  dmuon_machine_kind *kind = NULL;
  uint64_t fabric = 0;
  DMUON_TRY(dmuon_memory_alloc(memory, 1, sizeof *kind, &kind));
  look(kind, &fabric, &found);
  DMuonErrorCode code = dmuon_machine_add(memory, &found, kind, fabric, 1);
  dmuon_memory_free(kind);
  if (code) {
    dmuon_machine_free(&found);
    return code;
  }
  *machine = found;
  return DMUON_SUCCESS;
}

static DMuonErrorCode read_kind(void *lost, const char *path, dmuon_machine_kind *kind) {
  DMUON_TRY(dmuon_hwloc_read(path, kind, lost, sizeof((dmuon_machine *)0)->lost));
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_detect_file(dmuon_memory *memory, const char *path, dmuon_machine *machine) {
  dmuon_machine found = {0};
  dmuon_machine_kind *kind = NULL;
  const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
  (void)snprintf(found.source, sizeof found.source, "hwloc XML %.50s", name);
  DMUON_TRY(dmuon_memory_alloc(memory, 1, sizeof *kind, &kind));
  DMuonErrorCode code = read_kind(found.lost, path, kind);
  if (!code) code = dmuon_machine_add(memory, &found, kind, 0, 1);
  dmuon_memory_free(kind);
  if (code) {
    dmuon_machine_free(&found);
    return code;
  }
  *machine = found;
  return DMUON_SUCCESS;
}

/* A description has a word and a colon before any slash; "./a:b" is a path. */
static int is_description(const char *given) {
  const char *colon = strchr(given, ':'), *slash = strchr(given, '/');
  return (colon && (!slash || colon < slash)) || strspn(given, " \t\n+") == strlen(given);
}

DMuonErrorCode dmuon_detect_given(dmuon_memory *memory, const char *given, dmuon_machine *machine) {
  char lost[sizeof machine->lost] = "";
  if (!given) DMUON_FAIL(DMUON_ERR_FORMAT, "topology: neither a file nor a description");
  if (!is_description(given)) return dmuon_detect_file(memory, given, machine);
  DMUON_TRY(dmuon_describe_parse(memory, given, read_kind, lost, machine));
  dmuon_machine_note(machine->lost, sizeof machine->lost, lost);
  return DMUON_SUCCESS;
}
