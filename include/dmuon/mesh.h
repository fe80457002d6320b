/* The mesh: replicate x shard x tp ranks, their communicators, device and options.
 *
 * A mesh is made over a communicator of the program, set up once, and used by models. Sizes may be
 * left to the library: shard is the ranks of an island (their greatest common divisor when islands
 * differ), replicate the rest, tp one. An island is what the fastest links join: the NVLink domain
 * of the ranks' GPUs, in a node or over several, else the node. Ranks are renumbered so that tp and
 * shard groups stay inside islands whatever placement the launcher used; View shows how and why.
 * Which part of the batch a rank reads is asked with DMuonMeshGetDataRank. Every live mesh has
 * communicators of its own.
 *
 * Options: replicate, shard, tp (decide), node_size (0: nodes as found; N: pretend nodes of N
 * ranks in order), topology (auto; see DMuonMeshSetTopology), island (auto, nvlink, node: what
 * shard groups stay inside), bind (none, cores, gpu, all: carry out the places that View proposes:
 * cores for as long as the process lives, the GPU by its PCI address), measure_links (0; 1:
 * measure what DMuonMeshGetLink tells, some 30 MB a rank and axis at SetUp), timeout (300), device
 * (host, host:deferred,seed=N,late, host:trace, trace, cuda, cuda:ordinal=N,tf32,batched,staged),
 * module_path (its directory), reduce (ordered: sums on a GPU have the bits of the host's; nccl:
 * NCCL's own), reduce_fanin (32), chunk_bytes (4194304; 0: from the links' cost), message_delay
 * (0; seconds, for tests of overlap), fail_allocation (0; N: the N-th allocation from SetUp on
 * fails, for tests). */
#ifndef DMUON_MESH_H
#define DMUON_MESH_H

#include <dmuon/error.h>
#include <dmuon/types.h>
#include <mpi.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What this rank sent along an axis since SetUp. Set struct_size = sizeof before the call. */
typedef struct {
  size_t struct_size;
  int64_t operations;
  int64_t bytes_sent; /* payload: received in unshard and publish, sent in reduce */
  double seconds_waited;
} DMuonCommInfo;

/* What carries an axis. Set struct_size = sizeof before the call. */
typedef struct {
  size_t struct_size;
  DMuonLinkClass link_class;
  int is_measured;         /* 0: estimated from what is known of the machine */
  double latency_seconds;  /* of an operation */
  double bytes_per_second; /* of one rank while all communicate; 0 where nothing is sent */
} DMuonLinkInfo;

/* level: 1 somebody should look at it (an option that nobody used), 2 once a set-up, 3 each step.
 */
typedef void (*DMuonLogFunction)(void *ctx, int level, const char *line);

/* Makes a mesh over comm, which is duplicated (once; a cache on comm keeps duplicates for the next
 * mesh) and may be freed at once. No traffic is ever shared between two meshes.
 * Collective over comm, blocks (at most 300 s). *mesh: yours to destroy. DMUON_ERR_STATE before
 * MPI_Init and after MPI_Finalize, DMUON_ERR_THREAD, DMUON_ERR_ARGUMENT for MPI_COMM_NULL and
 * intercommunicators: on this rank, nothing was sent. DMUON_ERR_MEMORY, DMUON_ERR_COMM. */
DMUON_API DMuonErrorCode DMuonMeshCreate(MPI_Comm comm, DMuonMesh *mesh);

/* The same from a Fortran handle: an integer of `use mpi`, or comm%MPI_VAL of `use mpi_f08`. */
DMUON_API DMuonErrorCode DMuonMeshCreateFortran(MPI_Fint comm, DMuonMesh *mesh);

/* A mesh without ranks, communicators or MPI: models and partitions work on it, for any size. How a
 * described machine would be used is asked of one, too: (N, 1, 1) for N ranks, SetTopology, and
 * SetSizes with DMUON_DECIDE.
 * Sizes at least 1. Not collective; does not block. DMUON_ERR_ARGUMENT, DMUON_ERR_MEMORY. */
DMUON_API DMuonErrorCode DMuonMeshCreatePlan(int replicate, int shard, int tp, DMuonMesh *mesh);

/* A name (copied) for messages and for options that concern this mesh alone ("NAME.timeout");
 * default "mesh". Not empty, without control characters, '=' and '#'; with a blank in it no option
 * of the command line can name it.
 * Local; before SetUp. DMUON_ERR_ARGUMENT, DMUON_ERR_STATE. */
