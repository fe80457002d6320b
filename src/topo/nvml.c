/* What NVIDIA's management library adds to a node: its GPUs, the NVLinks between them and into
 * switches, and which fabric of several nodes they belong to.
 *
 * The library comes with the driver, so it is opened at run time, and it need not be there. Its
 * header is not part of a CUDA toolkit either: the few functions used are declared here, with the
 * layout of their structs as their versions fix it. Each function may be missing (old drivers). */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include <dlfcn.h>
#include <string.h>

#include "base/hash.h"
#include "topo/pci.h"
#include "topo/sources.h"

typedef struct nvml_device *device;

typedef struct {
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
} pci_info;

/* The first version has no field in front of the uuid; the second has, and one more behind. */
typedef struct {
  unsigned char uuid[16];
  int status;
  unsigned clique;
  unsigned char state;
} fabric_info;

typedef struct {
  unsigned version;
  unsigned char uuid[16];
  int status;
  unsigned clique;
  unsigned char state;
  unsigned health;
} fabric_info_2;

enum {
  MAX_LINKS = 36,
  SUCCESS = 0,
  INVALID_ARGUMENT = 2,
  REMOTE_GPU = 0,
  REMOTE_SWITCH = 2,
  HOPPER = 9,
  FABRIC_COMPLETED = 3
};

typedef struct {
  void *handle;
  int (*init)(void);
  int (*shutdown)(void);
  int (*count)(unsigned *count);
  int (*by_index)(unsigned index, device *device);
  int (*pci)(device, pci_info *info);
  int (*architecture)(device, unsigned *architecture);
  int (*link_state)(device, unsigned link, int *active);
  int (*link_version)(device, unsigned link, unsigned *version);
  int (*link_remote)(device, unsigned link, pci_info *info);
  int (*link_remote_type)(device, unsigned link, int *type);
  int (*fabric)(device, fabric_info *info);
  int (*fabric_2)(device, fabric_info_2 *info);
} nvml;

/* A function pointer out of dlsym, as POSIX has it. */
static void find(nvml *library, void *slot, const char *name) {
  void *symbol = dlsym(library->handle, name);
  memcpy(slot, &symbol, sizeof symbol);
}

/* 1: open and started. */
static int begin(nvml *library, const char *name) {
  *library = (nvml){.handle = dlopen(name, RTLD_NOW | RTLD_LOCAL)};
  if (!library->handle) return 0;
  find(library, &library->init, "nvmlInit_v2");
  find(library, &library->shutdown, "nvmlShutdown");
  find(library, &library->count, "nvmlDeviceGetCount_v2");
  find(library, &library->by_index, "nvmlDeviceGetHandleByIndex_v2");
  find(library, &library->pci, "nvmlDeviceGetPciInfo_v3");
  find(library, &library->architecture, "nvmlDeviceGetArchitecture");
  find(library, &library->link_state, "nvmlDeviceGetNvLinkState");
  find(library, &library->link_version, "nvmlDeviceGetNvLinkVersion");
  find(library, &library->link_remote, "nvmlDeviceGetNvLinkRemotePciInfo_v2");
  find(library, &library->link_remote_type, "nvmlDeviceGetNvLinkRemoteDeviceType");
  find(library, &library->fabric, "nvmlDeviceGetGpuFabricInfo");
  find(library, &library->fabric_2, "nvmlDeviceGetGpuFabricInfoV");
  if (library->init && library->count && library->by_index && library->pci &&
      library->init() == SUCCESS) {
    return 1;
  }
  (void)dlclose(library->handle);
  library->handle = NULL;
  return 0;
}

static void end(nvml *library) {
  if (library->shutdown) (void)library->shutdown();
  (void)dlclose(library->handle);
}

/* GPUs are function 0 of their device. */
static void name_of(char name[24], const pci_info *info) {
  dmuon_pci_print(name, (dmuon_pci){.domain = info->domain,
                                    .bus = (uint8_t)info->bus,
                                    .device = (uint8_t)info->device});
}

/* The GPU of this address in kind, or -1. */
static int find_gpu(const dmuon_machine_kind *kind, const pci_info *info) {
  char name[24];
  name_of(name, info);
  for (int i = 0; i < kind->gpu_count; i++) {
    if (strcmp(kind->gpus[i].name, name) == 0) return i;
  }
  return -1;
}

static void add_gpu(dmuon_machine_kind *kind, const pci_info *info) {
  if (find_gpu(kind, info) >= 0 || kind->gpu_count == DMUON_NODE_GPUS) return;
  dmuon_machine_gpu *gpu = &kind->gpus[kind->gpu_count++];
  *gpu = (dmuon_machine_gpu){.numa = -1, .package = -1, .port = -1};
  name_of(gpu->name, info);
}

/* One link's bandwidth in one direction by its version (1: 1.0, 2: 2.0, 3: 2.2, 4: 3.0, 5: 3.1,
 * 6: 4.0, 7: 5.0). Some drivers call the links of Hopper 5.0; they are 4.0. */
static double link_rate(const nvml *library, device gpu, unsigned link) {
  unsigned version = 0, architecture = 0;
  if (!library->link_version || library->link_version(gpu, link, &version) != SUCCESS) {
    return 25000;
  }
  if (version == 1) return 20000;
  if (version < 7) return 25000;
  if (library->architecture && library->architecture(gpu, &architecture) == SUCCESS &&
      architecture == HOPPER) {
    return 25000;
  }
  return 50000;
}

