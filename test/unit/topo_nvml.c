/* GPUs, NVLinks and fabrics as the driver's management library tells them, from a stand-in for it:
 * switches, direct links, links that are down, racks, and a library that is broken or absent. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* setenv, mkdtemp */
#endif
#include "tap.h"

#include "topo/links.h"
#include "topo/sources.h"

static char library[1024];

typedef struct {
  dmuon_machine_kind kind;
  uint64_t fabric;
  char lost[128];
} picture;

static void look(const char *name, picture *p, int known_gpus) {
  memset(p, 0, sizeof *p);
  p->fabric = 1234;
  p->kind.gpu_count = known_gpus;
  for (int i = 0; i < known_gpus; i++) {
    snprintf(p->kind.gpus[i].name, 24, "0000:%02x:00.0", 0x10 + i);
    p->kind.gpus[i].numa = (int16_t)(i / 4);
    p->kind.gpus[i].port = -1;
  }
  setenv("FAKE_NVML", name, 1);
  dmuon_nvml_read(library, &p->kind, &p->fabric, p->lost, sizeof p->lost);
}

static int all(const dmuon_machine_kind *kind, float mbps) {
  int right = 1;
  for (int i = 0; i < kind->gpu_count; i++) {
    for (int j = 0; j < kind->gpu_count; j++) {
      right &= kind->nvlink_mbps[i][j] == (i == j ? 0 : mbps);
    }
  }
  return right;
}

int main(void) {
  static picture p;
  double mbps = 0;
  const char *top = getenv("abs_top_builddir");
  snprintf(library, sizeof library, "%s/test/unit/.libs/fake_nvml.so", top ? top : ".");
  FILE *there = fopen(library, "r");
  if (!there) return tap_skip_all("no shared objects in this build");
  fclose(there);

  look("hgx", &p, 8);
  tap_ok(p.kind.gpu_count == 8 && p.kind.gpus[7].numa == 1, "HGX: the GPUs are those hwloc saw");
  tap_ok(all(&p.kind, 450000), "HGX: 18 links of 25 GB/s, though the driver calls them 5.0");
  tap_ok(p.fabric == 0 && !p.lost[0], "HGX: a fabric without a name spans no nodes");

  look("hgx", &p, 0);
  tap_ok(p.kind.gpu_count == 8 && all(&p.kind, 450000), "HGX: GPUs that nobody saw before");
  tap_is_string(p.kind.gpus[0].name, "0000:10:00.0", "HGX: by their addresses");
  tap_ok(p.kind.gpus[0].numa == -1 && p.kind.gpus[0].port == -1, "HGX: places are not known");

  look("weak", &p, 8);
  tap_ok(p.kind.nvlink_mbps[3][0] == 400000 && p.kind.nvlink_mbps[0][3] == 400000 &&
             p.kind.nvlink_mbps[0][1] == 450000,
         "links that are down do not count");

  look("cube", &p, 8);
  tap_ok(dmuon_links_find(&p.kind, &mbps) == DMUON_LINKS_CUBE && mbps == 25000,
         "the hybrid cube: direct links");
  tap_is_int((int64_t)p.fabric, 0, "the hybrid cube: no fabric");

  look("rack", &p, 0);
  tap_ok(p.kind.gpu_count == 4 && all(&p.kind, 900000), "a rack: 18 links of 50 GB/s");
  tap_is_string(p.kind.gpus[0].name, "0001:01:00.0", "a rack: GPUs in the order of addresses");
  uint64_t fabric = p.fabric;
  tap_ok(fabric != 0, "a rack: a fabric that spans nodes");
  look("rack", &p, 0);
  tap_ok(p.fabric == fabric, "a rack: the same for each node of it");

  look("split", &p, 0);
  tap_is_int((int64_t)p.fabric, 0, "GPUs of one node in two fabrics: none is the node's");
  tap_contains(p.lost, "several fabrics", "and that is said");

  look("many", &p, 0);
  tap_is_int(p.kind.gpu_count, DMUON_NODE_GPUS, "more GPUs than a node holds are left out");

  look("broken", &p, 2);
  tap_ok(p.kind.gpu_count == 2 && p.fabric == 0, "a library that does not start changes nothing");
  tap_contains(p.lost, "libnvidia-ml", "and is named where there are GPUs");
  snprintf(library, sizeof library, "/no/such/libnvidia-ml.so.1");
  look("hgx", &p, 0);
  tap_ok(p.kind.gpu_count == 0 && !p.lost[0], "no library where there are no GPUs: nothing lost");
  return tap_done();
}
