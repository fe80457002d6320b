/* Where the ranks of a mesh are: the machine, from the hardware or from a description, and each
 * rank's node and GPU in it. All ranks end up with the same picture. What follows from it is
 * decided elsewhere (split.h, layout.h, place.h, cost.h). */
#ifndef DMUON_MESH_SITE_H
#define DMUON_MESH_SITE_H

#include "mesh/place.h"
#include "mesh/split.h"

typedef enum {
  DMUON_SITE_NODES = 0, /* nothing but which ranks share a node */
  DMUON_SITE_SEEN,      /* the machine was looked at */
  DMUON_SITE_GIVEN      /* it was described */
} dmuon_site_source;

/* How ranks got their GPUs in the picture. */
typedef enum {
  DMUON_GPUS_NONE = 0, /* ranks compute on the host, or no GPU is known */
  DMUON_GPUS_FOUND,    /* by the address of the device that each rank uses */
  DMUON_GPUS_LAID      /* as this library would place them: nobody uses them yet */
} dmuon_site_gpus;

typedef struct {
  dmuon_site_source source;
  dmuon_site_gpus gpus;
  dmuon_machine machine; /* no nodes where source is DMUON_SITE_NODES */
  int size, nodes;       /* ranks, and nodes of the job */
  dmuon_rank_place *places;
} dmuon_site;

/* The nodes of a real mesh, and what they look like: pretended (node_size), described (topology) or
 * looked at by the lowest rank of each where that decides something or was asked for. GPUs are not
 * known yet. Collective, blocks. */
DMuonErrorCode dmuon_site_find(DMuonMesh mesh, dmuon_site *site);
/* Each rank's GPU, once it has its device: collective. */
DMuonErrorCode dmuon_site_find_gpus(DMuonMesh mesh, dmuon_site *site);
/* The same for the ranks of a plan: filled into the described nodes one after another, as many as
 * each has GPUs (else cores), or node_size; otherwise nodes of `block` ranks. Local. */
DMuonErrorCode dmuon_site_plan(DMuonMesh mesh, int size, int64_t block, dmuon_site *site);
/* NULL where nothing is known of it. */
const dmuon_machine *dmuon_site_machine(const dmuon_site *site);
void dmuon_site_free(dmuon_site *site);

/* How many ranks share rank's node, and their GPUs in order (gpus: [site->size], or NULL); *local:
 * which of them rank is. */
void dmuon_site_gpus_of(const dmuon_site *site, int rank, int *gpus, int *local, int *ranks);

/* Do as option bind says, for this process. Before it has its device: the PCI address of the GPU it
 * is to use, in mesh->bound_gpu (ordinals of CUDA count what the process sees, in an order of its
 * own). Afterwards: its cores, beside the GPU that it has. */
DMuonErrorCode dmuon_site_bind_gpu(DMuonMesh mesh, const dmuon_site *site);
DMuonErrorCode dmuon_site_bind_cores(DMuonMesh mesh, const dmuon_site *site);
/* The PCI address of the one GPU that this process shall use, unless SetDevice chose another; NULL:
 * none was bound. */
const char *dmuon_mesh_bound_gpu(DMuonMesh mesh);

#endif
