/* Machines from hwloc's files and from the node under us: the values that stand in the files,
 * errors for files that are none, and what Linux shows of ports. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* setenv, mkdtemp */
#endif
#include "tap.h"

#include <sys/stat.h>
#include <unistd.h>

#include "topo/bind.h"
#include "topo/describe.h"
#include "topo/detect.h"
#include "topo/sources.h"

static dmuon_memory memory;

static const char *file_path(char path[1024], const char *name) {
  const char *top = getenv("abs_top_srcdir");
  snprintf(path, 1024, "%s/test/data/topo/%s", top ? top : ".", name);
  return path;
}

static dmuon_machine read_machine(const char *name) {
  char path[1024];
  dmuon_machine m = {0};
  DMuonErrorCode code = dmuon_detect_given(&memory, file_path(path, name), &m);
  tap_ok(!code, "%s is read", name);
  if (code) {
    tap_diag("%s", DMuonErrorGetMessage());
    exit(tap_done());
  }
  tap_contains(m.source, name, "and named as the source");
  tap_ok(m.node_count == 1 && m.kind_count == 1, "one node");
  return m;
}

static void dgx2(void) {
  dmuon_machine m = read_machine("nvidiaDGX2.xml");
  const dmuon_machine_kind *k = m.kinds;
  tap_ok(k->packages == 2 && k->numa_nodes == 2 && k->cores == 4, "DGX-2: packages, NUMA, cores");
  tap_is_int(k->gpu_count, 16, "DGX-2: sixteen GPUs");
  tap_is_string(k->gpus[0].name, "0000:34:00.0", "DGX-2: the first by PCI address");
  int links = 1, order = 1, numa = 1;
  for (int i = 0; i < 16; i++) {
    order &= i == 0 || strcmp(k->gpus[i - 1].name, k->gpus[i].name) < 0;
    numa &= k->gpus[i].numa == i / 8 && k->gpus[i].package == i / 8 && k->gpus[i].port == -1;
    for (int j = 0; j < 16; j++) links &= k->nvlink_mbps[i][j] == (i == j ? 0 : 150000);
  }
  tap_ok(links, "DGX-2: 150 GB/s between every two GPUs, through the switches");
  tap_ok(order, "DGX-2: GPUs in the order of their addresses");
  tap_ok(numa, "DGX-2: eight GPUs a package");
  tap_is_int(k->port_count, 0, "DGX-2: the file has no network ports");
  dmuon_machine_free(&m);
}

static void hgx(void) {
  dmuon_machine m = read_machine("made-hgx-h100.xml");
  const dmuon_machine_kind *k = m.kinds;
  tap_ok(k->gpu_count == 8 && k->port_count == 8 && k->cores == 16, "HGX: GPUs, ports, cores");
  int links = 1, near = 1;
  for (int i = 0; i < 8; i++) {
    char port[24];
    snprintf(port, sizeof port, "mlx5_%d", i);
    near &= k->gpus[i].port >= 0 && strcmp(k->ports[k->gpus[i].port].name, port) == 0;
    near &= k->gpus[i].numa == i / 4 && k->ports[i].numa == i / 4 && k->ports[i].package == i / 4;
    near &= k->ports[i].mbps == 0;
    for (int j = 0; j < 8; j++) links &= k->nvlink_mbps[i][j] == (i == j ? 0 : 450000);
  }
  tap_ok(links, "HGX: 450 GB/s between every two GPUs");
  tap_ok(near, "HGX: each GPU's nearest port is the one on its PCI switch");
  dmuon_machine_free(&m);
}

static void one_gpu(void) {
  dmuon_machine m = read_machine("one-gpu-one-hca.xml");
  const dmuon_machine_kind *k = m.kinds;
  tap_ok(k->gpu_count == 1 && k->packages == 2 && k->numa_nodes == 2 && k->cores == 16,
         "one GPU: counts");
  tap_is_string(k->gpus[0].name, "0000:84:00.0", "one GPU: the one CUDA names");
  tap_ok(k->gpus[0].package == 1 && k->gpus[0].numa == 1, "one GPU: on the second package");
  tap_ok(k->port_count == 1 && k->gpus[0].port == 0, "one GPU: near the only port");
  tap_is_string(k->ports[0].name, "mlx5_0", "one GPU: the port");
  dmuon_machine_free(&m);
}

