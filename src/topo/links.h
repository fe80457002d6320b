/* Patterns of NVLink between the GPUs of a node, by name: what they are, and which one a node has.
 * Pure. */
#ifndef DMUON_TOPO_LINKS_H
#define DMUON_TOPO_LINKS_H

#include "topo/machine.h"

enum {
  DMUON_LINKS_NONE,
  DMUON_LINKS_ALL,     /* every two */
  DMUON_LINKS_PAIRS,   /* 0 with 1, 2 with 3, ... */
  DMUON_LINKS_PACKAGE, /* every two of one package */
  DMUON_LINKS_CUBE,    /* the hybrid cube mesh of eight GPUs: six links each, single and double */
  DMUON_LINKS_PATTERNS
};

const char *dmuon_links_name(int pattern);
/* The usual bandwidth (of a single link for the cube), 10^6 bytes/s. */
double dmuon_links_rate(int pattern);

void dmuon_links_fill(dmuon_machine_kind *kind, int pattern, double mbps);
int dmuon_links_none(const dmuon_machine_kind *kind);
/* The pattern the links of kind have and its *mbps; DMUON_LINKS_PATTERNS: another one. */
int dmuon_links_find(const dmuon_machine_kind *kind, double *mbps);

/* "gpu3": names where nothing better is known. */
void dmuon_links_number(char *name, size_t size, const char *stem, int number);

#endif
