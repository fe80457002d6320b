/* Newton-Schulz alone: the orthogonalisation of one matrix or a batch, with or without a mesh.
 *
 * Input a matrix A = U diag(s) V^T of any shape; result U diag(p(s / ||s||)) V^T, where p is the
 * composition of the table's odd polynomials p_i(s) = a s + b s^3 + c s^5 and ||s|| the Frobenius
 * norm of A. With the default table p maps [0.01, 1] into [0.846, 1.124]: nearly the orthogonal
 * factor U V^T. The result does not depend on the scale of A, over the whole range of its dtype: no
 * epsilon is added. Zeros give zeros; a NaN or an infinity anywhere gives no finite element.
 *
 * No call here is collective, with one exception: SetUp on a mesh that is not set up yet sets up
 * the mesh. Options of the class (file, environment, command line; only with a mesh): ns_variant,
 * ns_coefficients, ns_restarts, ns_dtype, ns_batch, ns_choices.
 *
 * Precision. A GPU iterates in fp16 unless a dtype is given, in the way of the published kernels:
 * the norm and the division by it in fp32, then one rounding to fp16; each product, with its
 * addend, is accumulated in fp32 and rounded once; the result is cast to the matrix's dtype.
 * Matrices of fp64 iterate in fp64; where the Gram form is asked for by name with a table that 16
 * bits do not carry (condition above 1000, see View), others iterate in fp32; "auto" takes the
 * direct form then. The host iterates in the matrix's dtype, at least fp32.
 *
 * Determinism is always on: what runs is decided by shape, dtype and settings alone (measured
 * choices are settings: a file), every reduction of our own kernels has one association that
 * depends on sizes alone, none uses atomics, and a batch of k matrices gives the bits of k calls
 * with one (on the device cuda:batched, where cuBLAS multiplies a batch at once and may round by
 * its size, those of another batch of k). The same call therefore gives the same bits, on one build
 * and one kind of processor, as far as the library of products does: a BLAS with one number of
 * threads does; cuBLAS does for one of its versions, one GPU model and one stream at a time with a
 * workspace of its own, which is how it is called here. Another device or version may round
 * differently. */
#ifndef DMUON_NEWTON_SCHULZ_H
#define DMUON_NEWTON_SCHULZ_H

#include <dmuon/error.h>
#include <dmuon/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Makes an object with the default settings. Not collective; does not block.
 *   mesh  kept (counted) for its device, memory and options; NULL: the host, no options, no MPI
 *         (not even MPI_Init)
 *   ns    out: yours, to be given to DMuonNewtonSchulzDestroy
 * Errors: ARGUMENT (no mesh handle, ns NULL), MEMORY; those of a broken mesh. */
DMUON_API DMuonErrorCode DMuonNewtonSchulzCreate(DMuonMesh mesh, DMuonNewtonSchulz *ns);

/* Chooses the form of the iteration. Not collective; before SetUp. Option ns_variant.
 *   name  "auto" (default): by shape, precision and cost; "direct": A = XX^T, B = bA + cA^2,
 *         X <- aX + BX each step; "gram": the same polynomial computed on the small side alone,
 *         with restarts (https://github.com/Dao-AILab/gram-newton-schulz). They agree but for
 *         rounding.
 * Errors: ARGUMENT (no such name), STATE (set up already). */
DMUON_API DMuonErrorCode DMuonNewtonSchulzSetVariant(DMuonNewtonSchulz ns, const char *name);

/* Chooses a named table. Not collective; before SetUp. Option ns_coefficients.
 *   name  "polar_express" (default; arXiv:2505.16932 with safety 1.05 on every step),
 *         "polar_express_raw" (unmodified), "you", "jordan", "dion", "emerging_polar_express" (8
 *         steps), "cans", "aol" (4), "deepseekv4" (10), "cubic5"
 * Errors: ARGUMENT (the nearest name is told), STATE. */
