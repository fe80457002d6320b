/* One node as hwloc sees it, on this machine or in a file: counts of packages, NUMA nodes and
 * cores; GPUs by the PCI device behind them; network ports, and which is near which GPU by the PCI
 * tree; NVLink from hwloc's distances. The only file that knows hwloc.
 *
 * Plugins that start other runtimes (CUDA, OpenCL, X) are switched off: a library that looks around
 * must not open devices. So is the one that visits every processor, moving the caller's thread:
 * Linux says the same in /sys. So on a live machine GPUs are NVIDIA's PCI devices, or what hwloc's
 * NVML plugin names where it is installed. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L /* O_CLOEXEC */
#endif
#include "topo/bind.h"
#include "topo/pci.h"
#include "topo/sources.h"

#ifndef HAVE_HWLOC

int dmuon_hwloc_present(void) {
  return 0;
}

DMuonErrorCode dmuon_hwloc_read(const char *xml, dmuon_machine_kind *kind, char *lost,
                                size_t size) {
  (void)kind;
  (void)lost;
  (void)size;
  DMUON_FAIL(DMUON_ERR_UNSUPPORTED, "%s cannot be read: built without hwloc",
             xml ? xml : "this node");
}

DMuonErrorCode dmuon_topo_bind(int first_core, int core_count) {
  DMUON_FAIL(DMUON_ERR_UNSUPPORTED, "binding to cores %d to %d: built without hwloc", first_core,
             first_core + core_count - 1);
}

#else

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <hwloc.h>

int dmuon_hwloc_present(void) {
  return 1;
}

/* A GPU or port while the topology is there. */
typedef struct {
  hwloc_obj_t pci; /* NULL: none behind it */
  hwloc_obj_t os;  /* what it was found by; for a GPU without OS device the PCI device */
} device;

typedef struct {
  hwloc_topology_t topology;
  int gpu_count, port_count, left_out; /* left_out: devices beyond what a kind holds */
  device gpus[DMUON_NODE_GPUS], ports[DMUON_NODE_PORTS];
} view;

static hwloc_obj_t pci_behind(hwloc_obj_t object) {
  while (object && object->type != HWLOC_OBJ_PCI_DEVICE) object = object->parent;
  return object;
}

static int is(const char *text, const char *expected) {
  return text && strcmp(text, expected) == 0;
}

/* "cuda0", "nvml12" */
static int named(const char *name, const char *stem) {
  size_t length = strlen(stem);
  return name && strncmp(name, stem, length) == 0 && name[length] >= '0' && name[length] <= '9';
}

/* By name or subtype: the same device is a GPU for one version of hwloc, a co-processor for
 * another. */
static int is_gpu(hwloc_obj_t os) {
  return named(os->name, "cuda") || named(os->name, "nvml") || is(os->subtype, "CUDA") ||
         is(os->subtype, "NVML");
}

static int is_nvidia_gpu(hwloc_obj_t pci) {
  const struct hwloc_pcidev_attr_s *attr = &pci->attr->pcidev;
  return attr->vendor_id == 0x10de && (attr->class_id == 0x0302 || attr->class_id == 0x0300);
}

/* A port all of whose links are known to be down carries nothing. */
static int is_down(hwloc_obj_t os) {
  int known = 0;
  for (int port = 1; port <= 4; port++) {
    char key[24];
    (void)snprintf(key, sizeof key, "Port%dState", port);
    const char *state = hwloc_obj_get_info_by_name(os, key);
    if (!state) continue;
    if (strtol(state, NULL, 10) == 4) return 0; /* active */
    known = 1;
  }
  return known;
}

static int is_port(hwloc_obj_t os) {
  if (is(os->subtype, "Slingshot") || is(os->subtype, "BXI")) return 1;
  return os->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS && !is_down(os);
}

/* cuda3 and nvml3 are one GPU. */
static int is_known(const device *list, int count, device d) {
  for (int i = 0; i < count; i++) {
    if (d.pci ? list[i].pci == d.pci : list[i].os == d.os) return 1;
    if (!d.pci && !list[i].pci && d.os->name && list[i].os->name &&
        is(list[i].os->name + strcspn(list[i].os->name, "0123456789"),
           d.os->name + strcspn(d.os->name, "0123456789"))) {
      return 1;
    }
  }
  return 0;
}

