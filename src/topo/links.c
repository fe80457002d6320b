/* The patterns of NVLink: a number of links between each two GPUs of a node, times a rate. */
#include "topo/links.h"

#include <stdio.h>
#include <string.h>

static const struct {
  const char *name;
  double mbps;
} patterns[DMUON_LINKS_PATTERNS] = {
    [DMUON_LINKS_NONE] = {"none", 0},
    [DMUON_LINKS_ALL] = {"all", 450000},    /* 18 links of NVLink 4 into switches */
    [DMUON_LINKS_PAIRS] = {"pairs", 75000}, /* three links of NVLink 2 */
    [DMUON_LINKS_PACKAGE] = {"package", 75000},
    [DMUON_LINKS_CUBE] = {"cube", 25000}, /* one link of NVLink 2 */
};

/* Two squares of four with their diagonals, corner by corner joined by double links. */
static const char cube[8][9] = {
    "01122000", /* */
    "10210200", /* */
    "12020010", /* */
    "21200001", /* */
    "20000112", /* */
    "02001021", /* */
    "00101202", /* */
    "00012120", /* */
};

const char *dmuon_links_name(int pattern) {
  return patterns[pattern].name;
}

double dmuon_links_rate(int pattern) {
  return patterns[pattern].mbps;
}

static int links_between(const dmuon_machine_kind *kind, int pattern, int i, int j) {
  if (i == j) return 0;
  switch (pattern) {
    case DMUON_LINKS_ALL:
      return 1;
    case DMUON_LINKS_PAIRS:
      return i / 2 == j / 2;
    case DMUON_LINKS_PACKAGE:
      return kind->gpus[i].package == kind->gpus[j].package;
    case DMUON_LINKS_CUBE:
      return i < 8 && j < 8 ? cube[i][j] - '0' : 0;
    default:
      return 0;
  }
}

void dmuon_links_fill(dmuon_machine_kind *kind, int pattern, double mbps) {
  for (int i = 0; i < kind->gpu_count; i++) {
    for (int j = 0; j < kind->gpu_count; j++) {
      kind->nvlink_mbps[i][j] = (float)(mbps * links_between(kind, pattern, i, j));
    }
  }
}

int dmuon_links_none(const dmuon_machine_kind *kind) {
  for (int i = 0; i < kind->gpu_count; i++) {
    for (int j = 0; j < kind->gpu_count; j++) {
      if (kind->nvlink_mbps[i][j] > 0) return 0;
    }
  }
  return 1;
}

static int fits(const dmuon_machine_kind *kind, int pattern, double mbps) {
  for (int i = 0; i < kind->gpu_count; i++) {
    for (int j = 0; j < kind->gpu_count; j++) {
      if (kind->nvlink_mbps[i][j] != (float)(mbps * links_between(kind, pattern, i, j))) return 0;
    }
  }
  return 1;
}

int dmuon_links_find(const dmuon_machine_kind *kind, double *mbps) {
  *mbps = 0;
  /* The smallest rate there is; in each pattern it is that of one link. */
  for (int i = 0; i < kind->gpu_count; i++) {
    for (int j = 0; j < kind->gpu_count; j++) {
      double rate = kind->nvlink_mbps[i][j];
      if (rate > 0 && (*mbps == 0 || rate < *mbps)) *mbps = rate;
    }
  }
  if (*mbps == 0) return DMUON_LINKS_NONE;
  for (int p = DMUON_LINKS_ALL; p < DMUON_LINKS_PATTERNS; p++) {
    if ((p != DMUON_LINKS_CUBE || kind->gpu_count == 8) && fits(kind, p, *mbps)) return p;
  }
  return DMUON_LINKS_PATTERNS;
}

void dmuon_links_number(char *name, size_t size, const char *stem, int number) {
  (void)snprintf(name, size, "%s%d", stem, number);
}