DMUON_API DMuonErrorCode DMuonNewtonSchulzSetCoefficients(DMuonNewtonSchulz ns, const char *name);

/* Gives a table of your own, in place of a named one. Not collective; before SetUp.
 *   steps  at least 1
 *   abc    [3*steps], (a, b, c) a step; finite; copied. Restarts are computed for it unless
 *          SetRestarts gives them.
 * Errors: ARGUMENT, STATE, MEMORY. */
DMUON_API DMuonErrorCode DMuonNewtonSchulzSetTable(DMuonNewtonSchulz ns, int steps,
                                                   const double *abc);

/* Gives the steps before which the Gram form starts anew, in place of those computed for the table.
 * Not collective; before SetUp. Option ns_restarts ("auto", "none", "2", "1,3").
 *   n   0: none
 *   at  [n] ascending, from 1; each below the number of steps (checked at SetUp); copied
 * Errors: ARGUMENT, STATE, MEMORY. */
DMUON_API DMuonErrorCode DMuonNewtonSchulzSetRestarts(DMuonNewtonSchulz ns, int n, const int *at);

/* Chooses the dtype of the iteration. Not collective; before SetUp. Option ns_dtype. By default it
 * is that of the matrix, at least fp32, or on a GPU fp16 (see above). The norm is taken in at least
 * fp32 whatever it is.
 * Errors: ARGUMENT, STATE. */
DMUON_API DMuonErrorCode DMuonNewtonSchulzSetDType(DMuonNewtonSchulz ns, DMuonDType dtype);

/* How many matrices of one shape run together, their products in one call each: in ApplyBatch, and
 * where one rank updates several of a shape: pieces of one parameter, or parameters of one group.
 * The result has the same bits whatever it is (but for cuda:batched, see above). Not collective;
 * before SetUp. Option ns_batch.
 *   batch  1 to 64; 0 (default): what SetChoices tells of the shape, else 1, where nothing is
 *          gained, and with device cuda:batched as many as 256 MB of workspace hold
 * Errors: ARGUMENT, STATE, MEMORY. */
DMUON_API DMuonErrorCode DMuonNewtonSchulzSetBatch(DMuonNewtonSchulz ns, int64_t batch);

/* Takes measured choices by shape from a file, which Measure and SaveChoices (and dmuon_bench ns
 * -choices) make: the form, which counts where the variant is "auto", the shape and the dtype of
 * the iteration are listed, and the Gram form is accurate with the table of coefficients, else the
 * rule does; how many matrices run together; and the tile of symmetric products, on a GPU. The file
 * is read at SetUp, by every process that sets up; ranks whose files differ are told so at the
 * optimizer's SetUp. Not collective; before SetUp. Option ns_choices.
 *   path  copied
 * Errors: ARGUMENT, STATE, MEMORY; at SetUp FILE (cannot be read), FORMAT (the entry and what is
 * wrong with it). */
DMUON_API DMuonErrorCode DMuonNewtonSchulzSetChoices(DMuonNewtonSchulz ns, const char *path);

/* Applies options, computes restarts, checks that the settings fit together: a bf16 Gram iteration
 * without restart is refused. Not collective (but see above); does not block. A second call does
 * nothing; after a failure settings may be corrected and SetUp called again.
 * Errors: ARGUMENT, MEMORY, FILE, FORMAT; those of DMuonMeshSetUp. */
DMUON_API DMuonErrorCode DMuonNewtonSchulzSetUp(DMuonNewtonSchulz ns);

/* Orthogonalises one matrix. Not collective; blocks until out is written. After SetUp.
 *   rows, cols  at least 0; nothing is done when one is 0
 *   dtype       of in and out, which are memory of the host, or of the GPU for a mesh on one (of
 *               your own or of DMuonMeshAlloc): what your stream holds comes first
 *   in          row-major, element (i, j) at i*ldin + j; read only
 *   ldin        elements, at least cols
 *   out         the same form with ldout; may be in with ldout = ldin, else they do not overlap;
 *               elements beyond cols in a row are not touched
 * Column-major matrices: pass (cols, rows) and the column-major leading dimension: the result is
 * the transpose of the transpose. Workspace is allocated at the first use of a larger shape and
 * kept until Destroy. The bits of the result depend on shape, dtype and settings alone, not on
 * leading dimensions.
 * Errors: ARGUMENT, STATE, MEMORY (it works again when there is some), UNSUPPORTED (the mesh is a
 * plan); those of a broken mesh. */