static void find_gpu(view *v, device d) {
  if (is_known(v->gpus, v->gpu_count, d)) return;
  if (v->gpu_count == DMUON_NODE_GPUS) {
    v->left_out++;
  } else {
    v->gpus[v->gpu_count++] = d;
  }
}

static void find_devices(view *v) {
  hwloc_obj_t object = NULL;
  while ((object = hwloc_get_next_osdev(v->topology, object))) {
    device d = {pci_behind(object), object};
    if (is_gpu(object)) find_gpu(v, d);
    if (!is_port(object)) continue;
    if (v->port_count == DMUON_NODE_PORTS) {
      v->left_out++;
    } else {
      v->ports[v->port_count++] = d;
    }
  }
  if (v->gpu_count > 0) return;
  while ((object = hwloc_get_next_pcidev(v->topology, object))) {
    if (is_nvidia_gpu(object)) find_gpu(v, (device){object, object});
  }
}

static dmuon_pci address(const device *d) {
  const struct hwloc_pcidev_attr_s *attr = &d->pci->attr->pcidev;
  return (dmuon_pci){(uint32_t)attr->domain, attr->bus, attr->dev, attr->func};
}

static uint64_t pci_key(const device *d) {
  return d->pci ? dmuon_pci_key(address(d)) : UINT64_MAX;
}

/* By PCI address, in place; equal keys (no address) keep the order they were found in. */
static void sort_devices(device *list, int count) {
  for (int i = 1; i < count; i++) {
    device d = list[i];
    int at = i;
    for (; at > 0 && pci_key(&list[at - 1]) > pci_key(&d); at--) list[at] = list[at - 1];
    list[at] = d;
  }
}

/* NUMA nodes with processors: the memory of GPUs may show as nodes of its own. */
static int numa_index(hwloc_topology_t topology, hwloc_obj_t wanted) {
  int index = 0;
  hwloc_obj_t object = NULL;
  while ((object = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, object))) {
    if (object == wanted) return index;
    if (object->cpuset && !hwloc_bitmap_iszero(object->cpuset)) index++;
  }
  return wanted ? -1 : index;
}

/* Where a device hangs: its package, and its NUMA node if there is only one to name. */
static void place(view *v, hwloc_obj_t object, int16_t *package, int16_t *numa) {
  hwloc_obj_t local = hwloc_get_non_io_ancestor_obj(v->topology, object);
  hwloc_obj_t above = local;
  *package = *numa = -1;
  while (above && above->type != HWLOC_OBJ_PACKAGE) above = above->parent;
  if (above) *package = (int16_t)above->logical_index;
  if (!above && hwloc_get_nbobjs_by_type(v->topology, HWLOC_OBJ_PACKAGE) == 1) *package = 0;
  if (!local || !local->cpuset) return;
  hwloc_obj_t node = NULL;
  int found = 0;
  while ((node = hwloc_get_next_obj_by_type(v->topology, HWLOC_OBJ_NUMANODE, node))) {
    if (!node->cpuset || hwloc_bitmap_iszero(node->cpuset)) continue;
    if (!hwloc_bitmap_intersects(node->cpuset, local->cpuset)) continue;
    *numa = (int16_t)(found++ ? -1 : numa_index(v->topology, node));
  }
}

static int levels(hwloc_obj_t object) {
  int count = 0;
  for (; object; object = object->parent) count++;
  return count;
}

/* How deep in the tree the two part: the deeper, the nearer. */
static int shared_levels(hwloc_obj_t a, hwloc_obj_t b) {
  int deep = levels(a), other = levels(b);
  for (; deep > other; deep--) a = a->parent;
  for (; other > deep; other--) b = b->parent;
  for (; a != b; deep--) {
    a = a->parent;
    b = b->parent;
  }
  return deep;
}