DMUON_API DMuonErrorCode DMuonMeshSetName(DMuonMesh mesh, const char *name);

/* Ranks an axis, at least 1, or DMUON_DECIDE where the machine shall say. Whether they fit is found
 * at SetUp (DMUON_ERR_SETUP: "replicate 3 x shard 2 x tp 1 = 6 ranks, the communicator has 8"). A
 * plan mesh has a machine to ask when topology says one; its ranks are then as many as were given
 * last.
 * Local; before SetUp. Options replicate, shard, tp. DMUON_ERR_ARGUMENT, DMUON_ERR_STATE. */
DMUON_API DMuonErrorCode DMuonMeshSetSizes(DMuonMesh mesh, int replicate, int shard, int tp);

/* This rank's place, for programs with axes of their own: then every rank must give one, and
 * together they must form a full grid (else DMUON_ERR_SETUP at SetUp, naming ranks). Sizes left to
 * be decided follow from them. On a plan mesh: which of its ranks this process plays, where the
 * device is trace (default: the first). Local, own values; before SetUp. DMUON_ERR_ARGUMENT,
 * DMUON_ERR_STATE. */
DMUON_API DMuonErrorCode DMuonMeshSetCoords(DMuonMesh mesh, int replicate, int shard, int tp);

/* Which device does the arithmetic; ordinal: which one of several, as in cudaSetDevice,
 * DMUON_DECIDE: the current one (of no meaning for the host). DMUON_DEVICE_CUDA: arrays given to
 * the library lie in the GPU's memory (of this program, or of DMuonMeshAlloc); where no rank finds
 * what it needs (driver, GPU, libraries) SetUp says what is missing, with DMUON_ERR_SETUP.
 * DMUON_DEVICE_TRACE: nothing is carried out, operations are only recorded; for plan meshes
 * (DMUON_ERR_SETUP at SetUp of another).
 * Local, own ordinal; before SetUp. Options device, module_path. DMUON_ERR_UNSUPPORTED for a
 * backend that is not compiled in; DMUON_ERR_ARGUMENT, DMUON_ERR_STATE. */
DMUON_API DMuonErrorCode DMuonMeshSetDevice(DMuonMesh mesh, DMuonDevice device, int ordinal);

/* Device memory comes from the program's own pool: one pool, not two that fight for the card. alloc
 * is called by SetUps, by DMuonMeshAlloc, and by the first call of what needs room of its own
 * (Copy, Accumulate, Newton-Schulz alone), never inside a step, with the device current and stream
 * NULL, the default stream, behind which the memory is there (the library waits for that); release
 * when nothing uses it any more. 256-byte aligned. NULL, NULL: the library's own way, the default.
 * The host's memory does not come from it. ctx: kept until the last object on the mesh is
 * destroyed. Local, own functions; before SetUp. DMUON_ERR_ARGUMENT for one without the other,
 * DMUON_ERR_STATE. */
DMUON_API DMuonErrorCode DMuonMeshSetAllocator(DMuonMesh mesh, DMuonAllocFunction alloc,
                                               DMuonFreeFunction release, void *ctx);

/* The machine: the path of an hwloc XML file (one node; all are taken to look like it), or a text
 * for a cluster ("node:16 gpu:8 nvlink:all ib:4"; doc/design.md has the words). The job's nodes, by
 * their lowest rank, are laid on the described ones in order, again and again when there are more;
 * the ranks of a plan fill them one after another, one a GPU (a core where there is none). GPUs are
 * then taken as this library would place ranks. Or one of: "auto" (the default): each node's lowest
 * rank looks where that decides something (a GPU device, several nodes, binding); "detect": it
 * looks anyway; "none": nobody looks, and nodes are all that is known. Copied. What could not be
 * seen, and without hwloc that is much, is said by View.
 * Local; before SetUp. Option topology. What is wrong with it is said by SetUp: DMUON_ERR_FILE,
 * DMUON_ERR_FORMAT, DMUON_ERR_UNSUPPORTED (a file, without hwloc). DMUON_ERR_ARGUMENT,
 * DMUON_ERR_STATE. */
DMUON_API DMuonErrorCode DMuonMeshSetTopology(DMuonMesh mesh, const char *topology);

