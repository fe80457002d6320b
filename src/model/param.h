/* One parameter as the library sees it: what was registered, and what was decided about it.
 *
 * The matrix view of a parameter: `batch` separate matrices of rows x cols, one after another in
 * memory. Blocks cut the output side of each: the side is repeat * sum(blocks) long, and part j of
 * all repeats together is one matrix of its own. */
#ifndef DMUON_MODEL_PARAM_H
#define DMUON_MODEL_PARAM_H

#include <dmuon/model.h>

#include "base/memory.h"

enum { DMUON_MAX_DIMS = 8 };

typedef struct {
  char *name;
  DMuonDType dtype, grad_dtype, master_dtype, state_dtype;
  int ndim;
  int64_t dims[DMUON_MAX_DIMS];
  int nbatch, nrow; /* how many leading dims are batch, how many next ones rows; rest: columns */
  int64_t numel, batch, rows, cols;
  DMuonSide output;
  int nblocks; /* 0: not cut */
  int64_t *blocks;
  int repeat;
  DMuonRoute route;
  char *route_reason;   /* "matrix in numbered block h.3", "pattern \"*.bias\"" */
  char *group;          /* key: "h.3" */
  int is_lent;          /* lives in the library's memory: registered without arrays */
  DMuonReshard reshard; /* of its group */
  int mesh;             /* index of the mesh of its copies in the registry */
  /* Index of the mesh whose losses its gradient sums. Ranks may name different ones (each pipeline
   * stage its own) as long as the number of data ranks, the divisor, is one: the model's params
   * have this rank's, the registry's have that of the lowest rank that holds the parameter. */
  int losses;
} dmuon_param;

/* ---- matrix.c ---- */

/* numel from ndim and dims, checked: 0 <= ndim <= DMUON_MAX_DIMS, no negative extent, the bytes of
 * all elements (zero extents counted as one) below 2^63. DMUON_ERR_ARGUMENT names the shape. */
DMuonErrorCode dmuon_shape_check(const char *name, DMuonDType dtype, int ndim, const int64_t *dims,
                                 int64_t *numel);
/* Sets batch, rows, cols. DMUON_ERR_SETUP when nbatch + nrow do not fit into ndim. nbatch < 0: the
 * default view, 0 and 1 (a vector is n x 1, a scalar 1 x 1). */
DMuonErrorCode dmuon_param_view(dmuon_param *param, int nbatch, int nrow);
/* The output side is repeat * sum(blocks), else DMUON_ERR_SETUP with the values. */
DMuonErrorCode dmuon_param_check_blocks(const dmuon_param *param);
/* No dims are left for the rows, or none for the columns: not a matrix, whatever its extents. */
int dmuon_param_is_vector(const dmuon_param *param);
/* The length that blocks cut. */
int64_t dmuon_param_output_side(const dmuon_param *param);

/* Output and input extent of one matrix of the parameter (block j; j = 0 when not cut), for the
 * scale rules. */
void dmuon_param_fans(const dmuon_param *param, int block, int64_t *out, int64_t *in);

/* A hash of all that ranks must agree on (not of the pointers), the ordinal within its mesh too. */
uint64_t dmuon_param_hash(const dmuon_param *param, int64_t ordinal);

/* ---- param.c ---- */

/* A deep copy; *to is overwritten, and empty (fit for free) when the copy fails. */
DMuonErrorCode dmuon_param_copy(dmuon_memory *memory, dmuon_param *to, const dmuon_param *from);
/* Frees what the parameter owns, not the struct itself; leaves it empty. */
void dmuon_param_free(dmuon_param *param);
void dmuon_params_free(dmuon_param *params, int count); /* and the array; NULL is fine */

/* "8x6", "768", "scalar"; cut short where buffer ends. Returns buffer. */
const char *dmuon_shape_text(char *buffer, size_t size, int ndim, const int64_t *dims);
/* "4 of 8x6, blocks 2x(2,2)": the matrix view, for people. Returns buffer. */
const char *dmuon_view_text(char *buffer, size_t size, const dmuon_param *param);
/* "layers.0.weight: fp32 8x6, muon, group layers.0": what messages and logs say of it. */
const char *dmuon_param_describe(char *buffer, size_t size, const dmuon_param *param);
const char *dmuon_route_name(DMuonRoute route); /* "muon", "adamw", "adamw_sharded", "frozen" */
const char *dmuon_side_name(DMuonSide side);    /* "rows", "cols" */

#endif
