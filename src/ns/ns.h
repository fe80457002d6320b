/* Newton-Schulz: from settings to a recipe (recipe.c), from a recipe to a plan for one shape
 * (plan.c, pure; choice.c: what somebody measured), and from a plan to operations on a queue
 * (run.c). The iteration X <- aX +
 * b(XX^T)X + c(XX^T)^2 X drives every singular value of the Frobenius-normalised matrix through one
 * scalar polynomial; the direct form computes it as written, the Gram form on the small side only,
 * with restarts. */
#ifndef DMUON_NS_NS_H
#define DMUON_NS_NS_H

#include <dmuon/newton_schulz.h>

#include "base/object.h"
#include "device/device.h"
#include "ns/choice.h"

/* ---- coefficients (tables.c, poly.c) ---- */

typedef struct {
  const char *name;
  int steps;
  const double *abc;  /* [3*steps] */
  const char *source; /* whose numbers these are */
} dmuon_ns_table;
int dmuon_ns_table_count(void);
const dmuon_ns_table *dmuon_ns_table_at(int index);
const dmuon_ns_table *dmuon_ns_table_find(const char *name); /* NULL: none of this name */

/* The polynomial at a normalised singular value, and its slope at 0, in fp64. */
double dmuon_ns_evaluate(int steps, const double *abc, double sigma);
double dmuon_ns_slope(int steps, const double *abc);

/* ---- restarts (restarts.c) ---- */

enum { DMUON_NS_RESTARTS_MAX = 6 };    /* that are searched for; given ones may be more */
#define DMUON_NS_CONDITION_GOOD 1e3    /* fit for 16-bit iterations */
#define DMUON_NS_CONDITION_USELESS 1e8 /* from here on the Gram form is not chosen */

typedef struct {
  int count, at[DMUON_NS_RESTARTS_MAX]; /* steps before which Q is applied; ascending, from 1 */
  double condition;                     /* of the criterion in restarts.c */
} dmuon_ns_restarts;

DMuonErrorCode dmuon_ns_restarts_find(dmuon_memory *memory, int steps, const double *abc,
                                      dmuon_ns_restarts *found);
DMuonErrorCode dmuon_ns_condition(dmuon_memory *memory, int steps, const double *abc, int count,
                                  const int *at, double *value);

/* ---- recipe (recipe.c) and plan (plan.c) ---- */

/* A matrix in memory, perhaps in strips: `strips` pieces of `strip` rows (side ROWS) or columns
 * (side COLS), each beginning `stride` elements after the one before; strips * strip is rows
 * (cols). A plain matrix is one strip. */
typedef struct {
  int64_t rows, cols, ld;
  DMuonSide side;
  int64_t strips, strip, stride;
} dmuon_ns_view;

/* Coefficients and choices, independent of shape. */
typedef struct {
  dmuon_ns_variant variant;
  int steps;
  double *abc; /* [3*steps]; owned */
  int restart_count;
  int *restarts;        /* ascending; owned */
  double condition;     /* of these restarts */
  int iterate_is_given; /* else the matrix's dtype, at least fp32, or see prefers_half */
  DMuonDType iterate;
  int prefers_half;         /* of the device: fp16 where nobody said otherwise */
  int prefers_batches;      /* of the device: matrices of one shape together */
  int64_t batch;            /* most matrices together; 0: by rule */
  dmuon_ns_choices choices; /* owned */
} dmuon_ns_recipe;

/* restarts: "auto", "none", or positions "1,3". On failure recipe is untouched. */
DMuonErrorCode dmuon_ns_recipe_make(dmuon_memory *memory, dmuon_ns_variant variant, int steps,
                                    const double *abc, const char *restarts, int iterate_is_given,
                                    DMuonDType iterate, dmuon_ns_recipe *recipe);
void dmuon_ns_recipe_free(dmuon_ns_recipe *recipe);
/* All that decides the bits of a result, a line "key=value" each: what ranks compare. */
void dmuon_ns_recipe_print(const dmuon_ns_recipe *recipe, dmuon_text *text);

enum { DMUON_NS_BATCH_MAX = 64 };
#define DMUON_NS_BATCH_BYTES (INT64_C(256) << 20)

/* What will run for one shape. */
typedef struct {
  int64_t rows, cols; /* of the matrix */
  int transposed;     /* iterate on the transpose: rows > cols */
  int64_t small, big;
  dmuon_ns_variant variant;  /* GRAM or DIRECT */
  const char *reason;        /* of the variant, in words; static */
  DMuonDType iterate, stage; /* stage: fp32 or fp64, what the norm is taken in */
  const dmuon_ns_recipe *recipe;
  double flops;  /* of the variant, symmetric products at half work */
  int64_t batch; /* so many matrices together at most; 1 unless plan_batch says more */
  int64_t tile;  /* of symmetric products, as in dmuon_batch */
  int64_t workspace_bytes;
  int64_t operations; /* issued at most, for matrices of one strip; each further strip of the input
                         and of the output is one more */
} dmuon_ns_plan;