/* NVSwitches by their PCI ids, for drivers that do not say what is at the other end. */
static int is_switch(const pci_info *info) {
  return info->pci_device_id == 0x1ac210deu || info->pci_device_id == 0x1af110deu ||
         info->pci_device_id == 0x22a310deu;
}

static void read_links(const nvml *library, const dmuon_machine_kind *kind, device gpu, int index,
                       float rates[DMUON_NODE_GPUS][DMUON_NODE_GPUS], double *to_switch) {
  if (!library->link_state) return;
  for (unsigned link = 0; link < MAX_LINKS; link++) {
    int active = 0, type = -1;
    pci_info remote = {0};
    int state = library->link_state(gpu, link, &active);
    if (state == INVALID_ARGUMENT) break; /* past the last one */
    if (state != SUCCESS || !active) continue;
    double rate = link_rate(library, gpu, link);
    if (library->link_remote_type && library->link_remote_type(gpu, link, &type) != SUCCESS) {
      type = -1;
    }
    int known = library->link_remote && library->link_remote(gpu, link, &remote) == SUCCESS;
    int to = known ? find_gpu(kind, &remote) : -1;
    if (type == REMOTE_SWITCH || (type != REMOTE_GPU && known && to < 0 && is_switch(&remote))) {
      *to_switch += rate;
    } else if (to >= 0 && to != index) {
      rates[index][to] += (float)rate;
    }
  }
}

/* A fabric that spans nodes has a uuid (all zero: GPUs joined inside this node alone). */
static uint64_t fabric_of(const unsigned char uuid[16], unsigned clique, int state, int status) {
  static const unsigned char none[16];
  if (state != FABRIC_COMPLETED || status != SUCCESS || memcmp(uuid, none, 16) == 0) return 0;
  uint64_t hash = dmuon_hash_bytes(DMUON_HASH_SEED, uuid, 16);
  hash = dmuon_hash_int(hash, clique);
  return hash ? hash : 1;
}

static uint64_t read_fabric(const nvml *library, device gpu) {
  if (library->fabric_2) {
    fabric_info_2 info = {.version = (unsigned)sizeof info | 2u << 24};
    if (library->fabric_2(gpu, &info) == SUCCESS) {
      return fabric_of(info.uuid, info.clique, info.state, info.status);
    }
  }
  if (library->fabric) {
    fabric_info info = {.state = 0};
    if (library->fabric(gpu, &info) == SUCCESS) {
      return fabric_of(info.uuid, info.clique, info.state, info.status);
    }
  }
  return 0;
}

/* All GPUs of the library in *kind; devices[i] is GPU i's handle, NULL where it has none. */
static int read_gpus(const nvml *library, dmuon_machine_kind *kind, device *devices) {
  unsigned count = 0;
  pci_info info;
  device gpu = NULL;
  if (library->count(&count) != SUCCESS) return 0;
  if (count > 4 * DMUON_NODE_GPUS) count = 4 * DMUON_NODE_GPUS;
  for (int pass = 0; pass < 2; pass++) { /* places may move when GPUs are put in order */
    for (unsigned i = 0; i < count; i++) {
      memset(&info, 0, sizeof info);
      if (library->by_index(i, &gpu) != SUCCESS || library->pci(gpu, &info) != SUCCESS) continue;
      if (pass == 0) {
        add_gpu(kind, &info);
      } else {
        int at = find_gpu(kind, &info);
        if (at >= 0) devices[at] = gpu;
      }
    }
    if (pass == 0) dmuon_arrange_gpus(kind);
  }
  return (int)count;
}

void dmuon_nvml_read(const char *name, dmuon_machine_kind *kind, uint64_t *fabric, char *lost,
                     size_t size) {
  nvml library;
  device devices[DMUON_NODE_GPUS] = {NULL};
  float rates[DMUON_NODE_GPUS][DMUON_NODE_GPUS] = {{0}};
  double to_switch[DMUON_NODE_GPUS] = {0};
  int links = 0, fabrics = 0;
  *fabric = 0;
  if (!begin(&library, name)) {
    if (kind->gpu_count > 0) {
      dmuon_machine_note(lost, size, "NVLink: the driver's libnvidia-ml does not open");
    }
    return;
  }
  if (read_gpus(&library, kind, devices) > 0) {
    for (int i = 0; i < kind->gpu_count; i++) {
      if (!devices[i]) continue;
      read_links(&library, kind, devices[i], i, rates, &to_switch[i]);
      uint64_t found = read_fabric(&library, devices[i]);
      fabrics += found != 0 && found != *fabric;
      if (found) *fabric = found;
      links += to_switch[i] > 0;
      for (int j = 0; j < kind->gpu_count; j++) links += rates[i][j] > 0;
    }
  }
  if (fabrics > 1) { /* GPUs of one node in several fabrics: no node belongs to one */
    *fabric = 0;
    dmuon_machine_note(lost, size, "NVLink between nodes: a node in several fabrics");
  }
  if (links > 0) {
    memcpy(kind->nvlink_mbps, rates, sizeof rates);
    dmuon_machine_join(kind, to_switch);
  }
  end(&library);
}
