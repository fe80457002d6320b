/* Summaries: a machine comes back with all its values, costs a few hundred bytes a node, merges in
 * rank order with equal kinds once, and bytes that were cut or changed are refused. */
#include "tap.h"

#include "base/random.h"
#include "topo/describe.h"
#include "topo/summary.h"

static dmuon_memory memory;

static dmuon_machine parse(const char *text) {
  dmuon_machine machine = {0};
  if (dmuon_describe_parse(&memory, text, NULL, NULL, &machine)) {
    tap_ok(0, "%s: %s", text, DMuonErrorGetMessage());
    exit(tap_done());
  }
  return machine;
}

/* A machine of one node whose GPUs have PCI addresses, as DGX-2 has. */
static dmuon_machine sixteen(void) {
  dmuon_machine m = parse("package:2 core:48 gpu:16 nvlink:all@150GB ib:8@100Gb");
  for (int i = 0; i < 16; i++) {
    snprintf(m.kinds->gpus[i].name, sizeof m.kinds->gpus[i].name, "0000:%02x:00.0", 0x34 + 7 * i);
  }
  for (int i = 0; i < 8; i++) {
    snprintf(m.kinds->ports[i].name, sizeof m.kinds->ports[i].name, "mlx5_%d", i);
  }
  return m;
}

static int same(const dmuon_machine *a, const dmuon_machine *b) {
  if (a->node_count != b->node_count || a->kind_count != b->kind_count) return 0;
  if (strcmp(a->source, b->source) || strcmp(a->lost, b->lost)) return 0;
  for (int i = 0; i < a->kind_count; i++) {
    if (!dmuon_machine_same_kind(&a->kinds[i], &b->kinds[i])) return 0;
  }
  for (int i = 0; i < a->node_count; i++) {
    if (a->nodes[i].kind != b->nodes[i].kind || a->nodes[i].fabric != b->nodes[i].fabric) return 0;
  }
  return 1;
}

/* Bytes of a machine, after checking that they give it again. */
static int64_t there_and_back(const char *name, dmuon_machine *machine) {
  void *data = NULL;
  int64_t bytes = 0;
  dmuon_machine again = {0};
  tap_is_int(dmuon_summary_encode(&memory, machine, &data, &bytes), DMUON_SUCCESS, "%s: bytes",
             name);
  tap_is_int(dmuon_summary_decode(&memory, data, bytes, &again), DMUON_SUCCESS, "%s: read", name);
  tap_ok(same(machine, &again), "%s: all values come back", name);
  tap_diag("%s: %lld bytes", name, (long long)bytes);
  dmuon_memory_free(data);
  dmuon_machine_free(&again);
  dmuon_machine_free(machine);
  return bytes;
}

static void round_trips(void) {
  dmuon_machine m = {0};
  tap_ok(there_and_back("no nodes", &m) < 16, "no nodes cost next to nothing");
  m = sixteen();
  tap_ok(there_and_back("sixteen GPUs, eight ports", &m) < 300, "in a few hundred bytes");
  m = parse("gpu:8 nvlink:cube package:2 numa:2 core:40 ib:4@100Gb");
  tap_ok(there_and_back("hybrid cube", &m) < 300, "in a few hundred bytes");
  m = parse("node:1000 gpu:8 nvlink:all ib:8");
  tap_ok(there_and_back("a thousand equal nodes", &m) < 300, "in a few hundred bytes altogether");
  m = parse("node:36 gpu:4 nvlink:all fabric:18 + node:3 gpu:2 + node:1 core:7");
  tap_ok(there_and_back("racks and others", &m) < 400, "in a few hundred bytes altogether");
  m = parse("gpu:3 nvlink:0,1,0.3/2,0,0/0,0.3,0 ib:2@0.3MB");
  dmuon_machine_note(m.lost, sizeof m.lost, "something");
  m.kinds->gpus[1].numa = m.kinds->gpus[1].package = m.kinds->gpus[1].port = -1;
  snprintf(m.kinds->gpus[0].name, 24, "%s", "00000000000000000000000");
  snprintf(m.kinds->gpus[1].name, 24, "%s", "ffffffff:ff:ff.f");
  snprintf(m.kinds->gpus[2].name, 24, "%s", "0000:AB:00.0");
  there_and_back("uneven links, odd names", &m);
}

