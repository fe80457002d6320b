/* Machines in words. A short text stands for a whole cluster, for tests, for planning, and for
 * people to show theirs:
 *
 *   text     a group, or several joined by "+": "node:2 gpu:8 nvlink:all + node:2 gpu:4"
 *   group    words separated by blanks, each at most once, in any order:
 *     node:N       that many equal nodes (1)
 *     package:N    processors in a node (1)
 *     numa:N       NUMA nodes in a node (as many as packages)
 *     core:N       cores in a node (not known)
 *     gpu:N        GPUs in a node (0), spread evenly over NUMA nodes and packages
 *     nvlink:HOW   what connects the GPUs of a node (none):
 *       none       nothing
 *       all        every two, as through switches; 450 GB/s unless given
 *       pairs      0 with 1, 2 with 3, ...; 75 GB/s
 *       package    every two of one package; 75 GB/s
 *       cube       the hybrid cube mesh of eight GPUs, single and double links; 25 GB/s a link
 *       RATE       as all@RATE
 *       a,b/c,d    one row a GPU, rows separated by "/", rates by ","; 0 on the diagonal
 *     ib:N         network ports in a node (0), spread evenly like the GPUs
 *     fabric:N     N nodes each after the other share one NVLink fabric (racks)
 *     file:PATH    the node as an hwloc XML file has it; only node and fabric beside it
 *   all, pairs, package, cube and ib:N take a rate behind "@": nvlink:all@900GB, ib:8@400Gb
 *   RATE     a number, alone or with MB, GB (10^6, 10^9 bytes a second), Mb, Gb (bits); alone it is
 *            MB; in one direction
 *
 * Pure but for the file, which a callback reads. */
#ifndef DMUON_TOPO_DESCRIBE_H
#define DMUON_TOPO_DESCRIBE_H

#include "base/text.h"
#include "topo/machine.h"

/* Fills *kind from a file. */
typedef DMuonErrorCode (*dmuon_describe_reader)(void *context, const char *path,
                                                dmuon_machine_kind *kind);

/* The machine a text describes. DMUON_ERR_FORMAT names the word and what would be right. reader may
 * be NULL: "file:" is an error then. *machine is written on success only. */
DMuonErrorCode dmuon_describe_parse(dmuon_memory *memory, const char *text,
                                    dmuon_describe_reader reader, void *context,
                                    dmuon_machine *machine);

/* The inverse: one line in the words above. Names of devices are not in it, nor which port is near
 * which GPU, nor fabrics whose nodes do not follow each other. */
void dmuon_describe_short(dmuon_text *text, const dmuon_machine *machine);

/* A few lines for people, each begun by indent: how many nodes and from where, the words above one
 * group a line, GPUs with their ports, what is lost. */
void dmuon_describe_print(dmuon_text *text, const char *indent, const dmuon_machine *machine);

/* "450 GB/s" for 450000; "?" for 0. buffer of at least 32. */
const char *dmuon_describe_rate(char *buffer, double mbps);

#endif