/* Of equally near ports the one that serves fewest GPUs so far. */
static void choose_ports(view *v, dmuon_machine_kind *kind) {
  int serves[DMUON_NODE_PORTS] = {0};
  for (int g = 0; g < v->gpu_count; g++) {
    int best = -1, near = 0;
    for (int p = 0; p < v->port_count; p++) {
      int shared = shared_levels(v->gpus[g].os, v->ports[p].os);
      if (best >= 0 && (shared < near || (shared == near && serves[p] >= serves[best]))) continue;
      best = p;
      near = shared;
    }
    kind->gpus[g].port = (int16_t)best;
    if (best >= 0) serves[best]++;
  }
}

static void fill_devices(view *v, dmuon_machine_kind *kind) {
  kind->gpu_count = v->gpu_count;
  kind->port_count = v->port_count;
  for (int i = 0; i < v->gpu_count; i++) {
    dmuon_machine_gpu *gpu = &kind->gpus[i];
    place(v, v->gpus[i].os, &gpu->package, &gpu->numa);
    if (v->gpus[i].pci) {
      dmuon_pci_print(gpu->name, address(&v->gpus[i]));
    } else {
      (void)snprintf(gpu->name, sizeof gpu->name, "gpu%d", i);
    }
  }
  for (int i = 0; i < v->port_count; i++) {
    dmuon_machine_port *port = &kind->ports[i];
    const char *name = v->ports[i].os->name;
    place(v, v->ports[i].os, &port->package, &port->numa);
    (void)snprintf(port->name, sizeof port->name, "%s", name ? name : "port");
  }
  choose_ports(v, kind);
}

/* Which GPU an object of the distances is: -1 none, -2 a switch. */
static int linked(const view *v, hwloc_obj_t object) {
  hwloc_obj_t pci = object ? pci_behind(object) : NULL;
  if (object && is(object->subtype, "NVSwitch")) return -2;
  for (int i = 0; i < v->gpu_count; i++) {
    if (object && (v->gpus[i].os == object || (pci && v->gpus[i].pci == pci))) return i;
  }
  return -1;
}

/* Bandwidths as hwloc measured them, from one object to another. Those into switches are added up:
 * each switch joins all GPUs that have links to it. (hwloc's own transformations do the same where
 * there are switches, and lose the direct links where there are none.) */
static void fill_links(view *v, dmuon_machine_kind *kind) {
  struct hwloc_distances_s *distances = NULL;
  unsigned count = 1;
  double to_switch[DMUON_NODE_GPUS] = {0};
  if (hwloc_distances_get_by_name(v->topology, "NVLinkBandwidth", &count, &distances, 0) != 0 ||
      count < 1 || !distances) {
    return;
  }
  for (unsigned i = 0; i < distances->nbobjs; i++) {
    int from = linked(v, distances->objs[i]);
    if (from < 0) continue;
    for (unsigned j = 0; j < distances->nbobjs; j++) {
      int to = linked(v, distances->objs[j]);
      double mbps = (double)distances->values[(size_t)i * distances->nbobjs + j];
      if (to == -2) to_switch[from] += mbps;
      if (to >= 0 && to != from) kind->nvlink_mbps[from][to] = (float)mbps;
    }
  }
  hwloc_distances_release(v->topology, distances);
  dmuon_machine_join(kind, to_switch);
}

/* Cores that processes may use: binding counts those. */
static int count_cores(hwloc_topology_t topology) {
  hwloc_const_cpuset_t allowed = hwloc_topology_get_allowed_cpuset(topology);
  hwloc_obj_type_t type = HWLOC_OBJ_CORE;
  int count = 0;
  if (hwloc_get_nbobjs_by_type(topology, type) <= 0) type = HWLOC_OBJ_PU;
  for (hwloc_obj_t o = NULL; (o = hwloc_get_next_obj_by_type(topology, type, o));)
    count += hwloc_bitmap_intersects(o->cpuset, allowed);
  return count;
}

static void fill_kind(view *v, dmuon_machine_kind *kind) {
  int packages = hwloc_get_nbobjs_by_type(v->topology, HWLOC_OBJ_PACKAGE);
  kind->packages = packages > 0 ? packages : 0;
  kind->cores = count_cores(v->topology);
  kind->numa_nodes = numa_index(v->topology, NULL);
  find_devices(v);
  sort_devices(v->gpus, v->gpu_count);
  fill_devices(v, kind);
  fill_links(v, kind);
}