/* A function that gets the library's log lines; NULL: silent, the default. ctx is used until the
 * last object on the mesh is destroyed. Not collective; live. */
DMUON_API DMuonErrorCode DMuonMeshSetLogger(DMuonMesh mesh, DMuonLogFunction log, void *ctx);

/* The longest wait for another rank in seconds; 0: for ever; default 300. A longer one ends with
 * DMUON_ERR_TIMEOUT, naming the silent ranks, and the mesh is broken: on the other ranks with
 * DMUON_ERR_REVOKED, naming the rank that gave up and its reason (see DMuonMeshRevoke).
 * Local; live. Option timeout. DMUON_ERR_ARGUMENT. */
DMUON_API DMuonErrorCode DMuonMeshSetTimeout(DMuonMesh mesh, double seconds);

/* Reads options for all objects on the mesh: the files named by -dmuon_options_file and
 * DMUON_OPTIONS_FILE, the environment (DMUON_X), the command line (-dmuon_X [value]); later sources
 * win. What is understood as ours is taken out of argv. argc and argv may be NULL.
 * Local; before SetUp. DMUON_ERR_FILE, DMUON_ERR_FORMAT, DMUON_ERR_ARGUMENT; nothing is recorded
 * then. Ranks that read different options are told at SetUp. */
DMUON_API DMuonErrorCode DMuonMeshSetFromOptions(DMuonMesh mesh, int *argc, char **argv);

/* One option as if on the command line: ("prefetch_depth", "2"), or ("disc.lr", "1e-3") for the
 * object named disc. value NULL: a bare flag. Strings are copied.
 * Local; before SetUp of the object that it concerns (DMUON_ERR_STATE for the mesh's own after).
 * Whether anybody knows the name is told by ViewOptions. DMUON_ERR_ARGUMENT. */
DMUON_API DMuonErrorCode DMuonMeshSetOption(DMuonMesh mesh, const char *name, const char *value);

/* The value in force of an option, or what was said of it before SetUp, as text of the library's,
 * good until the mesh's next change; source: default, program, file, environment, command line,
 * live. Outputs may be NULL. Not collective. DMUON_ERR_NOT_FOUND names the nearest. */
DMUON_API DMuonErrorCode DMuonMeshGetOption(DMuonMesh mesh, const char *name, const char **value,
                                            const char **source);

/* Carries the wishes out: agrees the options over all ranks, finds the nodes, places the ranks,
 * makes device and communicators. Optional: SetUp of later objects does it. A second call does
 * nothing.
 * Collective, blocks; not collective on a plan mesh. DMUON_ERR_DISAGREE names the option and the
 * rank that differ; DMUON_ERR_SETUP, DMUON_ERR_MEMORY: the same on every rank, the mesh is as
 * before. From 200: the mesh is broken. */
DMUON_API DMuonErrorCode DMuonMeshSetUp(DMuonMesh mesh);

/* Memory where the mesh computes: on the host this process's, on a GPU that GPU's (not to be
 * touched by the host). 256-byte aligned, content undefined; yours to give to DMuonMeshFree, before
 * the mesh goes. With Copy, programs need no CUDA of their own. Not collective; does not block;
 * after SetUp. DMUON_ERR_MEMORY, DMUON_ERR_ARGUMENT, DMUON_ERR_STATE (also on a plan mesh without a
 * device). */
DMUON_API DMuonErrorCode DMuonMeshAlloc(DMuonMesh mesh, int64_t bytes, void **ptr);

/* Gives memory of DMuonMeshAlloc back and sets *ptr to NULL; nothing of yours or the library's may
 * still use it (DMuonOptimizerWait). NULL, and a pointer to NULL: fine. Not collective. */
DMUON_API DMuonErrorCode DMuonMeshFree(DMuonMesh mesh, void **ptr);

/* dst[0..bytes) = src[0..bytes), which do not overlap; each is memory of the host or of the device.
 * Comes after what your stream holds (DMuonOptimizerSetStream), and so after what the library lent
 * you; it is done when the call returns. For set-up, results and tests: a loop's own copies are
 * better made on its stream. Not collective; blocks for the copy. DMUON_ERR_ARGUMENT,
 * DMUON_ERR_STATE, DMUON_ERR_DEVICE. */
DMUON_API DMuonErrorCode DMuonMeshCopy(DMuonMesh mesh, void *dst, const void *src, int64_t bytes);

