/* Handles, named values and the conventions that hold for every call of libdmuon.
 *
 * Collectivity, said at the head of each function's comment:
 *   collective       over the ranks of the object's mesh; may wait for them.
 *   local            no communication; what ranks say of one parameter must agree over that
 *                    parameter's mesh (own handles, names and values elsewhere); checked at the
 *                    next SetUp or Step.
 *   not collective   never waits, any rank may call it alone.
 * Setters before SetUp are the program's wishes: options (file, environment, command line)
 * override them. After SetUp only the calls marked "live" are legal, and they win over everything.
 * A call in the wrong state changes nothing and says so.
 * Objects are counted: a model keeps its mesh, an optimizer its model; destroy handles in any
 * order, as early as you like; the last release of a mesh is collective, whichever call does it.
 * SetUp of a later object sets up the earlier ones. Names, dims, tables and strings passed in are
 * copied. Outputs are set only on success; NULL where you do not want one.
 * A "pattern" is a glob on full names, '|' between alternatives ("*.bias|ln_*"); a plain name is a
 * pattern. Later rules win. A pattern that matches no name on any rank of the mesh is an error at
 * SetUp.
 * dims are slowest-varying first (C order; a Fortran shape reversed), contiguous. Counts are
 * elements unless called bytes.
 * Threads: one thread at a time in the library; another than MPI's main one needs
 * MPI_THREAD_SERIALIZED (else DMUON_ERR_THREAD).
 * All communication happens inside calls made by you, in the order you make them: the library has
 * no thread of its own. */
#ifndef DMUON_TYPES_H
#define DMUON_TYPES_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__) || defined(__clang__)
#define DMUON_API __attribute__((visibility("default")))
#else
#define DMUON_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct DMuonMesh_ *DMuonMesh;           /* communicators, device, options, logger */
typedef struct DMuonModel_ *DMuonModel;         /* what the parameters are */
typedef struct DMuonPartition_ *DMuonPartition; /* who owns which; a default one is made for you */
typedef struct DMuonOptimizer_ *DMuonOptimizer; /* the runtime and the update */
typedef struct DMuonGroup_ *DMuonGroup; /* parameters communicated together; the optimizer's */
typedef struct DMuonNewtonSchulz_ *DMuonNewtonSchulz; /* also usable alone, without MPI_Init */

#define DMUON_DECIDE (-1) /* let the library choose */
#define DMUON_ALL (-1)    /* as a root: every rank gives (the same) or gets the value */

typedef enum { DMUON_FLOAT32 = 0, DMUON_FLOAT64, DMUON_BFLOAT16, DMUON_FLOAT16 } DMuonDType;

typedef enum {
  DMUON_AXIS_REPLICATE = 0,
  DMUON_AXIS_SHARD,
  DMUON_AXIS_TP,
  DMUON_AXIS_ALL
} DMuonAxis;

/* What carries an axis: the slowest of the links between ranks of its groups. */
typedef enum {
  DMUON_LINK_NONE = 0, /* groups of one rank: nothing is sent */
  DMUON_LINK_NVLINK,
  DMUON_LINK_SHARED_MEMORY,
  DMUON_LINK_PCIE,
  DMUON_LINK_INFINIBAND,
  DMUON_LINK_NETWORK /* between nodes whose ports are not known */
} DMuonLinkClass;

typedef enum {
  DMUON_ROUTE_MUON = 0,
  DMUON_ROUTE_ADAMW,
  DMUON_ROUTE_ADAMW_SHARDED, /* AdamW on equal flat parts over all ranks; library's memory only */
  DMUON_ROUTE_FROZEN         /* lent or broadcast at SetUp, never updated (buffers) */
} DMuonRoute;

typedef enum { DMUON_ROWS = 0, DMUON_COLS } DMuonSide; /* which side of the matrix is the output */

typedef enum {
  DMUON_SCALE_MOONLIGHT = 0, /* 0.2 sqrt(max(out, in)) */
  DMUON_SCALE_JORDAN,        /* sqrt(max(1, out/in)) */
  DMUON_SCALE_SPECTRAL,      /* sqrt(max(out, in)) */
  DMUON_SCALE_UNIT_RMS,      /* sqrt(out/in) */
  DMUON_SCALE_NONE           /* 1 */
} DMuonScale;

typedef enum {
  DMUON_CLIP_NONE = 0,
  DMUON_CLIP_GLOBAL,  /* one norm over everything */
  DMUON_CLIP_BY_ROUTE /* one each for muon and adamw */
} DMuonClip;

typedef enum {
  DMUON_HYPER_LR = 0,
  DMUON_HYPER_MOMENTUM,
  DMUON_HYPER_WEIGHT_DECAY,
  DMUON_HYPER_BETA1,
  DMUON_HYPER_BETA2,
  DMUON_HYPER_EPS
} DMuonHyper;

typedef enum {
  DMUON_SCHEDULE_CONSTANT = 0,
  DMUON_SCHEDULE_LINEAR,
  DMUON_SCHEDULE_COSINE,
  DMUON_SCHEDULE_WSD
} DMuonSchedule;

/* When a group's buffer is given back: Z3 after forward, and fetched again for backward; Z2 kept
 * until Step (EVAL: until the pass ends). */
typedef enum { DMUON_Z3 = 0, DMUON_Z2 } DMuonReshard;

/* What the brackets opened from now on are for: gradients reduced at the end | kept as local sums |
 * no backward follows. */
typedef enum { DMUON_PASS_TRAIN = 0, DMUON_PASS_ACCUMULATE, DMUON_PASS_EVAL } DMuonPass;

/* Any rank may leave any group out | any order, the same on all ranks. */
typedef enum { DMUON_ORDER_REGISTERED = 0, DMUON_ORDER_PROGRAM } DMuonOrder;

/* Lent gradients are zeroed and you add to them | undefined, and you write all of them. */
typedef enum { DMUON_GRAD_ADD = 0, DMUON_GRAD_OVERWRITE } DMuonGradMode;

typedef enum { DMUON_DEVICE_HOST = 0, DMUON_DEVICE_CUDA, DMUON_DEVICE_TRACE } DMuonDevice;

/* Memory of the device that a mesh computes on, from the program's own pool, in the order of
 * stream, a cudaStream_t. NULL is returned when there is none left. */
typedef void *(*DMuonAllocFunction)(void *ctx, size_t bytes, void *stream);
typedef void (*DMuonFreeFunction)(void *ctx, void *ptr, size_t bytes, void *stream);

#ifdef __cplusplus
}
#endif
#endif
