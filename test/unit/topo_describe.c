/* Machines from short texts: what each word means, what is refused and how that is said, that
 * random texts never do harm, and that a machine printed is the machine read. */
#include "tap.h"

#include "base/random.h"
#include "topo/describe.h"

static dmuon_memory memory;

static dmuon_machine parse(const char *text) {
  dmuon_machine machine = {0};
  DMuonErrorCode code = dmuon_describe_parse(&memory, text, NULL, NULL, &machine);
  if (code) tap_diag("%s", DMuonErrorGetMessage());
  tap_ok(!code, "\"%s\" is read", text);
  if (code) exit(tap_done());
  return machine;
}

static void refused(const char *text, const char *phrase) {
  dmuon_machine machine = {.node_count = 77};
  DMuonErrorCode code = dmuon_describe_parse(&memory, text, NULL, NULL, &machine);
  tap_is_int(code, DMUON_ERR_FORMAT, "\"%s\" is refused", text);
  tap_contains(DMuonErrorGetMessage(), phrase, "and the error says what is wrong");
  tap_ok(machine.node_count == 77 && memory.bytes == 0, "nothing is written, nothing is kept");
}

static void cluster(void) {
  dmuon_machine m = parse("node:16 gpu:8 nvlink:all ib:4");
  const dmuon_machine_kind *k = m.kinds;
  tap_ok(m.node_count == 16 && m.kind_count == 1, "sixteen nodes of one kind");
  tap_ok(k->gpu_count == 8 && k->port_count == 4 && k->packages == 1 && k->numa_nodes == 1 &&
             k->cores == 0,
         "eight GPUs, four ports, one package");
  int all = 1, ports = 1;
  for (int i = 0; i < 8; i++) {
    ports &= k->gpus[i].port == i / 2;
    for (int j = 0; j < 8; j++) all &= k->nvlink_mbps[i][j] == (i == j ? 0 : 450000);
  }
  tap_ok(all, "NVLink between every two");
  tap_ok(ports, "two GPUs near each port");
  tap_is_string(k->gpus[3].name, "gpu3", "GPUs have names");
  tap_is_string(m.source, "description", "the machine says where it is from");
  dmuon_machine_free(&m);
}

static void places(void) {
  dmuon_machine m = parse("package:2 numa:4 core:96 gpu:8 nvlink:450GB ib:8@400Gb");
  const dmuon_machine_kind *k = m.kinds;
  int right = k->packages == 2 && k->numa_nodes == 4 && k->cores == 96;
  for (int i = 0; i < 8; i++) {
    right &= k->gpus[i].numa == i / 2 && k->gpus[i].package == i / 4 && k->gpus[i].port == i;
    right &= k->ports[i].numa == i / 2 && k->ports[i].package == i / 4;
    right &= k->ports[i].mbps == 50000;
  }
  tap_ok(right, "devices are spread over NUMA nodes and packages; 400 Gb/s are 50 GB/s");
  tap_is_int((int64_t)k->nvlink_mbps[0][7], 450000, "a rate alone is a rate between all");
  dmuon_machine_free(&m);
}

static void patterns(void) {
  dmuon_machine m = parse("package:2 gpu:4 nvlink:pairs");
  tap_ok(m.kinds->nvlink_mbps[0][1] == 75000 && m.kinds->nvlink_mbps[2][3] == 75000 &&
             m.kinds->nvlink_mbps[1][2] == 0 && m.kinds->nvlink_mbps[0][3] == 0,
         "pairs");
  dmuon_machine_free(&m);
  m = parse("package:2 gpu:6 nvlink:package@50GB");
  tap_ok(m.kinds->nvlink_mbps[0][2] == 50000 && m.kinds->nvlink_mbps[2][3] == 0 &&
             m.kinds->nvlink_mbps[3][5] == 50000,
         "within a package");
  dmuon_machine_free(&m);
  m = parse("gpu:8 nvlink:cube");
  int links = 1, symmetric = 1, far = 0;
  for (int i = 0; i < 8; i++) {
    double sum = 0;
    for (int j = 0; j < 8; j++) {
      sum += m.kinds->nvlink_mbps[i][j];
      symmetric &= m.kinds->nvlink_mbps[i][j] == m.kinds->nvlink_mbps[j][i];
      far += i != j && m.kinds->nvlink_mbps[i][j] == 0;
    }
    links &= sum == 6 * 25000;
  }
  tap_ok(links && symmetric && far == 24, "the cube: six links a GPU, three GPUs not linked to it");
  tap_ok(m.kinds->nvlink_mbps[0][4] == 50000 && m.kinds->nvlink_mbps[0][1] == 25000,
         "the cube: double and single links");
  dmuon_machine_free(&m);
  m = parse("gpu:3 nvlink:0,25000,12.5GB/25GB,0,0/100Gb,0,0");
  tap_ok(m.kinds->nvlink_mbps[0][1] == 25000 && m.kinds->nvlink_mbps[0][2] == 12500 &&
             m.kinds->nvlink_mbps[1][2] == 0 && m.kinds->nvlink_mbps[2][0] == 12500,
         "a matrix");
  dmuon_machine_free(&m);
}

