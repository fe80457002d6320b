/* A machine as bytes: version, the two texts, kinds (each with its length), nodes as runs.
 *
 * Numbers are of variable length (seven bits a byte, the least first), PCI addresses packed into
 * four of them; NVLink rates are stored once each and the matrix as runs of equal ones, half of it
 * where it is symmetric. The bytes themselves are written and read through topo/bytes.h; merging is
 * in topo/summary_merge.c. */
#include "topo/summary.h"

#include <math.h>
#include <string.h>

#include "topo/bytes.h"
#include "topo/pci.h"

/* ---- one kind -------------------------------------------------------------------------------- */

static void put_name(dmuon_writer *w, const char *name) {
  dmuon_pci pci;
  if (dmuon_pci_parse(name, &pci)) {
    dmuon_put(w, 0);
    dmuon_put(w, pci.domain);
    dmuon_put(w, pci.bus);
    dmuon_put(w, (uint64_t)pci.device << 4 | pci.function);
  } else {
    dmuon_put(w, 1 + strlen(name));
    dmuon_put_bytes(w, name, (int64_t)strlen(name));
  }
}

static void get_name(dmuon_reader *r, char name[24]) {
  uint64_t length = dmuon_get(r, 24);
  if (length > 0) {
    dmuon_get_chars(r, name, length - 1);
    return;
  }
  dmuon_pci pci = {.domain = (uint32_t)dmuon_get(r, UINT32_MAX)};
  pci.bus = (uint8_t)dmuon_get(r, 255);
  uint64_t rest = dmuon_get(r, 4095);
  pci.device = (uint8_t)(rest >> 4);
  pci.function = (uint8_t)(rest & 15);
  dmuon_pci_print(name, pci);
}

/* -1, 0, 1, ... */
static void put_index(dmuon_writer *w, int index) {
  dmuon_put(w, (uint64_t)(index + 1));
}

static int16_t get_index(dmuon_reader *r, int below) {
  return (int16_t)((int)dmuon_get(r, (uint64_t)below) - 1);
}

/* A whole number of MB/s as one, anything else as its eight bytes. */
static void put_rate(dmuon_writer *w, double mbps) {
  if (mbps >= 0 && mbps < 1e15 && mbps == floor(mbps) && !signbit(mbps)) {
    dmuon_put(w, 1 + (uint64_t)mbps);
  } else {
    dmuon_put(w, 0);
    dmuon_put_bytes(w, &mbps, sizeof mbps);
  }
}

static double get_rate(dmuon_reader *r) {
  double mbps = 0;
  uint64_t whole = dmuon_get(r, 1000000000000000u);
  if (whole > 0) return (double)(whole - 1);
  const unsigned char *data = dmuon_get_bytes(r, sizeof mbps);
  if (data) memcpy(&mbps, data, sizeof mbps);
  if (!isfinite(mbps) || mbps < 0) r->bad = 1;
  return mbps;
}

static int is_symmetric(const dmuon_machine_kind *kind) {
  for (int i = 0; i < kind->gpu_count; i++) {
    for (int j = 0; j < i; j++) {
      if (kind->nvlink_mbps[i][j] != kind->nvlink_mbps[j][i]) return 0;
    }
  }
  return 1;
}

/* The entry after (*i, *j) in the order of the bytes: rows, without the diagonal, only what is
 * right of it when symmetric. Begins after (0, 0); 0 at the end. */
static int next_entry(int n, int symmetric, int *i, int *j) {
  do {
    if (++*j >= n) {
      if (++*i >= n) return 0;
      *j = symmetric ? *i : 0;
    }
  } while (*i == *j);
  return *i < n;
}

/* Each stretch of equal rates: the place of the rate in the list of those seen so far (a new one is
 * written out), and how many entries. */
static void put_links(dmuon_writer *w, const dmuon_machine_kind *kind) {
  float seen[DMUON_NODE_GPUS * DMUON_NODE_GPUS];
  int count = 0, n = kind->gpu_count, symmetric = is_symmetric(kind), i = 0, j = 0;
  dmuon_put(w, (uint64_t)symmetric);
  int more = next_entry(n, symmetric, &i, &j);
  while (more) {
    float rate = kind->nvlink_mbps[i][j];
    int which = 0;
    uint64_t length = 0;
    while (which < count && seen[which] != rate) which++;
    do {
      length++;
      more = next_entry(n, symmetric, &i, &j);
    } while (more && kind->nvlink_mbps[i][j] == rate);
    dmuon_put(w, (uint64_t)which);
    if (which == count) {
      seen[count++] = rate;
      put_rate(w, rate);
    }
    dmuon_put(w, length);
  }
}

static void get_links(dmuon_reader *r, dmuon_machine_kind *kind) {
  float seen[DMUON_NODE_GPUS * DMUON_NODE_GPUS];
  int count = 0, n = kind->gpu_count, i = 0, j = 0;
  int symmetric = (int)dmuon_get(r, 1);
  int more = next_entry(n, symmetric, &i, &j);
  while (more && !r->bad) {
    uint64_t which = dmuon_get(r, (uint64_t)count);
    if (which == (uint64_t)count) seen[count++] = (float)get_rate(r);
    uint64_t length = dmuon_get(r, DMUON_NODE_GPUS * DMUON_NODE_GPUS);
    if (length == 0) r->bad = 1;
    for (; length > 0 && more && !r->bad; length--) {
      kind->nvlink_mbps[i][j] = seen[which];
      if (symmetric) kind->nvlink_mbps[j][i] = seen[which];
      more = next_entry(n, symmetric, &i, &j);
    }
    if (length > 0) r->bad = 1;
  }
}