DMuonErrorCode dmuon_ns_plan_make(const dmuon_ns_recipe *recipe, int64_t rows, int64_t cols,
                                  DMuonDType dtype, dmuon_ns_plan *plan);
/* Makes it a plan for up to so many of count matrices of its shape as run together: what was asked
 * for, else what was measured, else one where a batch gains nothing, else as many as
 * DMUON_NS_BATCH_BYTES of workspace hold; never more than count or DMUON_NS_BATCH_MAX. */
void dmuon_ns_plan_batch(dmuon_ns_plan *plan, int64_t count);
/* Whether the Gram form is accurate enough for auto with this table, restarts and precision. */
int dmuon_ns_plan_allows_gram(const dmuon_ns_plan *plan);
/* Operations of one form, symmetric products at half work. */
double dmuon_ns_flops(const dmuon_ns_recipe *recipe, dmuon_ns_variant variant, int64_t small,
                      int64_t big);

/* Where the pieces of the workspace begin, in bytes; temporary 0 or 1 of the matrix's size, 0 to 3
 * of the small side's square. Of each there is one a matrix of the batch, so many bytes apart. */
typedef struct {
  int64_t norm, big[2], square[4], bytes;
  int64_t big_stride, square_stride; /* of matrices in the iteration's dtype */
} dmuon_ns_layout;
dmuon_ns_layout dmuon_ns_plan_layout(const dmuon_ns_plan *plan);

/* ---- execution (run.c) ---- */

/* One matrix of a batch; in and out may be the same memory with equal views. */
typedef struct {
  const void *in;
  dmuon_ns_view in_view;
  void *out;
  dmuon_ns_view out_view;
  double alpha;
} dmuon_ns_matrix;

/* out = alpha * NewtonSchulz(in), of count matrices, at most plan->batch: products together, all
 * else a call a matrix, and the bits of as many calls with one. matrices is read at once.
 * workspace: plan->workspace_bytes of device memory, 64-byte aligned, until done. Issues on queue;
 * never waits. Empty matrices issue nothing. */
DMuonErrorCode dmuon_ns_issue_batch(dmuon_queue *queue, dmuon_device *device,
                                    const dmuon_ns_plan *plan, int64_t count,
                                    const dmuon_ns_matrix *matrices, DMuonDType in_dtype,
                                    DMuonDType out_dtype, void *workspace);
/* The same of one matrix. */
DMuonErrorCode dmuon_ns_issue(dmuon_queue *queue, dmuon_device *device, const dmuon_ns_plan *plan,
                              const dmuon_ns_view *in_view, DMuonDType in_dtype, const void *in,
                              const dmuon_ns_view *out_view, DMuonDType out_dtype, void *out,
                              double alpha, void *workspace);

/* ---- the public object (newton_schulz.c) ---- */

extern const dmuon_option_table dmuon_ns_option_table;

typedef struct {
  int variant;        /* dmuon_ns_variant */
  char *coefficients; /* a table's name, or "given" */
  char *restarts;     /* "auto", "none", "1,3" */
  int dtype;          /* 0: auto; else 1 + DMuonDType */
  int64_t batch;      /* 0: by rule */
  char *choices;      /* a file, or NULL */
  int given_steps;    /* the program's own table */
  double *given;
} dmuon_ns_settings;

struct DMuonNewtonSchulz_ {
  dmuon_object object;
  dmuon_context own_context; /* used when created without a mesh */
  DMuonMesh mesh;            /* retained, or NULL */
  dmuon_device *device;      /* own host device when mesh is NULL; else the mesh's, after SetUp */
  dmuon_ns_recipe recipe;    /* after SetUp */
  dmuon_ns_settings settings;
  unsigned char program[6]; /* which settings the program set */
  dmuon_queue *queue;       /* of Apply; made at its first use */
  void *workspace;          /* of Apply; the largest so far */
  int64_t workspace_bytes, reserved;
};
/* Queue, task room and workspace of Apply for a plan; kept and grown. */
DMuonErrorCode dmuon_ns_prepare(DMuonNewtonSchulz ns, const dmuon_ns_plan *plan);
/* The handle is a live object whose mesh is not broken. */
DMuonErrorCode dmuon_ns_check(DMuonNewtonSchulz ns);
void dmuon_ns_retain(DMuonNewtonSchulz ns);
void dmuon_ns_release(DMuonNewtonSchulz ns);

#endif