static void encode(const char *text, void **data, int64_t *bytes) {
  dmuon_machine m = text ? parse(text) : (dmuon_machine){0};
  if (dmuon_summary_encode(&memory, &m, data, bytes)) tap_ok(0, "%s", DMuonErrorGetMessage());
  dmuon_machine_free(&m);
}

/* What texts give one after another, merged as ranks do it: lower half, upper half. */
static void merge_range(const char *const *texts, int count, void **data, int64_t *bytes) {
  if (count == 1) {
    encode(texts[0], data, bytes);
    return;
  }
  void *a = NULL, *b = NULL;
  int64_t a_bytes = 0, b_bytes = 0;
  merge_range(texts, count / 2, &a, &a_bytes);
  merge_range(texts + count / 2, count - count / 2, &b, &b_bytes);
  if (dmuon_summary_merge(&memory, a, a_bytes, b, b_bytes, data, bytes, NULL)) {
    tap_ok(0, "%s", DMuonErrorGetMessage());
    exit(tap_done());
  }
  dmuon_memory_free(a);
  dmuon_memory_free(b);
}

static void merges(void) {
  static const char *const texts[] = {
      "gpu:8 nvlink:all", NULL, "gpu:4", "gpu:8 nvlink:all", NULL, "gpu:4", "gpu:4 ib:1"};
  void *data = NULL;
  int64_t bytes = 0;
  dmuon_machine merged = {0};
  dmuon_machine expected =
      parse("gpu:8 nvlink:all + gpu:4 + gpu:8 nvlink:all + gpu:4 + gpu:4 ib:1");
  merge_range(texts, 7, &data, &bytes);
  tap_is_int(dmuon_summary_decode(&memory, data, bytes, &merged), DMUON_SUCCESS,
             "merged summaries are one");
  tap_is_int(merged.kind_count, 3, "equal kinds are stored once");
  tap_ok(same(&merged, &expected), "nodes stand in the order of the ranks");
  dmuon_machine_free(&merged);
  dmuon_machine_free(&expected);
  dmuon_memory_free(data);
}

static void merge_texts(void) {
  void *a = NULL, *b = NULL, *data = NULL;
  int64_t a_bytes = 0, b_bytes = 0, bytes = 0;
  dmuon_machine m = parse("gpu:1"), n = parse("gpu:1");
  dmuon_machine_note(m.lost, sizeof m.lost, "this");
  dmuon_machine_note(n.lost, sizeof n.lost, "that");
  n.nodes[0].fabric = 0xfedcba9876543210;
  snprintf(n.source, sizeof n.source, "hwloc");
  tap_ok(!dmuon_summary_encode(&memory, &m, &a, &a_bytes) &&
             !dmuon_summary_encode(&memory, &n, &b, &b_bytes) &&
             !dmuon_summary_merge(&memory, a, a_bytes, b, b_bytes, &data, &bytes, NULL),
         "two that differ in what they say");
  dmuon_machine_free(&m);
  dmuon_machine_free(&n);
  tap_is_int(dmuon_summary_decode(&memory, data, bytes, &m), DMUON_SUCCESS, "are merged");
  tap_is_string(m.source, "description; hwloc", "both sources are kept");
  tap_is_string(m.lost, "this; that", "and both losses");
  tap_ok(m.node_count == 2 && m.nodes[0].fabric == 0 && m.nodes[1].fabric == 0xfedcba9876543210,
         "and each node's fabric");
  dmuon_machine_free(&m);
  dmuon_memory_free(a);
  dmuon_memory_free(b);
  dmuon_memory_free(data);
}

/* Every node of its own kind: bytes and time must not grow faster than nodes. */
static void many_kinds(void) {
  enum { NODES = 512 };
  static char text[NODES][64];
  const char *texts[NODES];
  void *data = NULL;
  int64_t bytes = 0;
  for (int i = 0; i < NODES; i++) {
    snprintf(text[i], sizeof text[i], "core:%d gpu:8 nvlink:all ib:8", i + 1);
    texts[i] = text[i];
  }
  dmuon_machine m = {0};
  merge_range(texts, NODES, &data, &bytes);
  tap_ok(bytes < NODES * 300, "a few hundred bytes a node: %lld for %d nodes", (long long)bytes,
         NODES);
  tap_is_int(dmuon_summary_decode(&memory, data, bytes, &m), DMUON_SUCCESS, "and they are read");
  int order = m.node_count == NODES && m.kind_count == NODES;
  for (int i = 0; order && i < NODES; i++) order = m.kinds[m.nodes[i].kind].cores == i + 1;
  tap_ok(order, "in order");
  dmuon_machine_free(&m);
  dmuon_memory_free(data);
}

