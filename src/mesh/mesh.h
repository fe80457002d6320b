/* The mesh as the layers above see it: sizes, coordinates, device, communicators by axis and role.
 * What the machine is, site.c finds out; who sits where is decided in split.c and layout.c (pure);
 * setup.c carries it out. */
#ifndef DMUON_MESH_MESH_H
#define DMUON_MESH_MESH_H

#include <dmuon/mesh.h>

#include "base/object.h"
#include "comm/agree.h"
#include "comm/comm.h"
#include "device/device.h"
#include "mesh/cost.h"
#include "mesh/device_choice.h"
#include "mesh/site.h"
#include "mesh/split.h"

/* Option reduce: whose association sums have, on a device that knows another way than ours. */
enum { DMUON_REDUCE_ORDERED = 0, DMUON_REDUCE_NCCL };

/* Option bind: which of the proposals are carried out; bits. */
enum { DMUON_BIND_NONE = 0, DMUON_BIND_CORES = 1, DMUON_BIND_GPU = 2, DMUON_BIND_ALL = 3 };
extern const char *const dmuon_bind_names[];

typedef struct {
  int64_t replicate, shard, tp; /* option, or DMUON_DECIDE */
  int64_t node_size;            /* 0: as found; N: pretend nodes of N ranks */
  char *topology;               /* auto, none, detect, or a description */
  int island, bind;             /* dmuon_island_policy, DMUON_BIND_... */
  int measure_links;
  double timeout;
  char *device;            /* "host", "host:deferred,seed=7", "trace" */
  int reduce;              /* DMUON_REDUCE_... */
  int64_t reduce_fanin;    /* default 32 */
  int64_t chunk_bytes;     /* default 4 MB; 0: from the links */
  char *module_path;       /* NULL or "": where modules are installed */
  double message_delay;    /* seconds; 0: none */
  int64_t fail_allocation; /* 0, or the allocation that fails: for tests */
} dmuon_mesh_settings;

struct DMuonMesh_ {
  dmuon_object object;
  dmuon_context context;
  dmuon_mesh_settings settings;
  dmuon_bootstrap *bootstrap; /* NULL on a plan mesh */
  dmuon_device *device;
  int rank, size;           /* in the bootstrap; the one played and R*G*T on a plan mesh */
  int sizes[3], coords[3];  /* by DMuonAxis; after SetUp */
  int given_coords[3];      /* SetCoords, or -1 */
  int plan_size;            /* ranks of a plan whose sizes are left to the machine */
  int ordinal;              /* SetDevice, or -1 */
  char bound_gpu[24];       /* its PCI address: option bind, or "" */
  DMuonAllocFunction alloc; /* SetAllocator */
  DMuonFreeFunction release;
  void *alloc_context;
  dmuon_queue *copies;       /* of DMuonMeshCopy; NULL until its first call */
  int *node;                 /* [size] lowest rank on the same node */
  int *island;               /* [size] the same of the island (split.h) */
  int *rank_at;              /* [size] rank at position (r*G + s)*T + t */
  dmuon_comm *comms[3][2];   /* by axis and role; NULL where not made */
  unsigned char program[32]; /* which settings the program set */
  /* Facts kept for View. */
  dmuon_site site;
  dmuon_split split;
  dmuon_size_reason reasons[3];
  dmuon_link links[3];                  /* by DMuonAxis, the same on all ranks */
  int64_t chunk_bytes;                  /* in force */
  int64_t optimizers;                   /* set up on it so far */
  int live_optimizers, lent_optimizers; /* that live on it now, and those of them that lend */
  dmuon_device_fact *facts; /* [size] devices of all ranks; NULL: nobody's may be missing */
  char missing_why[256];    /* what the lowest rank without a device said */
  char *transport;          /* NULL: the device's own communication; else staged, and why */
  int is_split;             /* the bootstrap made the communicators of these sizes and order */
  int tie_count, tie_capacity;
  DMuonMesh *ties; /* that break when this one does, and the other way round; not retained */
  int table_count;
  const dmuon_option_table *tables[8]; /* of the classes of objects on this mesh */
};

extern const dmuon_option_table dmuon_mesh_option_table;

/* The handle is a live mesh, MPI can be called from this thread, and the mesh is not broken. */
DMuonErrorCode dmuon_mesh_check(DMuonMesh mesh);
void dmuon_mesh_retain(DMuonMesh mesh);
/* The last release is collective. NULL is fine. */
void dmuon_mesh_release(DMuonMesh mesh);

/* The communicator of axis and role; its size is 1 where the axis is. After SetUp; on a plan mesh
 * those that record, where its device does. */
dmuon_comm *dmuon_mesh_comm(DMuonMesh mesh, DMuonAxis axis, dmuon_role role);
/* Position (r*G + s)*T + t of this rank, and data rank r*G + s. */
int dmuon_mesh_position(DMuonMesh mesh);
int dmuon_mesh_is_plan(DMuonMesh mesh);
/* A plan mesh that is set up plays the rank at these coordinates from now on: its communicators are
 * that rank's. Nothing that was set up on it before may be used meanwhile. */
DMuonErrorCode dmuon_mesh_play(DMuonMesh mesh, int replicate, int shard, int tp);

/* A device on this process's CPU that knows neither a mesh nor MPI, for what works without them.
 * *device: to be given to its destroy. */
DMuonErrorCode dmuon_mesh_create_local_device(dmuon_context *context, dmuon_device **device);

/* A class of objects on this mesh has these options: ViewOptions knows them by name before anybody
 * is set up. Once a class; called by Create. */
void dmuon_mesh_add_table(DMuonMesh mesh, const dmuon_option_table *table);

/* All ranks have the same text, lines "key=value"; else DMUON_ERR_DISAGREE everywhere, with the
 * first line that differs and the rank ("options: shard is 2 on rank 0, 4 on rank 3"). code is this
 * rank's state so far (agreed too, below 100 as DMUON_ERR_SETUP). Collective; local on a plan mesh.
 */
DMuonErrorCode dmuon_mesh_agree_text(DMuonMesh mesh, const char *what, DMuonErrorCode code,
                                     dmuon_text *text);
/* dmuon_agree_error over the mesh; local on a plan mesh. */
DMuonErrorCode dmuon_mesh_agree_error(DMuonMesh mesh, const char *what, DMuonErrorCode code);
/* What a View does with its text: the rank 0 of the mesh writes it, all return the same. */
DMuonErrorCode dmuon_mesh_write(DMuonMesh mesh, const char *what, const dmuon_text *text,
                                const char *path);

/* The mesh's device gave up, or a wait did: no later call waits, and the other ranks are told. */
void dmuon_mesh_break(DMuonMesh mesh, DMuonErrorCode code);
/* Parameters of one model live on both: from now on what breaks one breaks the other, until untied
 * (as often as tied), or one of them goes. Local; every rank of a and b has to do it. Nothing for
 * NULL, plan meshes, and a mesh with itself. DMUON_ERR_MEMORY. */
DMuonErrorCode dmuon_mesh_tie(DMuonMesh a, DMuonMesh b);
void dmuon_mesh_untie(DMuonMesh a, DMuonMesh b);

#endif