/* A file that is not there is told from one that is not hwloc's. */
static DMuonErrorCode look_at_file(const char *path) {
  struct stat what;
  int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO has no writer */
  if (file < 0) {
    DMUON_FAIL(DMUON_ERR_FILE, "the topology file %s cannot be read: %s", path, strerror(errno));
  }
  int bad = fstat(file, &what) != 0 || !S_ISREG(what.st_mode);
  (void)close(file);
  if (bad) DMUON_FAIL(DMUON_ERR_FILE, "the topology %s is not a regular file", path);
  return DMUON_SUCCESS;
}

/* whole: the node with its devices; else what this process may use of its processors. */
static DMuonErrorCode load(const char *xml, hwloc_topology_t topology, int whole) {
  static const char *const off[] = {"cuda", "opencl", "gl", "levelzero", "rsmi", "x86"};
  for (size_t i = 0; i < sizeof off / sizeof off[0]; i++) {
    (void)hwloc_topology_set_components(topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, off[i]);
  }
  int bad = xml && hwloc_topology_set_xml(topology, xml) != 0;
  if (!bad && whole) {
    (void)hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_ALL);
    bad = hwloc_topology_set_flags(topology, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED) != 0;
  }
  if (!bad && hwloc_topology_load(topology) == 0) return DMUON_SUCCESS;
  if (xml) {
    DMUON_FAIL(DMUON_ERR_FORMAT,
               "the topology file %s is not hwloc's XML of version 2 (as lstopo writes it)", xml);
  }
  DMUON_FAIL(DMUON_ERR_UNSUPPORTED, "hwloc cannot look at this node: %s", strerror(errno));
}

DMuonErrorCode dmuon_hwloc_read(const char *xml, dmuon_machine_kind *kind, char *lost,
                                size_t size) {
  view v = {0};
  if (xml) DMUON_TRY(look_at_file(xml));
  if (hwloc_topology_init(&v.topology) != 0) {
    DMUON_FAIL(DMUON_ERR_MEMORY, "hwloc cannot begin: %s", strerror(errno));
  }
  DMuonErrorCode code = load(xml, v.topology, 1);
  if (!code) {
    fill_kind(&v, kind);
    if (v.left_out > 0) dmuon_machine_note(lost, size, "devices beyond 32 of a kind in a node");
  }
  hwloc_topology_destroy(v.topology);
  return code;
}

/* ---- binding --------------------------------------------------------------------------------- */

static DMuonErrorCode bind_cores(hwloc_topology_t topology, hwloc_bitmap_t set, int first,
                                 int count) {
  int cores = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
  hwloc_obj_type_t type = cores > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
  if (cores <= 0) cores = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PU);
  if (first < 0 || count < 1 || first > cores - count) {
    DMUON_FAIL(DMUON_ERR_SETUP, "binding to cores %d to %d: this process may use %d cores", first,
               first + count - 1, cores);
  }
  for (int i = first; i < first + count; i++) {
    hwloc_obj_t core = hwloc_get_obj_by_type(topology, type, (unsigned)i);
    if (core && core->cpuset) (void)hwloc_bitmap_or(set, set, core->cpuset);
  }
  if (hwloc_set_cpubind(topology, set, HWLOC_CPUBIND_PROCESS) != 0) {
    DMUON_FAIL(DMUON_ERR_SETUP, "binding to cores %d to %d: refused (%s)", first, first + count - 1,
               strerror(errno));
  }
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_topo_bind(int first_core, int core_count) {
  hwloc_topology_t topology;
  hwloc_bitmap_t set = hwloc_bitmap_alloc();
  if (!set || hwloc_topology_init(&topology) != 0) {
    hwloc_bitmap_free(set);
    DMUON_FAIL(DMUON_ERR_MEMORY, "hwloc cannot begin: %s", strerror(errno));
  }
  DMuonErrorCode code = load(NULL, topology, 0);
  if (!code) code = bind_cores(topology, set, first_core, core_count);
  hwloc_topology_destroy(topology);
  hwloc_bitmap_free(set);
  return code;
}

#endif