/* Four GPUs with direct links, no switch: hwloc's file of such a machine in little. */
static void direct_links(const char *directory) {
  static const char *const distances[] = {
      "OSDev:80 OSDev:81 OSDev:82 OSDev:83 Package:10 Package:11 ",
      "1000000 40000 0 0 40000 0 40000 1000000 0 0 ", "40000 0 0 0 1000000 40000 0 40000 0 0 ",
      "40000 1000000 0 40000 40000 40000 0 0 1000000 0 ", "0 0 40000 40000 0 1000000 "};
  char path[1024];
  dmuon_machine m = {0};
  static const char *const bus[4] = {"04", "03", "83", "84"}; /* not in the order of numbers */
  snprintf(path, sizeof path, "%s/direct.xml", directory);
  FILE *f = fopen(path, "w");
  fprintf(f,
          "<?xml version=\"1.0\"?>\n<topology version=\"2.0\">\n"
          "<object type=\"Machine\" os_index=\"0\" cpuset=\"0x3\" complete_cpuset=\"0x3\" "
          "allowed_cpuset=\"0x3\" nodeset=\"0x3\" complete_nodeset=\"0x3\" "
          "allowed_nodeset=\"0x3\" gp_index=\"1\">\n");
  for (int p = 0; p < 2; p++) {
    const char *sets = p ? "cpuset=\"0x2\" complete_cpuset=\"0x2\" nodeset=\"0x2\" "
                           "complete_nodeset=\"0x2\""
                         : "cpuset=\"0x1\" complete_cpuset=\"0x1\" nodeset=\"0x1\" "
                           "complete_nodeset=\"0x1\"";
    fprintf(f, "<object type=\"Package\" os_index=\"%d\" %s gp_index=\"%d\">\n", p, sets, 10 + p);
    fprintf(f,
            "<object type=\"NUMANode\" os_index=\"%d\" %s gp_index=\"%d\" "
            "local_memory=\"1000000\"/>\n",
            p, sets, 20 + p);
    fprintf(f,
            "<object type=\"Core\" os_index=\"%d\" %s gp_index=\"%d\"><object type=\"PU\" "
            "os_index=\"%d\" %s gp_index=\"%d\"/></object>\n",
            p, sets, 30 + p, p, sets, 40 + p);
    fprintf(f,
            "<object type=\"Bridge\" gp_index=\"%d\" bridge_type=\"0-1\" depth=\"0\" "
            "bridge_pci=\"0000:[%s-%s]\">\n",
            50 + p, p ? "80" : "00", p ? "8f" : "0f");
    for (int g = 2 * p; g < 2 * p + 2; g++) {
      fprintf(f,
              "<object type=\"PCIDev\" gp_index=\"%d\" pci_busid=\"0000:%s:00.0\" "
              "pci_type=\"0302 [10de:15f9] [10de:116b] a1\" pci_link_speed=\"1.0\">"
              "<object type=\"OSDev\" gp_index=\"%d\" name=\"cuda%d\" osdev_type=\"5\"/>"
              "<object type=\"OSDev\" gp_index=\"%d\" name=\"nvml%d\" osdev_type=\"1\"/>"
              "</object>\n",
              60 + g, bus[g], 70 + g, g, 80 + g, g);
    }
    fprintf(f, "</object></object>\n");
  }
  fprintf(f, "</object>\n<distances2hetero nbobjs=\"6\" kind=\"25\" name=\"NVLinkBandwidth\">\n");
  for (size_t i = 0; i < sizeof distances / sizeof distances[0]; i++) {
    const char *tag = i == 0 ? "indexes" : "u64values";
    fprintf(f, "<%s length=\"%d\">%s</%s>\n", tag, (int)strlen(distances[i]), distances[i], tag);
  }
  fprintf(f, "</distances2hetero></topology>\n");
  fclose(f);
  tap_is_int(dmuon_detect_file(&memory, path, &m), DMUON_SUCCESS, "direct links: a file");
  if (m.node_count == 0) {
    tap_diag("%s", DMuonErrorGetMessage());
    return;
  }
  const dmuon_machine_kind *k = m.kinds;
  int right = k->gpu_count == 4;
  for (int i = 0; right && i < 4; i++) {
    for (int j = 0; j < 4; j++) {
      right &= k->nvlink_mbps[i][j] == (i != j && i / 2 == j / 2 ? 40000 : 0);
    }
  }
  tap_ok(right, "direct links stay as they are, and links to processors are not between GPUs");
  tap_is_string(k->gpus[0].name, "0000:03:00.0", "direct links: GPUs by address, not by number");
  dmuon_text text;
  const char *line = NULL;
  dmuon_text_init(&text, &memory);
  dmuon_describe_short(&text, &m);
  tap_is_int(dmuon_text_finish(&text, &line), DMUON_SUCCESS, "direct links: in words");
  tap_is_string(line, "node:1 package:2 core:2 gpu:4 nvlink:pairs@40GB", "they are pairs");
  dmuon_text_free(&text);
  dmuon_machine_free(&m);
  (void)unlink(path);
}

