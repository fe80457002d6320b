/* Reads a short text into a machine: words into a group of equal nodes, groups into the machine.
 * Decides what a word may say and what is assumed where it says nothing; the matrix patterns are in
 * topo/links.c, the way back in topo/describe_print.c. */
#include "topo/describe.h"

#include <string.h>

#include "topo/links.h"

enum { PACKAGE, NUMA, CORE, GPU, IB, NODE, FABRIC, NUMBERS, NVLINK = NUMBERS, PATH, KEYS };

static const struct {
  const char *name;
  int least, most;
} keys[KEYS] = {
    [PACKAGE] = {"package", 1, 1024},
    [NUMA] = {"numa", 1, 1024},
    [CORE] = {"core", 1, 1 << 20},
    [GPU] = {"gpu", 0, DMUON_NODE_GPUS},
    [IB] = {"ib", 0, DMUON_NODE_PORTS},
    [NODE] = {"node", 1, DMUON_MACHINE_NODES},
    [FABRIC] = {"fabric", 1, DMUON_MACHINE_NODES},
    [NVLINK] = {"nvlink", 0, 0},
    [PATH] = {"file", 0, 0},
};

typedef struct {
  const char *text;
  int length;
} word;

/* What one group says: the value of each word (text NULL where it has none), and its number. */
typedef struct {
  word value[KEYS];
  int number[NUMBERS];
  double ib_mbps;
} group;

/* For messages: as much of a word as is useful. */
static int shown(word w) {
  return w.length < 60 ? w.length : 60;
}

static int is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static int is_digit(char c) {
  return c >= '0' && c <= '9';
}

/* The next word at *at, or length 0 at the end of the group ('+' or end). A path may hold a '+'. */
static word next_word(const char **at) {
  while (is_blank(**at)) (*at)++;
  word w = {*at, 0};
  int path = strncmp(*at, "file:", 5) == 0;
  while (**at && !is_blank(**at) && (path || **at != '+')) (*at)++;
  w.length = (int)(*at - w.text < 1 << 20 ? *at - w.text : 1 << 20);
  return w;
}

/* The key of a word, *value what follows the colon; or -1. */
static int find_key(word w, word *value) {
  const char *colon = memchr(w.text, ':', (size_t)w.length);
  if (!colon) return -1;
  size_t length = (size_t)(colon - w.text);
  *value = (word){colon + 1, w.length - (int)length - 1};
  for (int k = 0; k < KEYS; k++) {
    if (strlen(keys[k].name) == length && memcmp(keys[k].name, w.text, length) == 0) return k;
  }
  return -1;
}

static DMuonErrorCode read_number(int key, word value, int *number) {
  int64_t n = 0;
  int good = value.length > 0 && value.length < 10;
  for (int i = 0; good && i < value.length; i++) {
    good = is_digit(value.text[i]);
    n = n * 10 + (value.text[i] - '0');
  }
  if (!good || n < keys[key].least || n > keys[key].most) {
    DMUON_FAIL(DMUON_ERR_FORMAT, "topology: \"%s:%.*s\" is not a number from %d to %d",
               keys[key].name, shown(value), value.text, keys[key].least, keys[key].most);
  }
  *number = (int)n;
  return DMUON_SUCCESS;
}

/* Digits with a point perhaps, then a unit: 10^6 bytes/s. Not strtod: that one follows the
 * locale. */