static void put_kind(dmuon_writer *w, const dmuon_machine_kind *kind) {
  dmuon_put(w, (uint64_t)kind->packages);
  dmuon_put(w, (uint64_t)kind->numa_nodes);
  dmuon_put(w, (uint64_t)kind->cores);
  dmuon_put(w, (uint64_t)kind->port_count);
  dmuon_put(w, (uint64_t)kind->gpu_count);
  for (int i = 0; i < kind->port_count; i++) {
    put_name(w, kind->ports[i].name);
    put_index(w, kind->ports[i].numa);
    put_index(w, kind->ports[i].package);
    put_rate(w, kind->ports[i].mbps);
  }
  for (int i = 0; i < kind->gpu_count; i++) {
    put_name(w, kind->gpus[i].name);
    put_index(w, kind->gpus[i].numa);
    put_index(w, kind->gpus[i].package);
    put_index(w, kind->gpus[i].port);
  }
  put_links(w, kind);
}

static void get_kind(dmuon_reader *r, dmuon_machine_kind *kind) {
  *kind = (dmuon_machine_kind){0};
  kind->packages = (int)dmuon_get(r, INT32_MAX);
  kind->numa_nodes = (int)dmuon_get(r, INT32_MAX);
  kind->cores = (int)dmuon_get(r, INT32_MAX);
  kind->port_count = (int)dmuon_get(r, DMUON_NODE_PORTS);
  kind->gpu_count = (int)dmuon_get(r, DMUON_NODE_GPUS);
  for (int i = 0; i < kind->port_count && !r->bad; i++) {
    get_name(r, kind->ports[i].name);
    kind->ports[i].numa = get_index(r, INT16_MAX);
    kind->ports[i].package = get_index(r, INT16_MAX);
    kind->ports[i].mbps = get_rate(r);
  }
  for (int i = 0; i < kind->gpu_count && !r->bad; i++) {
    get_name(r, kind->gpus[i].name);
    kind->gpus[i].numa = get_index(r, INT16_MAX);
    kind->gpus[i].package = get_index(r, INT16_MAX);
    kind->gpus[i].port = get_index(r, kind->port_count);
  }
  get_links(r, kind);
}

/* ---- the machine ----------------------------------------------------------------------------- */

DMuonErrorCode dmuon_summary_encode(dmuon_memory *memory, const dmuon_machine *machine, void **data,
                                    int64_t *bytes) {
  dmuon_writer w = {.memory = memory}, one = {.memory = memory};
  dmuon_put(&w, DMUON_SUMMARY_VERSION);
  dmuon_put_text(&w, machine->source);
  dmuon_put_text(&w, machine->lost);
  dmuon_put(&w, (uint64_t)machine->kind_count);
  for (int k = 0; k < machine->kind_count; k++) {
    one.length = 0;
    put_kind(&one, &machine->kinds[k]);
    dmuon_put(&w, (uint64_t)one.length);
    dmuon_put_bytes(&w, one.data, one.length);
  }
  if (one.code) w.code = one.code;
  dmuon_memory_free(one.data);
  dmuon_runs runs = {.out = &w};
  for (int n = 0; n < machine->node_count; n++) {
    dmuon_put_run(&runs, (dmuon_run){1, machine->nodes[n].kind, machine->nodes[n].fabric});
  }
  dmuon_end_runs(&runs);
  return dmuon_writer_finish(&w, data, bytes);
}

/* Nodes refer to kinds by number here, equal or not: the machine again as it was. */
static DMuonErrorCode decode_nodes(dmuon_memory *memory, dmuon_reader *r, dmuon_machine *machine) {
  dmuon_run run;
  while (dmuon_get_run(r, machine->kind_count, &run)) {
    int64_t count = machine->node_count + run.count;
    if (count > machine->node_room) {
      int64_t want = machine->node_room > 0 ? machine->node_room : 1;
      while (want < count) want *= 2;
      DMUON_TRY(dmuon_memory_resize(memory, &machine->nodes, machine->node_room, want,
                                    sizeof *machine->nodes));
      machine->node_room = (int)want;
    }
    for (int64_t i = 0; i < run.count; i++) {
      machine->nodes[machine->node_count++] = (dmuon_machine_node){run.kind, run.fabric};
    }
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode decode(dmuon_memory *memory, dmuon_reader *r, dmuon_machine *machine) {
  DMUON_TRY(dmuon_get_head(r, machine->source, machine->lost));
  uint64_t kinds = dmuon_get(r, DMUON_MACHINE_NODES);
  if (kinds > (uint64_t)(r->length - r->at)) r->bad = 1; /* each has a byte at least */
  if (!r->bad && kinds > 0) {
    DMUON_TRY(dmuon_memory_alloc(memory, (int64_t)kinds, sizeof *machine->kinds, &machine->kinds));
    machine->kind_room = (int)kinds;
  }
  for (uint64_t k = 0; k < kinds && !r->bad; k++) {
    uint64_t length = dmuon_get(r, INT32_MAX);
    const unsigned char *data = dmuon_get_bytes(r, length);
    dmuon_reader one = {.data = data, .length = data ? (int64_t)length : 0};
    get_kind(&one, &machine->kinds[machine->kind_count++]);
    if (one.bad || one.at != one.length) r->bad = 1;
  }
  if (!r->bad) DMUON_TRY(decode_nodes(memory, r, machine));
  return dmuon_reader_check(r);
}

DMuonErrorCode dmuon_summary_decode(dmuon_memory *memory, const void *data, int64_t bytes,
                                    dmuon_machine *machine) {
  dmuon_machine found = {0};
  dmuon_reader r = {.data = data, .length = bytes};
  DMuonErrorCode code = decode(memory, &r, &found);
  if (code) {
    dmuon_machine_free(&found);
    return code;
  }
  *machine = found;
  return DMUON_SUCCESS;
}