static void bad_files(const char *directory) {
  char path[1024];
  dmuon_machine m = {.node_count = 5};
  static const char *const contents[] = {
      "",
      "not xml at all",
      "<?xml version=\"1.0\"?><topology version=\"2.0\">",
      "<?xml version=\"1.0\"?><topology version=\"2.0\"><object type=\"Machine\"/></topology>",
      "<?xml version=\"1.0\"?><html/>",
      "<?xml version=\"1.0\"?><topology version=\"7.0\"></topology>"};
  tap_is_int(dmuon_detect_given(&memory, "/no/such/machine.xml", &m), DMUON_ERR_FILE,
             "a file that is not there");
  tap_contains(DMuonErrorGetMessage(), "/no/such/machine.xml", "is named");
  tap_is_int(dmuon_detect_file(&memory, directory, &m), DMUON_ERR_FILE, "a directory");
  snprintf(path, sizeof path, "%s/bad.xml", directory);
  for (size_t i = 0; i < sizeof contents / sizeof contents[0]; i++) {
    FILE *f = fopen(path, "w");
    fputs(contents[i], f);
    fclose(f);
    tap_is_int(dmuon_detect_file(&memory, path, &m), DMUON_ERR_FORMAT, "bad contents %d", (int)i);
    tap_contains(DMuonErrorGetMessage(), "bad.xml", "the file is named");
  }
  (void)unlink(path);
  tap_is_int(m.node_count, 5, "the machine is untouched");
}

static void given(void) {
  char text[1200], path[1024];
  dmuon_machine m = {0};
  snprintf(text, sizeof text, "node:4 file:%s + node:1 gpu:2",
           file_path(path, "made-hgx-h100.xml"));
  tap_is_int(dmuon_detect_given(&memory, text, &m), DMUON_SUCCESS, "nodes as a file has them");
  tap_ok(m.node_count == 5 && m.kind_count == 2 && m.kinds[0].gpu_count == 8 &&
             m.kinds[1].gpu_count == 2,
         "as many as asked for, beside others");
  dmuon_machine_free(&m);
}

static void this_node(void) {
  dmuon_machine m = {0};
  tap_is_int(dmuon_detect_node(&memory, &m), DMUON_SUCCESS, "the node under us");
  tap_ok(m.node_count == 1 && m.kinds->cores >= 1, "has cores: %d", m.kinds->cores);
  if (dmuon_hwloc_present()) {
    tap_ok(m.kinds->packages >= 1 && m.kinds->numa_nodes >= 1, "and packages and NUMA nodes");
    tap_is_string(m.source, "hwloc", "seen by hwloc");
  } else {
    tap_contains(m.lost, "built without hwloc", "and says what is lost");
    tap_is_string(m.source, "the system alone", "seen by the system");
  }
  dmuon_machine_free(&m);
}

static void put(const char *directory, const char *name, const char *content) {
  char path[1024];
  snprintf(path, sizeof path, "%s/%s", directory, name);
  for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
    *slash = 0;
    (void)mkdir(path, 0700);
    *slash = '/';
  }
  FILE *f = fopen(path, "w");
  if (f) {
    fputs(content, f);
    fclose(f);
  }
}

