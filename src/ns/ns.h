/* Newton-Schulz: from settings to a recipe (recipe.c), from a recipe to a plan for one shape
 * (plan.c, pure), and from a plan to operations on a queue (run.c). The iteration X <- aX +
 * b(XX^T)X + c(XX^T)^2 X drives every singular value of the Frobenius-normalised matrix through one
 * scalar polynomial; the direct form computes it as written, the Gram form on the small side only,
 * with restarts. */
#ifndef DMUON_NS_NS_H
#define DMUON_NS_NS_H

#include <dmuon/newton_schulz.h>

#include "base/object.h"
#include "device/device.h"

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

typedef enum { DMUON_NS_AUTO = 0, DMUON_NS_GRAM, DMUON_NS_DIRECT } dmuon_ns_variant;
const char *dmuon_ns_variant_name(dmuon_ns_variant variant);

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
  int iterate_is_given; /* else the matrix's dtype, at least fp32 */
  DMuonDType iterate;
} dmuon_ns_recipe;

/* restarts: "auto", "none", or positions "1,3". On failure recipe is untouched. */
DMuonErrorCode dmuon_ns_recipe_make(dmuon_memory *memory, dmuon_ns_variant variant, int steps,
                                    const double *abc, const char *restarts, int iterate_is_given,
                                    DMuonDType iterate, dmuon_ns_recipe *recipe);
void dmuon_ns_recipe_free(dmuon_ns_recipe *recipe);

/* What will run for one shape. */
typedef struct {
  int64_t rows, cols; /* of the matrix */
  int transposed;     /* iterate on the transpose: rows > cols */
  int64_t small, big;
  dmuon_ns_variant variant;  /* GRAM or DIRECT */
  const char *reason;        /* of the variant, in words; static */
  DMuonDType iterate, stage; /* stage: fp32 or fp64, what the norm is taken in */
  const dmuon_ns_recipe *recipe;
  double flops; /* of the variant, symmetric products at half work */
  int64_t workspace_bytes;
  int64_t operations; /* issued at most, for matrices of one strip; each further strip of the input
                         and of the output is one more */
} dmuon_ns_plan;

DMuonErrorCode dmuon_ns_plan_make(const dmuon_ns_recipe *recipe, int64_t rows, int64_t cols,
                                  DMuonDType dtype, dmuon_ns_plan *plan);
/* Operations of one form, symmetric products at half work. */
double dmuon_ns_flops(const dmuon_ns_recipe *recipe, dmuon_ns_variant variant, int64_t small,
                      int64_t big);

/* Where the pieces of the workspace begin, in bytes; temporary 0 or 1 of the matrix's size, 0 to 3
 * of the small side's square. */
typedef struct {
  int64_t norm, big[2], square[4], bytes;
} dmuon_ns_layout;
dmuon_ns_layout dmuon_ns_plan_layout(const dmuon_ns_plan *plan);

/* ---- execution (run.c) ---- */

/* out = alpha * NewtonSchulz(in), of one matrix. workspace: plan->workspace_bytes of device memory,
 * 64-byte aligned, until done. in and out may be the same memory with equal views. Issues on queue;
 * never waits. An empty matrix issues nothing. */
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
  unsigned char program[4]; /* which settings the program set */
  dmuon_queue *queue;       /* of Apply; made at its first use */
  void *workspace;          /* of Apply; the largest so far */
  int64_t workspace_bytes, reserved;
};
/* The handle is a live object whose mesh is not broken. */
DMuonErrorCode dmuon_ns_check(DMuonNewtonSchulz ns);
void dmuon_ns_retain(DMuonNewtonSchulz ns);
void dmuon_ns_release(DMuonNewtonSchulz ns);

#endif