static void racks(void) {
  dmuon_machine m = parse("node:18 gpu:4 nvlink:all fabric:18");
  int one = m.nodes[0].fabric != 0;
  for (int i = 0; i < 18; i++) one &= m.nodes[i].fabric == m.nodes[0].fabric;
  tap_ok(m.node_count == 18 && one, "a rack of eighteen nodes is one fabric");
  dmuon_machine_free(&m);
  m = parse("node:5 gpu:4 nvlink:all fabric:2 + node:2 gpu:4 nvlink:all fabric:2+node:1 gpu:1");
  const dmuon_machine_node *n = m.nodes;
  tap_ok(m.node_count == 8 && n[0].fabric == n[1].fabric && n[1].fabric != n[2].fabric &&
             n[2].fabric == n[3].fabric && n[4].fabric != n[3].fabric && n[5].fabric &&
             n[5].fabric != n[4].fabric && n[5].fabric == n[6].fabric && n[7].fabric == 0,
         "racks differ; the last of a group may be smaller; a group begins its own");
  tap_ok(m.kind_count == 2 && n[0].kind == n[6].kind && n[7].kind != n[0].kind,
         "groups of equal nodes are of one kind");
  dmuon_machine_free(&m);
  m = parse("node:4");
  tap_ok(m.node_count == 4 && m.kinds->gpu_count == 0 && m.kinds->port_count == 0, "no GPU at all");
  dmuon_machine_free(&m);
}

static void errors(void) {
  refused("", "a group without a word");
  refused("node:2 + ", "a group without a word");
  refused("node:2 gpus:8", "\"gpus:8\" is no word of a description; right are node:N");
  refused("nodes", "\"nodes\" is no word");
  refused("gpu:33", "\"gpu:33\" is not a number from 0 to 32");
  refused("node:0", "\"node:0\" is not a number from 1");
  refused("node:2 gpu:-1", "\"gpu:-1\" is not a number");
  refused("gpu:2 gpu:2", "\"gpu:2\" after another \"gpu:\"");
  refused("gpu:4 nvlink:cube", "joins 8 GPUs, not gpu:4");
  refused("gpu:4 nvlink:some", "\"nvlink:some\"; right is none, all, pairs");
  refused("nvlink:all", "without GPUs; gpu:N is missing");
  refused("gpu:2 nvlink:all@fast", "\"fast\" in \"nvlink:\" is not a rate");
  refused("gpu:2 ib:2@0", "\"0\" in \"ib:\" is not a rate");
  refused("gpu:2 nvlink:0,1", "the nvlink matrix has 1 rows; right is 2");
  refused("gpu:2 nvlink:0,1/1", "is not 2 rows (by \"/\") of 2 rates");
  refused("gpu:2 nvlink:0,1/1,0/0,0", "is not 2 rows");
  refused("gpu:2 nvlink:0,1/1,5", "on its diagonal (row 1)");
  refused("node:4 gpu:4 fabric:2", "\"fabric:2\" without NVLink in the node");
  refused("node:4 file:x.xml gpu:2", "\"gpu:\" beside \"file:\"");
  refused("node:1048576 + node:1", "1048577 nodes; at most 1048576");
  dmuon_machine machine;
  tap_is_int(dmuon_describe_parse(&memory, "file:x.xml", NULL, NULL, &machine),
             DMUON_ERR_UNSUPPORTED, "a file where no files are read");
}