/* Cut anywhere, or a byte changed: refused, or (a changed value) another valid machine. */
static void damage(void) {
  void *data = NULL, *out = NULL;
  int64_t bytes = 0, out_bytes = 0;
  dmuon_machine m = {0};
  encode("node:4 gpu:4 nvlink:all ib:2 fabric:2 + node:2 gpu:8 nvlink:cube + node:1", &data,
         &bytes);
  int cut = 1, merged = 1, wild = 1, changed = 0;
  for (int64_t n = 0; n < bytes; n++) {
    /* The bytes stand at the end of a block of just their size: memory checkers see an overrun. */
    unsigned char *part = malloc((size_t)n + 1);
    memcpy(part, data, (size_t)n);
    int64_t a_run = dmuon_summary_decode(&memory, part, n, &m) == DMUON_SUCCESS;
    if (a_run) { /* whole runs of nodes may be missing; nothing else */
      cut &= m.node_count < 7 && n > bytes - 40;
      dmuon_machine_free(&m);
    }
    DMuonErrorCode code =
        dmuon_summary_merge(&memory, part, n, data, bytes, &out, &out_bytes, NULL);
    merged &= code == DMUON_ERR_FORMAT || (code == DMUON_SUCCESS && a_run);
    if (!code) dmuon_memory_free(out);
    free(part);
  }
  tap_ok(cut, "bytes that were cut are refused");
  tap_ok(merged, "also by merging");
  for (uint64_t round = 0; round < 20000; round++) {
    unsigned char *copy = malloc((size_t)bytes);
    memcpy(copy, data, (size_t)bytes);
    for (uint64_t c = 0; c <= round % 3; c++) {
      uint64_t pick = dmuon_random_bits(3, round, c);
      copy[(pick >> 8) % (uint64_t)bytes] = (unsigned char)pick;
    }
    DMuonErrorCode code = dmuon_summary_decode(&memory, copy, bytes, &m);
    wild &= code == DMUON_SUCCESS || code == DMUON_ERR_FORMAT;
    changed += code == DMUON_ERR_FORMAT;
    if (!code) dmuon_machine_free(&m);
    code = dmuon_summary_merge(&memory, data, bytes, copy, bytes, &out, &out_bytes, NULL);
    wild &= code == DMUON_SUCCESS || code == DMUON_ERR_FORMAT;
    if (!code) dmuon_memory_free(out);
    free(copy);
  }
  tap_ok(wild && changed > 1000, "changed bytes are read or refused (%d of 20000 refused)",
         changed);
  ((unsigned char *)data)[0] = 9;
  tap_is_int(dmuon_summary_decode(&memory, data, bytes, &m), DMUON_ERR_FORMAT, "another version");
  tap_contains(DMuonErrorGetMessage(), "of version 9; this library reads 1", "is named");
  dmuon_memory_free(data);
}

static void allocation_failures(void) {
  DMuonErrorCode code = DMUON_ERR_MEMORY;
  int kept = 0, tries = 0;
  void *a = NULL, *out = NULL, *bytes_of = NULL;
  int64_t bytes = 0, out_bytes = 0;
  encode("node:4 gpu:4 + node:2 gpu:8 nvlink:cube", &a, &bytes);
  int64_t before = memory.bytes;
  for (; code == DMUON_ERR_MEMORY && tries < 50; tries++) {
    dmuon_machine m = {0};
    memory.fail_at = memory.allocations + 1 + tries;
    code = dmuon_summary_merge(&memory, a, bytes, a, bytes, &out, &out_bytes, NULL);
    if (!code) {
      code = dmuon_summary_decode(&memory, out, out_bytes, &m);
      if (!code) code = dmuon_summary_encode(&memory, &m, &bytes_of, &out_bytes);
      dmuon_memory_release(&out);
    }
    dmuon_machine_free(&m);
    kept |= code && memory.bytes != before;
  }
  memory.fail_at = 0;
  tap_ok(!code && tries > 8 && !kept, "each allocation may fail, and leaves nothing behind");
  dmuon_memory_free(bytes_of);
  dmuon_memory_free(a);
}

int main(void) {
  round_trips();
  merges();
  merge_texts();
  many_kinds();
  damage();
  allocation_failures();
  tap_is_int(memory.bytes, 0, "all memory is given back");
  return tap_done();
}