static int rate_of(word value, int may_be_zero, double *mbps) {
  static const struct {
    const char *name;
    double factor, divisor;
  } units[] = {{"", 1, 1}, {"MB", 1, 1}, {"GB", 1000, 1}, {"Mb", 1, 8}, {"Gb", 1000, 8}};
  double n = 0, scale = 1;
  int i = 0, digits = 0, point = 0;
  for (; i < value.length; i++) {
    if (value.text[i] == '.' && !point) {
      point = 1;
    } else if (is_digit(value.text[i]) && digits < 15) {
      n = n * 10 + (value.text[i] - '0');
      if (point) scale *= 10;
      digits++;
    } else {
      break;
    }
  }
  for (size_t u = 0; digits > 0 && u < sizeof units / sizeof units[0]; u++) {
    size_t rest = (size_t)(value.length - i);
    if (strlen(units[u].name) != rest || memcmp(units[u].name, value.text + i, rest) != 0) continue;
    double rate = n / scale * units[u].factor / units[u].divisor;
    if (rate == 0 && !may_be_zero) return 0;
    if (rate != 0 && (rate < 0.01 || rate > 1e9)) return 0;
    *mbps = rate;
    return 1;
  }
  return 0;
}

static DMuonErrorCode read_rate(const char *key, word value, int may_be_zero, double *mbps) {
  if (!rate_of(value, may_be_zero, mbps)) {
    DMUON_FAIL(DMUON_ERR_FORMAT,
               "topology: \"%.*s\" in \"%s:\" is not a rate; a rate is like 25000, 25000MB, 450GB "
               "or 400Gb",
               shown(value), value.text, key);
  }
  return DMUON_SUCCESS;
}

/* Splits "all@450GB" into what is before the "@" and the rate behind it (untouched without one). */
static DMuonErrorCode split_rate(const char *key, word *value, double *mbps) {
  const char *at = memchr(value->text, '@', (size_t)value->length);
  if (!at) return DMUON_SUCCESS;
  int before = (int)(at - value->text);
  DMUON_TRY(read_rate(key, (word){at + 1, value->length - before - 1}, 0, mbps));
  value->length = before;
  return DMUON_SUCCESS;
}

/* The part of rest up to c, or all of it; rest is moved behind c. *more says whether c was
 * there. */
static word cut(word *rest, char c, int *more) {
  const char *at = memchr(rest->text, c, (size_t)rest->length);
  word part = *rest;
  *more = at != NULL;
  if (at) part.length = (int)(at - rest->text);
  int skip = part.length + (at ? 1 : 0);
  *rest = (word){rest->text + skip, rest->length - skip};
  return part;
}

