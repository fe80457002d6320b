/* Keeping a machine: nodes are appended, kinds stored once. Decides nothing about what the machine
 * means. */
#include "topo/machine.h"

#include <string.h>

void dmuon_machine_free(dmuon_machine *machine) {
  if (!machine) return;
  dmuon_memory_release(&machine->kinds);
  dmuon_memory_release(&machine->nodes);
  *machine = (dmuon_machine){0};
}

static int same_gpu(const dmuon_machine_gpu *a, const dmuon_machine_gpu *b) {
  return a->numa == b->numa && a->package == b->package && a->port == b->port &&
         strcmp(a->name, b->name) == 0;
}

static int same_port(const dmuon_machine_port *a, const dmuon_machine_port *b) {
  return a->numa == b->numa && a->package == b->package && a->mbps == b->mbps &&
         strcmp(a->name, b->name) == 0;
}

int dmuon_machine_same_kind(const dmuon_machine_kind *a, const dmuon_machine_kind *b) {
  if (a->packages != b->packages || a->numa_nodes != b->numa_nodes || a->cores != b->cores ||
      a->gpu_count != b->gpu_count || a->port_count != b->port_count) {
    return 0;
  }
  for (int i = 0; i < a->gpu_count; i++) {
    if (!same_gpu(&a->gpus[i], &b->gpus[i])) return 0;
    for (int j = 0; j < a->gpu_count; j++) {
      if (a->nvlink_mbps[i][j] != b->nvlink_mbps[i][j]) return 0;
    }
  }
  for (int i = 0; i < a->port_count; i++) {
    if (!same_port(&a->ports[i], &b->ports[i])) return 0;
  }
  return 1;
}

/* Lists grow by doubling, so that nodes added one by one cost O(nodes). */
static DMuonErrorCode grow(dmuon_memory *memory, void *list, int *room, int64_t count,
                           size_t bytes) {
  int64_t want = *room;
  while (want < count) want = want > 0 ? want * 2 : 1;
  if (want > *room) DMUON_TRY(dmuon_memory_resize(memory, list, *room, want, bytes));
  *room = (int)want;
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_machine_add(dmuon_memory *memory, dmuon_machine *machine,
                                 const dmuon_machine_kind *kind, uint64_t fabric, int64_t count) {
  int which = 0;
  if (count < 0 || count > DMUON_MACHINE_NODES - machine->node_count) {
    DMUON_FAIL(DMUON_ERR_FORMAT, "a machine of %lld nodes; at most %d",
               (long long)machine->node_count + (long long)count, DMUON_MACHINE_NODES);
  }
  if (count == 0) return DMUON_SUCCESS;
  while (which < machine->kind_count && !dmuon_machine_same_kind(&machine->kinds[which], kind)) {
    which++;
  }
  DMUON_TRY(grow(memory, &machine->nodes, &machine->node_room, machine->node_count + count,
                 sizeof *machine->nodes));
  if (which == machine->kind_count) {
    DMUON_TRY(grow(memory, &machine->kinds, &machine->kind_room, machine->kind_count + 1,
                   sizeof *machine->kinds));
    machine->kinds[machine->kind_count++] = *kind;
  }
  for (int64_t i = 0; i < count; i++) {
    machine->nodes[machine->node_count++] = (dmuon_machine_node){.kind = which, .fabric = fabric};
  }
  return DMUON_SUCCESS;
}

void dmuon_machine_join(dmuon_machine_kind *kind, const double to_switch[DMUON_NODE_GPUS]) {
  for (int i = 0; i < kind->gpu_count; i++) {
    for (int j = 0; j < kind->gpu_count; j++) {
      double least = to_switch[i] < to_switch[j] ? to_switch[i] : to_switch[j];
      if (i != j && least > kind->nvlink_mbps[i][j]) kind->nvlink_mbps[i][j] = (float)least;
    }
  }
}

void dmuon_machine_note(char *text, size_t size, const char *phrase) {
  size_t used = strlen(text), more = strlen(phrase), gap = used ? 2 : 0;
  if (!more || strstr(text, phrase) || used + gap + more + 1 > size) return;
  if (gap) memcpy(text + used, "; ", gap);
  memcpy(text + used + gap, phrase, more + 1);
}
