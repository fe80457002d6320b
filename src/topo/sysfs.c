/* What Linux itself shows of a node, in small files below /sys: rates of network ports, which hwloc
 * does not know; and without hwloc the ports and NUMA nodes. Everything here may be missing. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "topo/sources.h"

/* The beginning of a small file; "" where there is none. */
static const char *content(char buffer[64], const char *path) {
  int file = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t got = file >= 0 ? read(file, buffer, 63) : 0;
  if (file >= 0) (void)close(file);
  buffer[got > 0 ? got : 0] = 0;
  return buffer;
}

static int16_t numa_of(const char *path) {
  char buffer[64], *end = NULL;
  long node = strtol(content(buffer, path), &end, 10);
  return (int16_t)(end != buffer && node >= 0 && node < INT16_MAX ? node : -1);
}

static int compare_names(const void *a, const void *b) {
  const dmuon_machine_port *x = a, *y = b;
  size_t left = strlen(x->name), right = strlen(y->name); /* mlx5_2 before mlx5_10 */
  return left != right ? (left < right ? -1 : 1) : strcmp(x->name, y->name);
}

/* Ports of InfiniBand and RoCE devices whose first link is up. */
static void list_ports(const char *sys, dmuon_machine_kind *kind) {
  char path[512], buffer[64];
  (void)snprintf(path, sizeof path, "%s/class/infiniband", sys);
  DIR *directory = opendir(path);
  if (!directory) return;
  for (struct dirent *entry; (entry = readdir(directory));) {
    if (entry->d_name[0] == '.' || kind->port_count == DMUON_NODE_PORTS) continue;
    if (strlen(entry->d_name) >= sizeof kind->ports[0].name) continue;
    (void)snprintf(path, sizeof path, "%s/class/infiniband/%.23s/ports/1/state", sys,
                   entry->d_name);
    if (!strstr(content(buffer, path), "ACTIVE")) continue;
    dmuon_machine_port *port = &kind->ports[kind->port_count++];
    *port = (dmuon_machine_port){.numa = -1, .package = -1};
    (void)snprintf(port->name, sizeof port->name, "%.23s", entry->d_name);
    (void)snprintf(path, sizeof path, "%s/class/infiniband/%.23s/device/numa_node", sys,
                   entry->d_name);
    port->numa = numa_of(path);
  }
  (void)closedir(directory);
  qsort(kind->ports, (size_t)kind->port_count, sizeof kind->ports[0], compare_names);
}

/* "400 Gb/sec (4X NDR)"; the digits of "12.5 Gb/sec" are read without the locale. */
static double rate_in(const char *text) {
  double value = 0, scale = 1;
  int point = 0;
  for (; (*text >= '0' && *text <= '9') || (*text == '.' && !point); text++) {
    if (*text == '.') {
      point = 1;
      continue;
    }
    value = value * 10 + (*text - '0');
    if (point) scale *= 10;
  }
  return strncmp(text, " Gb/sec", 7) == 0 ? value / scale * 1000 / 8 : 0;
}

static int count_numa(const char *sys) {
  char path[512];
  int count = 0;
  (void)snprintf(path, sizeof path, "%s/devices/system/node", sys);
  DIR *directory = opendir(path);
  if (!directory) return 0;
  for (struct dirent *entry; (entry = readdir(directory));) {
    const char *name = entry->d_name;
    count += strncmp(name, "node", 4) == 0 && name[4] >= '0' && name[4] <= '9';
  }
  (void)closedir(directory);
  return count;
}

void dmuon_sysfs_read(const char *sys, int list, dmuon_machine_kind *kind) {
  char path[512], buffer[64];
  if (list && kind->port_count == 0) list_ports(sys, kind);
  if (kind->numa_nodes == 0) kind->numa_nodes = count_numa(sys);
  if (kind->cores == 0) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    kind->cores = cores > 0 ? (int)cores : 0;
  }
  for (int i = 0; i < kind->port_count; i++) {
    dmuon_machine_port *port = &kind->ports[i];
    if (port->mbps > 0) continue;
    (void)snprintf(path, sizeof path, "%s/class/infiniband/%s/ports/1/rate", sys, port->name);
    port->mbps = rate_in(content(buffer, path));
  }
  for (int i = 0; i < kind->gpu_count; i++) {
    dmuon_machine_gpu *gpu = &kind->gpus[i];
    if (gpu->numa >= 0) continue;
    (void)snprintf(path, sizeof path, "%s/bus/pci/devices/%s/numa_node", sys, gpu->name);
    gpu->numa = numa_of(path);
  }
}