static DMuonErrorCode read_matrix(word value, dmuon_machine_kind *kind) {
  int n = kind->gpu_count, rows = 0, more_rows = 1;
  for (word rest = value; more_rows; rows++) {
    word row = cut(&rest, '/', &more_rows);
    int columns = 0, more = 1;
    for (; more; columns++) {
      word entry = cut(&row, ',', &more);
      double mbps = 0;
      if (rows >= n || columns >= n) break;
      DMUON_TRY(read_rate("nvlink", entry, 1, &mbps));
      if (rows == columns && mbps != 0) {
        DMUON_FAIL(DMUON_ERR_FORMAT,
                   "topology: the nvlink matrix has %.*s on its diagonal (row %d); right is 0",
                   shown(entry), entry.text, rows);
      }
      kind->nvlink_mbps[rows][columns] = (float)mbps;
    }
    if (rows >= n || columns != n || more) {
      DMUON_FAIL(DMUON_ERR_FORMAT,
                 "topology: the nvlink matrix \"%.*s\" is not %d rows (by \"/\") of %d rates (by "
                 "\",\"), as gpu:%d needs",
                 shown(value), value.text, n, n, n);
    }
  }
  if (rows != n) {
    DMUON_FAIL(DMUON_ERR_FORMAT, "topology: the nvlink matrix has %d rows; right is %d, as gpu:%d",
               rows, n, n);
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode read_links(word value, dmuon_machine_kind *kind) {
  word how = value;
  double mbps = 0;
  if (memchr(value.text, ',', (size_t)value.length)) return read_matrix(value, kind);
  DMUON_TRY(split_rate("nvlink", &how, &mbps));
  for (int p = 0; p < DMUON_LINKS_PATTERNS; p++) {
    const char *name = dmuon_links_name(p);
    if (strlen(name) != (size_t)how.length || memcmp(name, how.text, strlen(name)) != 0) continue;
    if (p == DMUON_LINKS_NONE && mbps > 0) break;
    if (p != DMUON_LINKS_NONE && kind->gpu_count < 1) {
      DMUON_FAIL(DMUON_ERR_FORMAT, "topology: \"nvlink:%.*s\" without GPUs; gpu:N is missing",
                 shown(value), value.text);
    }
    if (p == DMUON_LINKS_CUBE && kind->gpu_count != 8) {
      DMUON_FAIL(DMUON_ERR_FORMAT, "topology: \"nvlink:cube\" joins 8 GPUs, not gpu:%d",
                 kind->gpu_count);
    }
    dmuon_links_fill(kind, p, mbps > 0 ? mbps : dmuon_links_rate(p));
    return DMUON_SUCCESS;
  }
  if (how.length == value.length && rate_of(how, 0, &mbps)) {
    if (kind->gpu_count < 1) {
      DMUON_FAIL(DMUON_ERR_FORMAT, "topology: \"nvlink:%.*s\" without GPUs; gpu:N is missing",
                 shown(value), value.text);
    }
    dmuon_links_fill(kind, DMUON_LINKS_ALL, mbps);
    return DMUON_SUCCESS;
  }
  DMUON_FAIL(DMUON_ERR_FORMAT,
             "topology: \"nvlink:%.*s\"; right is none, all, pairs, package, cube (with @RATE), a "
             "rate, or a matrix a,b/c,d",
             shown(value), value.text);
}

/* All words up to the end of the group, which is taken too. */
static DMuonErrorCode read_group(const char **at, group *g) {
  *g = (group){.number = {[PACKAGE] = 1, [NODE] = 1}};
  int words = 0;
  for (;; words++) {
    word value = {NULL, 0}, w = next_word(at);
    if (w.length == 0) break;
    int key = find_key(w, &value);
    if (key < 0) {
      DMUON_FAIL(DMUON_ERR_FORMAT,
                 "topology: \"%.*s\" is no word of a description; right are node:N package:N "
                 "numa:N core:N gpu:N nvlink:HOW ib:N fabric:N file:PATH",
                 shown(w), w.text);
    }
    if (g->value[key].text) {
      DMUON_FAIL(DMUON_ERR_FORMAT,
                 "topology: \"%.*s\" after another \"%s:\"; a group says each once, \"+\" begins "
                 "the next",
                 shown(w), w.text, keys[key].name);
    }
    g->value[key] = value;
    if (key == IB) DMUON_TRY(split_rate("ib", &value, &g->ib_mbps));
    if (key < NUMBERS) DMUON_TRY(read_number(key, value, &g->number[key]));
  }
  if (words == 0) {
    DMUON_FAIL(DMUON_ERR_FORMAT,
               "topology: a group without a word; right is like \"node:16 gpu:8 nvlink:all ib:4\"");
  }
  return DMUON_SUCCESS;
}

/* Place of device i of n, spread evenly over so many parts. */
static int16_t spread(int i, int n, int parts) {
  return (int16_t)((int64_t)i * parts / n);
}

static DMuonErrorCode build_kind(const group *g, dmuon_machine_kind *kind) {
  const int *number = g->number;
  kind->packages = number[PACKAGE];
  kind->numa_nodes = g->value[NUMA].text ? number[NUMA] : number[PACKAGE];
  kind->cores = number[CORE];
  kind->gpu_count = number[GPU];
  kind->port_count = number[IB];
  for (int i = 0; i < kind->gpu_count; i++) {
    dmuon_machine_gpu *gpu = &kind->gpus[i];
    dmuon_links_number(gpu->name, sizeof gpu->name, "gpu", i);
    gpu->numa = spread(i, kind->gpu_count, kind->numa_nodes);
    gpu->package = spread(i, kind->gpu_count, kind->packages);
    gpu->port = -1;
    if (kind->port_count > 0) gpu->port = spread(i, kind->gpu_count, kind->port_count);
  }
  for (int i = 0; i < kind->port_count; i++) {
    dmuon_machine_port *port = &kind->ports[i];
    dmuon_links_number(port->name, sizeof port->name, "ib", i);
    port->numa = spread(i, kind->port_count, kind->numa_nodes);
    port->package = spread(i, kind->port_count, kind->packages);
    port->mbps = g->ib_mbps;
  }
  if (g->value[NVLINK].text) DMUON_TRY(read_links(g->value[NVLINK], kind));
  return DMUON_SUCCESS;
}

static DMuonErrorCode read_file(const group *g, dmuon_describe_reader reader, void *context,
                                dmuon_machine_kind *kind) {
  char path[1024];
  word value = g->value[PATH];
  for (int k = 0; k < KEYS; k++) {
    if (!g->value[k].text || k == PATH || k == NODE || k == FABRIC) continue;
    DMUON_FAIL(DMUON_ERR_FORMAT,
               "topology: \"%s:\" beside \"file:\"; the file says it, only node and fabric may "
               "stand beside it",
               keys[k].name);
  }
  if (value.length < 1 || value.length >= (int)sizeof path) {
    DMUON_FAIL(DMUON_ERR_FORMAT,
               "topology: the path behind \"file:\" has %d bytes; right is 1 to %d", value.length,
               (int)sizeof path - 1);
  }
  if (!reader) DMUON_FAIL(DMUON_ERR_UNSUPPORTED, "topology: no files are read here (\"file:\")");
  memcpy(path, value.text, (size_t)value.length);
  path[value.length] = 0;
  return reader(context, path, kind);
}

/* Adds a group's nodes. *fabrics counts the fabrics of the groups before. */
static DMuonErrorCode add_group(dmuon_memory *memory, const group *g,
                                const dmuon_machine_kind *kind, uint64_t *fabrics,
                                dmuon_machine *machine) {
  int nodes = g->number[NODE], share = g->number[FABRIC];
  if (share == 0) return dmuon_machine_add(memory, machine, kind, 0, nodes);
  if (kind->gpu_count == 0 || (kind->gpu_count > 1 && dmuon_links_none(kind))) {
    DMUON_FAIL(DMUON_ERR_FORMAT,
               "topology: \"fabric:%d\" without NVLink in the node; right is like \"gpu:4 "
               "nvlink:all fabric:%d\"",
               share, share);
  }
  for (int done = 0; done < nodes; done += share) {
    int more = nodes - done < share ? nodes - done : share;
    DMUON_TRY(dmuon_machine_add(memory, machine, kind, ++*fabrics, more));
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode read_text(dmuon_memory *memory, const char *text,
                                dmuon_describe_reader reader, void *context,
                                dmuon_machine_kind *kind, dmuon_machine *machine) {
  uint64_t fabrics = 0;
  for (const char *at = text;; at++) {
    group g;
    DMUON_TRY(read_group(&at, &g));
    *kind = (dmuon_machine_kind){0};
    if (g.value[PATH].text) {
      DMUON_TRY(read_file(&g, reader, context, kind));
    } else {
      DMUON_TRY(build_kind(&g, kind));
    }
    DMUON_TRY(add_group(memory, &g, kind, &fabrics, machine));
    if (*at != '+') return DMUON_SUCCESS;
  }
}

DMuonErrorCode dmuon_describe_parse(dmuon_memory *memory, const char *text,
                                    dmuon_describe_reader reader, void *context,
                                    dmuon_machine *machine) {
  dmuon_machine built = {.source = "description"};
  dmuon_machine_kind *kind = NULL;
  if (!text) DMUON_FAIL(DMUON_ERR_FORMAT, "topology: no text");
  DMUON_TRY(dmuon_memory_alloc(memory, 1, sizeof *kind, &kind));
  DMuonErrorCode code = read_text(memory, text, reader, context, kind, &built);
  dmuon_memory_free(kind);
  if (code) {
    dmuon_machine_free(&built);
    return code;
  }
  *machine = built;
  return DMUON_SUCCESS;
}