DMUON_API DMuonErrorCode DMuonNewtonSchulzApply(DMuonNewtonSchulz ns, int64_t rows, int64_t cols,
                                                DMuonDType dtype, const void *in, int64_t ldin,
                                                void *out, int64_t ldout);

/* Orthogonalises batch matrices of one shape, each by itself: the result equals that of as many
 * calls of Apply, bit for bit. Not collective; blocks. After SetUp.
 *   batch                at least 0
 *   stridein, strideout  elements from one matrix to the next; matrices of out do not overlap;
 *                        equal when out is in
 * All else, and errors, as in Apply. */
DMUON_API DMuonErrorCode DMuonNewtonSchulzApplyBatch(DMuonNewtonSchulz ns, int64_t batch,
                                                     int64_t rows, int64_t cols, DMuonDType dtype,
                                                     const void *in, int64_t ldin, int64_t stridein,
                                                     void *out, int64_t ldout, int64_t strideout);

/* Evaluates the polynomial of the table in fp64: what every form and precision approximates.
 * Not collective; does not block. After SetUp.
 *   sigma  a singular value of the matrix divided by its Frobenius norm: in [0, 1]
 *   value  out
 * Errors: ARGUMENT, STATE. */
DMUON_API DMuonErrorCode DMuonNewtonSchulzEvaluate(DMuonNewtonSchulz ns, double sigma,
                                                   double *value);

/* Runs both forms on matrices of one shape, on the device of the object, the faster one with its
 * symmetric products cut in other ways (on a GPU) and on more and more matrices together, and keeps
 * what was fastest as this object's choice for the shape, in place of an earlier one: later calls
 * of Apply, and optimizers set up later, follow it. Takes memory for up to 64 matrices or 256 MB of
 * workspace meanwhile. Not collective: ranks that shall choose alike save on one and read on all.
 * Blocks. After SetUp.
 *   rows, cols, dtype  of the matrices; at least 1
 *   repeat             runs of each, at least 1, of which the fastest counts
 * Errors: ARGUMENT, STATE, MEMORY, UNSUPPORTED (the mesh is a plan); those of a broken mesh. */
DMUON_API DMuonErrorCode DMuonNewtonSchulzMeasure(DMuonNewtonSchulz ns, int64_t rows, int64_t cols,
                                                  DMuonDType dtype, int repeat);

/* Writes all choices of the object, read and measured, as JSON that SetChoices reads. Not
 * collective; each caller writes. After SetUp.
 *   path  a file, replaced; NULL: standard output
 * Errors: STATE, FILE, MEMORY. */
DMUON_API DMuonErrorCode DMuonNewtonSchulzSaveChoices(DMuonNewtonSchulz ns, const char *path);

/* Writes for people: table, response, restarts, and which form runs for which shape and why.
 * Not collective; each caller writes. After SetUp.
 *   path  a file, replaced; NULL: standard output
 * Errors: ARGUMENT, STATE, FILE, MEMORY. */
DMUON_API DMuonErrorCode DMuonNewtonSchulzView(DMuonNewtonSchulz ns, const char *path);

/* Gives up the handle and sets it to NULL; the object lives on while an optimizer keeps it. NULL,
 * or a pointer to NULL, is fine. Not collective, unless it holds the last reference to its mesh. */
DMUON_API DMuonErrorCode DMuonNewtonSchulzDestroy(DMuonNewtonSchulz *ns);

#ifdef __cplusplus
}
#endif
#endif
