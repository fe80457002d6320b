/* The registry: every parameter of every rank of the model's mesh, in one order that all ranks
 * share (ranks in order, each in its own order of registration, names seen before left out), and
 * every mesh that they live on. When all ranks registered the same, it is just what this rank
 * registered; else it is put together over the ranks at SetUp. Plans, partitions, norms and
 * agreements are indexed by it. */
#ifndef DMUON_MODEL_REGISTRY_H
#define DMUON_MODEL_REGISTRY_H

#include "mesh/mesh.h"
#include "model/param.h"

typedef struct {
  char *name;
  int replicate, shard, tp;
  int size;       /* replicate * shard * tp */
  int *ranks;     /* [size] position in the model's mesh at position (r*G + s)*T + t of this one */
  DMuonMesh mesh; /* this rank's handle, retained; NULL when this rank is not in it */
} dmuon_registry_mesh;

typedef struct {
  dmuon_memory *memory;
  int mesh_count; /* 0 is the model's own */
  dmuon_registry_mesh *meshes;
  int tied; /* so many of them break with the model's own, and it with them */
  int param_count;
  dmuon_param *params;
  int local_count;      /* parameters that this rank holds */
  int *local_to_global; /* [local_count], by id */
  int *global_to_local; /* [param_count], -1 where not held */
  uint64_t hash;        /* of all of it; equal on all ranks */
} dmuon_registry;

void dmuon_registry_free(dmuon_registry *registry);

#endif