/* The sizes of the axes. Outputs may be NULL. Not collective; after SetUp. DMUON_ERR_STATE. */
DMUON_API DMuonErrorCode DMuonMeshGetSizes(DMuonMesh mesh, int *replicate, int *shard, int *tp);

/* This rank's coordinates; on a plan mesh those of SetCoords, else zeros. Outputs may be NULL. Not
 * collective; after SetUp. DMUON_ERR_STATE. */
DMUON_API DMuonErrorCode DMuonMeshGetCoords(DMuonMesh mesh, int *replicate, int *shard, int *tp);

/* Which part of the batch this rank reads: rank in [0, size); size = replicate * shard, and ranks
 * of one tp group get the same. Outputs may be NULL. Not collective; after SetUp. DMUON_ERR_STATE.
 */
DMUON_API DMuonErrorCode DMuonMeshGetDataRank(DMuonMesh mesh, int *rank, int *size);

/* What this rank communicated along axis (DMUON_AXIS_ALL: all of them together). Not collective;
 * after SetUp. DMUON_ERR_ARGUMENT, DMUON_ERR_STATE. */
DMUON_API DMuonErrorCode DMuonMeshGetCommInfo(DMuonMesh mesh, DMuonAxis axis, DMuonCommInfo *info);

/* What communication along axis (replicate, shard, tp) costs: the slowest link of its groups, the
 * same on all ranks. Not collective; after SetUp. DMUON_ERR_ARGUMENT, DMUON_ERR_STATE. */
DMUON_API DMuonErrorCode DMuonMeshGetLink(DMuonMesh mesh, DMuonAxis axis, DMuonLinkInfo *info);

/* This rank gives up, for a reason (copied; about 150 bytes of it reach the others; NULL: none).
 * The mesh is broken on all its ranks: pending and later calls return DMUON_ERR_REVOKED with the
 * rank and the reason, at once where a rank waits inside the library, else at its next call (a
 * rank that waits in communication of its own learns of it then, not before). What is under way is
 * dropped: arrays that a Step was writing hold old or new values. This call returns
 * DMUON_ERR_REVOKED too, so `return DMuonMeshRevoke(...)` is the way out; on a mesh that was broken
 * before, the code of that. Meshes that a model uses together (DMuonModelSetMesh) break together;
 * no other mesh does. Afterwards View, Get..., Destroy still work, and a new mesh can be created
 * over the same communicator.
 * Not collective; never waits. DMUON_ERR_ARGUMENT, DMUON_ERR_STATE (a plan mesh, no MPI),
 * DMUON_ERR_THREAD: nothing happened. */
DMUON_API DMuonErrorCode DMuonMeshRevoke(DMuonMesh mesh, const char *reason);

/* Lets communication under way advance, of all meshes of the process; a few microseconds. To be
 * called now and then in long computations. Not collective; does not block. An error from 200 when
 * something under way failed. */
DMUON_API DMuonErrorCode DMuonMeshProgress(DMuonMesh mesh);

/* Text for people: sizes and why, machine, which axes cross nodes, who sits where, device. Written
 * once, to the file path (replaced) or to standard output when path is NULL.
 * Collective, blocks; at any time (on a broken mesh nobody waits). DMUON_ERR_FILE on every rank. */
DMUON_API DMuonErrorCode DMuonMeshView(DMuonMesh mesh, const char *path);

/* Every option in force with value, source and help, then what was said and used by nobody, with
 * the nearest known name. As View. */
DMUON_API DMuonErrorCode DMuonMeshViewOptions(DMuonMesh mesh, const char *path);

/* This rank's facts as JSON in *json, to be freed with DMuonFree: sizes, coordinates, nodes,
 * counters by axis, memory. Not collective; after SetUp. DMUON_ERR_STATE, DMUON_ERR_MEMORY. */
DMUON_API DMuonErrorCode DMuonMeshSummary(DMuonMesh mesh, char **json);

/* Gives the handle up and sets it to NULL; models on the mesh keep it. Never fails; *mesh NULL, not
 * set up, broken, or after MPI_Finalize: fine; from a thread that may not call MPI its memory is
 * left. Collective when it is the last holder. */
DMUON_API DMuonErrorCode DMuonMeshDestroy(DMuonMesh *mesh);

#ifdef __cplusplus
}
#endif
#endif