/* A /sys of our own. */
static void system_files(const char *directory) {
  static dmuon_machine_kind kind;
  put(directory, "sys/class/infiniband/mlx5_10/ports/1/state", "4: ACTIVE\n");
  put(directory, "sys/class/infiniband/mlx5_10/ports/1/rate", "400 Gb/sec (4X NDR)\n");
  put(directory, "sys/class/infiniband/mlx5_10/device/numa_node", "1\n");
  put(directory, "sys/class/infiniband/mlx5_2/ports/1/state", "4: ACTIVE\n");
  put(directory, "sys/class/infiniband/mlx5_2/ports/1/rate", "2.5 Gb/sec (1X SDR)\n");
  put(directory, "sys/class/infiniband/mlx5_2/device/numa_node", "-1\n");
  put(directory, "sys/class/infiniband/mlx5_3/ports/1/state", "1: DOWN\n");
  put(directory, "sys/devices/system/node/node0/x", "");
  put(directory, "sys/devices/system/node/node1/x", "");
  put(directory, "sys/devices/system/node/online", "0-1\n");
  put(directory, "sys/bus/pci/devices/0000:3b:00.0/numa_node", "1\n");
  kind.gpu_count = 1;
  kind.gpus[0] = (dmuon_machine_gpu){.name = "0000:3b:00.0", .numa = -1, .package = -1, .port = -1};
  char sys[1024];
  snprintf(sys, sizeof sys, "%s/sys", directory);
  dmuon_sysfs_read(sys, 1, &kind);
  dmuon_arrange_ports(&kind);
  tap_is_int(kind.port_count, 2, "system: the ports that are up");
  tap_is_string(kind.ports[0].name, "mlx5_2", "system: in the order of their numbers");
  tap_ok(kind.ports[1].mbps == 50000 && kind.ports[0].mbps == 312.5, "system: their rates");
  tap_ok(kind.ports[1].numa == 1 && kind.ports[0].numa == -1, "system: their NUMA nodes");
  tap_ok(kind.numa_nodes == 2 && kind.cores >= 1, "system: NUMA nodes and cores");
  tap_ok(kind.gpus[0].numa == 1 && kind.gpus[0].port == 1, "system: a GPU near a port");
  dmuon_machine_kind none = {0};
  dmuon_sysfs_read("/no/such/sys", 1, &none);
  tap_ok(none.port_count == 0 && none.numa_nodes == 0, "system: nothing there is no error");
}

static void binding(void) {
  if (!dmuon_hwloc_present()) {
    tap_is_int(dmuon_topo_bind(0, 1), DMUON_ERR_UNSUPPORTED, "binding without hwloc");
    return;
  }
  tap_is_int(dmuon_topo_bind(0, 1 << 20), DMUON_ERR_SETUP, "more cores than there are");
  tap_contains(DMuonErrorGetMessage(), "this process may use", "the error says how many");
  tap_is_int(dmuon_topo_bind(0, 0), DMUON_ERR_SETUP, "no core");
  DMuonErrorCode code = dmuon_topo_bind(0, 1);
  tap_ok(code == DMUON_SUCCESS || code == DMUON_ERR_SETUP, "one core");
}

int main(void) {
  char directory[] = "/tmp/dmuon_topo_XXXXXX", command[64];
  if (!mkdtemp(directory)) return tap_skip_all("no directory for files");
  if (dmuon_hwloc_present()) {
    dgx2();
    hgx();
    one_gpu();
    direct_links(directory);
    bad_files(directory);
    given();
  } else {
    char path[1024];
    dmuon_machine m = {0};
    tap_is_int(dmuon_detect_given(&memory, file_path(path, "nvidiaDGX2.xml"), &m),
               DMUON_ERR_UNSUPPORTED, "a file without hwloc");
    tap_contains(DMuonErrorGetMessage(), "built without hwloc", "the error says why");
  }
  this_node();
  system_files(directory);
  binding();
  snprintf(command, sizeof command, "rm -rf %s", directory);
  if (system(command) != 0) tap_diag("%s is left", directory);
  tap_is_int(memory.bytes, 0, "all memory is given back");
  return tap_done();
}