/* A reader of files for "file:": the name says how many GPUs. */
static DMuonErrorCode read_test_file(void *context, const char *path, dmuon_machine_kind *kind) {
  snprintf(context, 64, "%s", path);
  kind->gpu_count = 2;
  kind->gpus[0].port = kind->gpus[1].port = -1;
  kind->nvlink_mbps[0][1] = kind->nvlink_mbps[1][0] = 1000;
  return DMUON_SUCCESS;
}

static void files(void) {
  char path[64] = "";
  dmuon_machine m = {0};
  tap_is_int(
      dmuon_describe_parse(&memory, "node:3 file:/a+b/c:d.xml fabric:3", read_test_file, path, &m),
      DMUON_SUCCESS, "nodes from a file");
  tap_is_string(path, "/a+b/c:d.xml", "the path is what stands there");
  tap_ok(m.node_count == 3 && m.kinds->gpu_count == 2 && m.nodes[2].fabric == 1,
         "as many nodes as asked for");
  dmuon_machine_free(&m);
}

static int same(const dmuon_machine *a, const dmuon_machine *b) {
  if (a->node_count != b->node_count) return 0;
  for (int i = 0; i < a->node_count; i++) {
    if ((a->nodes[i].fabric == 0) != (b->nodes[i].fabric == 0)) return 0;
    if (i > 0 && (a->nodes[i].fabric == a->nodes[i - 1].fabric) !=
                     (b->nodes[i].fabric == b->nodes[i - 1].fabric)) {
      return 0;
    }
    if (!dmuon_machine_same_kind(&a->kinds[a->nodes[i].kind], &b->kinds[b->nodes[i].kind])) {
      return 0;
    }
  }
  return 1;
}

/* Text, machine, text, machine: the two machines are the same. *text is the printed one. */
static int comes_back(const dmuon_machine *machine, char *printed, size_t size) {
  dmuon_text text;
  const char *line = NULL;
  dmuon_machine again = {0};
  dmuon_text_init(&text, &memory);
  dmuon_describe_short(&text, machine);
  int good = dmuon_text_finish(&text, &line) == DMUON_SUCCESS;
  snprintf(printed, size, "%s", good ? line : "");
  good = good && dmuon_describe_parse(&memory, line, NULL, NULL, &again) == DMUON_SUCCESS;
  good = good && same(machine, &again);
  dmuon_machine_free(&again);
  dmuon_text_free(&text);
  return good;
}

static void round_trips(void) {
  static const char *const texts[][2] = {
      {"node:16 gpu:8 nvlink:all ib:4", "node:16 gpu:8 nvlink:all@450GB ib:4"},
      {"package:2 numa:8 core:128 gpu:8 nvlink:cube@20GB ib:4@100Gb",
       "node:1 package:2 numa:8 core:128 gpu:8 nvlink:cube@20GB ib:4@12500MB"},
      {"node:5 gpu:4 nvlink:900GB fabric:2", "node:5 gpu:4 nvlink:all@900GB fabric:2"},
      {"node:4 gpu:4 nvlink:all fabric:2 + node:6 gpu:4 nvlink:all fabric:3",
       "node:4 gpu:4 nvlink:all@450GB fabric:2 + node:6 gpu:4 nvlink:all@450GB fabric:3"},
      {"node:2 gpu:8 nvlink:all + node:2 gpu:4", "node:2 gpu:8 nvlink:all@450GB + node:2 gpu:4"},
      {"gpu:3 nvlink:0,1,0.3/1,0,0/0,0.3,0",
       "node:1 gpu:3 nvlink:0,1,0.300000012/1,0,0/"
       "0,0.300000012,0"},
      {"package:2 gpu:6 nvlink:package", "node:1 package:2 gpu:6 nvlink:package@75GB"},
      {"gpu:4 nvlink:pairs@26562MB", "node:1 gpu:4 nvlink:pairs@26562MB"},
  };
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
    char printed[512];
    dmuon_machine m = parse(texts[i][0]);
    tap_ok(comes_back(&m, printed, sizeof printed), "and comes back");
    tap_is_string(printed, texts[i][1], "in these words");
    dmuon_machine_free(&m);
  }
}

