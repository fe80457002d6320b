/* Machines into words: the short text that topo/describe.c reads, and a few lines for people. */
#include <stdio.h>
#include <string.h>

#include "topo/describe.h"
#include "topo/links.h"

const char *dmuon_describe_rate(char *buffer, double mbps) {
  if (mbps >= 1000) {
    (void)snprintf(buffer, 32, "%.4g GB/s", mbps / 1000);
  } else if (mbps > 0) {
    (void)snprintf(buffer, 32, "%.4g MB/s", mbps);
  } else {
    (void)snprintf(buffer, 32, "?");
  }
  return buffer;
}

/* A rate as the reader takes it. */
static void add_rate(dmuon_text *text, double mbps) {
  int64_t whole = mbps < 1e15 ? (int64_t)mbps : 0;
  if ((double)whole == mbps && whole > 0 && whole % 1000 == 0) {
    dmuon_text_add(text, "%lldGB", (long long)(whole / 1000));
  } else {
    dmuon_text_add(text, "%.9gMB", mbps);
  }
}

static void add_links(dmuon_text *text, const dmuon_machine_kind *kind) {
  double mbps = 0;
  int pattern = dmuon_links_find(kind, &mbps);
  if (pattern == DMUON_LINKS_NONE) return;
  if (pattern < DMUON_LINKS_PATTERNS) {
    dmuon_text_add(text, " nvlink:%s@", dmuon_links_name(pattern));
    add_rate(text, mbps);
    return;
  }
  dmuon_text_add(text, " nvlink:");
  for (int i = 0; i < kind->gpu_count; i++) {
    for (int j = 0; j < kind->gpu_count; j++) {
      dmuon_text_add(text, "%s%.9g", j ? "," : i ? "/" : "", (double)kind->nvlink_mbps[i][j]);
    }
  }
}

static void add_ports(dmuon_text *text, const dmuon_machine_kind *kind) {
  if (kind->port_count == 0) return;
  double mbps = kind->ports[0].mbps;
  for (int i = 1; i < kind->port_count; i++) {
    if (kind->ports[i].mbps != mbps) mbps = 0;
  }
  dmuon_text_add(text, " ib:%d", kind->port_count);
  if (mbps > 0) {
    dmuon_text_add(text, "@");
    add_rate(text, mbps);
  }
}

/* Nodes from begin on that one group of words can say. *share: how many share a fabric, or 0. */
static int group_end(const dmuon_machine *machine, int begin, int *share) {
  const dmuon_machine_node *nodes = machine->nodes;
  int end = begin;
  *share = 0;
  while (end < machine->node_count && nodes[end].kind == nodes[begin].kind) {
    int run = end;
    while (run < machine->node_count && nodes[run].kind == nodes[end].kind &&
           nodes[run].fabric == nodes[end].fabric) {
      run++;
    }
    int length = run - end;
    if (end > begin && (nodes[end].fabric == 0 || *share == 0 || length > *share)) break;
    if (end == begin && nodes[end].fabric) *share = length;
    end = run;
    if (*share > 0 && length < *share) break; /* a rack that is not full ends the group */
  }
  return end;
}

static void add_group(dmuon_text *text, const dmuon_machine *machine, int begin, int end,
                      int share) {
  const dmuon_machine_kind *kind = &machine->kinds[machine->nodes[begin].kind];
  dmuon_text_add(text, "node:%d", end - begin);
  if (kind->packages > 1) dmuon_text_add(text, " package:%d", kind->packages);
  if (kind->numa_nodes > 0 && kind->numa_nodes != (kind->packages > 0 ? kind->packages : 1)) {
    dmuon_text_add(text, " numa:%d", kind->numa_nodes);
  }
  if (kind->cores > 0) dmuon_text_add(text, " core:%d", kind->cores);
  if (kind->gpu_count > 0) dmuon_text_add(text, " gpu:%d", kind->gpu_count);
  add_links(text, kind);
  add_ports(text, kind);
  if (share > 0) dmuon_text_add(text, " fabric:%d", share);
}

void dmuon_describe_short(dmuon_text *text, const dmuon_machine *machine) {
  for (int begin = 0, end, share; begin < machine->node_count; begin = end) {
    end = group_end(machine, begin, &share);
    if (begin > 0) dmuon_text_add(text, " + ");
    add_group(text, machine, begin, end, share);
  }
}

/* The GPUs of a node, one line for each NUMA node, with the port each is near. */
static void add_gpus(dmuon_text *text, const char *indent, const dmuon_machine_kind *kind) {
  for (int numa = -1; numa < 1024; numa++) {
    int shown = 0;
    for (int i = 0; i < kind->gpu_count; i++) {
      const dmuon_machine_gpu *gpu = &kind->gpus[i];
      if (gpu->numa != numa) continue;
      if (shown++ == 0) {
        if (numa < 0)
          dmuon_text_add(text, "%s  GPUs", indent);
        else
          dmuon_text_add(text, "%s  GPUs of NUMA node %d", indent, numa);
      }
      dmuon_text_add(text, "%s %d %s", shown > 1 ? "," : ":", i, gpu->name);
      if (gpu->port >= 0) dmuon_text_add(text, " near %s", kind->ports[gpu->port].name);
    }
    if (shown) dmuon_text_add(text, "\n");
  }
}

void dmuon_describe_print(dmuon_text *text, const char *indent, const dmuon_machine *machine) {
  int shown = 0;
  dmuon_text_add(text, "%smachine: %d node%s, from %s\n", indent, machine->node_count,
                 machine->node_count == 1 ? "" : "s", machine->source);
  for (int begin = 0, end, share; begin < machine->node_count; begin = end, shown++) {
    end = group_end(machine, begin, &share);
    if (shown == 8) { /* an irregular machine is not listed to its end */
      dmuon_text_add(text, "%s  ... and %d more nodes\n", indent, machine->node_count - begin);
      break;
    }
    dmuon_text_add(text, "%s  ", indent);
    add_group(text, machine, begin, end, share);
    dmuon_text_add(text, "\n");
    add_gpus(text, indent, &machine->kinds[machine->nodes[begin].kind]);
  }
  if (machine->lost[0]) dmuon_text_add(text, "%s  not seen: %s\n", indent, machine->lost);
}
