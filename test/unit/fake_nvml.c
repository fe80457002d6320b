/* A stand-in for the driver's management library, opened by topo_nvml: machines by the name in
 * FAKE_NVML. Only what the library asks for; the layouts are those of the real one. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
} pci_info;

typedef struct {
  unsigned version;
  unsigned char uuid[16];
  int status;
  unsigned clique;
  unsigned char state;
  unsigned health;
} fabric_info;

#define FAKE __attribute__((visibility("default")))

static int is(const char *name) {
  const char *fake = getenv("FAKE_NVML");
  return fake && strcmp(fake, name) == 0;
}

/* A device is its index, plus one so that none is NULL. */
static int index_of(void *device) {
  return (int)(intptr_t)device - 1;
}

static int device_count(void) {
  return is("rack") || is("split") ? 4 : is("many") ? 40 : 8;
}

static void address(int index, pci_info *info) {
  memset(info, 0, sizeof *info);
  /* The order of the library is not the order of addresses. */
  info->domain = is("rack") ? (unsigned)(device_count() - index) : 0;
  info->bus = is("rack") ? 1 : 0x10u + (unsigned)index;
  info->pci_device_id = 0x233010de;
  snprintf(info->bus_id, sizeof info->bus_id, "%08x:%02x:00.0", info->domain, info->bus);
}

FAKE int nvmlInit_v2(void);
FAKE int nvmlShutdown(void);
FAKE int nvmlDeviceGetCount_v2(unsigned *count);
FAKE int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
FAKE int nvmlDeviceGetPciInfo_v3(void *device, pci_info *info);
FAKE int nvmlDeviceGetArchitecture(void *device, unsigned *architecture);
FAKE int nvmlDeviceGetNvLinkState(void *device, unsigned link, int *active);
FAKE int nvmlDeviceGetNvLinkVersion(void *device, unsigned link, unsigned *version);
FAKE int nvmlDeviceGetNvLinkRemoteDeviceType(void *device, unsigned link, int *type);
FAKE int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned link, pci_info *info);
FAKE int nvmlDeviceGetGpuFabricInfoV(void *device, fabric_info *info);

int nvmlInit_v2(void) {
  return is("broken") ? 9 : 0; /* driver not loaded */
}

int nvmlShutdown(void) {
  return 0;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
  *count = (unsigned)device_count();
  return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
  if ((int)index >= device_count()) return 2;
  *device = (void *)(intptr_t)(index + 1);
  return 0;
}

int nvmlDeviceGetPciInfo_v3(void *device, pci_info *info) {
  address(index_of(device), info);
  return 0;
}

int nvmlDeviceGetArchitecture(void *device, unsigned *architecture) {
  (void)device;
  *architecture = is("rack") ? 10 : 9;
  return 0;
}

static int link_count(void) {
  return is("cube") ? 6 : 18;
}

int nvmlDeviceGetNvLinkState(void *device, unsigned link, int *active) {
  if ((int)link >= link_count()) return 2;
  *active = !(is("weak") && index_of(device) == 3 && link >= 16); /* two links are down */
  return 0;
}

int nvmlDeviceGetNvLinkVersion(void *device, unsigned link, unsigned *version) {
  (void)device;
  (void)link;
  *version = is("cube") ? 2 : 7;
  return 0;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(void *device, unsigned link, int *type) {
  (void)device;
  (void)link;
  *type = is("cube") ? 0 : 2;
  return 0;
}

/* Which GPU each of the six links of a GPU in the cube goes to: twice the opposite corner. */
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned link, pci_info *info) {
  static const int to[8][6] = {{1, 2, 3, 3, 4, 4}, {0, 2, 2, 3, 5, 5}, {0, 1, 1, 3, 3, 6},
                               {0, 0, 1, 2, 2, 7}, {0, 0, 5, 6, 7, 7}, {1, 1, 4, 6, 6, 7},
                               {2, 4, 5, 5, 7, 7}, {3, 4, 4, 5, 6, 6}};
  if (is("cube")) {
    address(to[index_of(device)][link], info);
  } else {
    memset(info, 0, sizeof *info);
    info->bus = 0xf1;
    info->pci_device_id = 0x22a310de;
  }
  return 0;
}

int nvmlDeviceGetGpuFabricInfoV(void *device, fabric_info *info) {
  if (info->version != (sizeof *info | 2u << 24)) return 25; /* version mismatch */
  memset(info->uuid, is("rack") || is("split") ? 0x5a : 0, sizeof info->uuid);
  info->clique = is("split") ? (unsigned)index_of(device) / 2 : 7;
  info->state = 3;
  info->status = 0;
  return is("cube") ? 3 : 0; /* not supported */
}