static void for_people(void) {
  dmuon_text text;
  const char *lines = NULL;
  dmuon_machine m = parse("node:2 package:2 gpu:4 nvlink:pairs ib:2 + node:1");
  dmuon_machine_note(m.lost, sizeof m.lost, "links between ports");
  dmuon_text_init(&text, &memory);
  dmuon_describe_print(&text, "  ", &m);
  tap_is_int(dmuon_text_finish(&text, &lines), DMUON_SUCCESS, "lines for people");
  tap_is_string(lines,
                "  machine: 3 nodes, from description\n"
                "    node:2 package:2 gpu:4 nvlink:pairs@75GB ib:2\n"
                "    GPUs of NUMA node 0: 0 gpu0 near ib0, 1 gpu1 near ib0\n"
                "    GPUs of NUMA node 1: 2 gpu2 near ib1, 3 gpu3 near ib1\n"
                "    node:1\n"
                "    not seen: links between ports\n",
                "say it all");
  dmuon_text_free(&text);
  dmuon_machine_free(&m);
  char buffer[32];
  tap_is_string(dmuon_describe_rate(buffer, 450000), "450 GB/s", "a rate");
  tap_is_string(dmuon_describe_rate(buffer, 0), "?", "no rate");
}

/* Texts put together at random, of words that mean something and of bytes that do not: read or
 * refused, and what is read comes back. */
static void fuzz(void) {
  static const char *const pieces[] = {
      "node:",    "gpu:", "ib:",         "nvlink:", "fabric:", "package:", "numa:", "core:",
      "file:",    "all",  "pairs",       "cube",    "@",       "450GB",    "100Gb", "0",
      "1",        "2",    "3",           "8",       "17",      ",",        "/",     " ",
      " + ",      "+",    " ",           "0,1/1,0", "none",    "package",  ".",     "0.25MB",
      "\xff\x01", "-1",   "99999999999", ":"};
  const uint64_t count = sizeof pieces / sizeof pieces[0];
  int read = 0, wrong = 0, back = 0;
  for (uint64_t round = 0; round < 20000; round++) {
    char text[256] = "", printed[4096];
    int parts = (int)(dmuon_random_bits(7, round, 0) % 24);
    for (int p = 0; p < parts; p++) {
      uint64_t pick = dmuon_random_bits(7, round, (uint64_t)p + 1);
      /* Half the time a well-formed word, so that some texts are good. */
      if (pick & 1) {
        strcat(text, p ? " " : "");
        strcat(text, pieces[(pick >> 8) % 8]);
        strcat(text, pieces[15 + (pick >> 16) % 5]);
      } else if (pick & 6) {
        continue;
      } else {
        strcat(text, pieces[(pick >> 8) % count]);
      }
      if (strlen(text) > 200) break;
    }
    dmuon_machine m = {0};
    DMuonErrorCode code = dmuon_describe_parse(&memory, text, NULL, NULL, &m);
    if (code == DMUON_SUCCESS) {
      read++;
      back += comes_back(&m, printed, sizeof printed);
    } else if ((code != DMUON_ERR_FORMAT && code != DMUON_ERR_UNSUPPORTED) ||
               !DMuonErrorGetMessage()[0]) {
      wrong++;
    }
    dmuon_machine_free(&m);
  }
  tap_diag("%d of 20000 random texts were descriptions", read);
  tap_ok(wrong == 0, "random texts are read or refused with a reason");
  tap_ok(read > 200 && back == read, "and all that are read come back");
}

static void allocation_failures(void) {
  DMuonErrorCode code = DMUON_ERR_MEMORY;
  int kept = 0, tries = 0;
  for (; code == DMUON_ERR_MEMORY && tries < 50; tries++) {
    dmuon_machine m = {0};
    memory.fail_at = memory.allocations + 1 + tries;
    code = dmuon_describe_parse(&memory, "node:3 gpu:2 + node:5 gpu:4 nvlink:all fabric:2", NULL,
                                NULL, &m);
    kept |= code && memory.bytes != 0;
    dmuon_machine_free(&m);
  }
  memory.fail_at = 0;
  tap_ok(!code && tries > 4 && !kept, "each allocation may fail, and leaves nothing behind");
}

int main(void) {
  cluster();
  places();
  patterns();
  racks();
  errors();
  files();
  round_trips();
  for_people();
  fuzz();
  allocation_failures();
  tap_is_int(memory.bytes, 0, "all memory is given back");
  return tap_done();
}
