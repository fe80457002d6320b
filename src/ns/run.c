/* A plan carried out: operations issued on one queue, in one fixed sequence that depends on the
 * plan alone. Decides nothing about form or precision.
 *
 * Every product reads and writes tight copies in the workspace, so the bits of the result depend
 * neither on leading dimensions nor on strips. Products that are symmetric (X X^T; R^2 and A^2,
 * which are R R^T of a symmetric R; and what R becomes, where the factors commute) go
 * through syrk and gemm_symmetric. All but one: Q is carried as the plain product of
 * its factors. Rounded, the factors do not quite commute, and a Q made symmetric was measured to be
 * up to ten times further from the truth when singular values span three decades. */
#include "ns/ns.h"

/* What all steps share. */
typedef struct {
  const DMuonDeviceOps *ops;
  dmuon_queue *queue;
  const dmuon_ns_plan *plan;
  DMuonDType dtype;
  int64_t m, n;
  int64_t count;      /* matrices */
  int64_t bytes;      /* of an element */
  int64_t big, small; /* from one matrix's X to the next, and from one's square: elements */
  void *x, *y;        /* m x n each: the iterate, and room for the next */
  void *square[4];
} run;

static void swap(void **a, void **b) {
  void *c = *a;
  *a = *b;
  *b = c;
}

/* Matrix i of what begins at base. */
static void *nth(const run *r, void *base, int64_t i, int64_t stride) {
  return (char *)base + i * stride * r->bytes;
}

static DMuonErrorCode copy_squares(const run *r, void *dst, const void *src) {
  return r->ops->copy(r->queue, dst, src, ((r->count - 1) * r->small + r->m * r->m) * r->bytes);
}

/* dst = X X^T */
static DMuonErrorCode gram_of_x(const run *r, void *dst) {
  const dmuon_batch batch = {r->count, r->big, 0, r->small, r->plan->tile};
  return r->ops->syrk(r->queue, r->dtype, r->m, r->n, 1.0, r->x, r->n, 0.0, dst, r->m, &batch);
}

/* dst = b a + c a^2, a symmetric */
static DMuonErrorCode quadratic(const run *r, double b, double c, const void *a, void *dst) {
  const dmuon_batch batch = {r->count, r->small, 0, r->small, r->plan->tile};
  DMUON_TRY(copy_squares(r, dst, a));
  return r->ops->syrk(r->queue, r->dtype, r->m, r->m, c, a, r->m, b, dst, r->m, &batch);
}

/* dst = alpha b + a b, dst neither of them */
static DMuonErrorCode shifted_product(const run *r, double alpha, const void *a, const void *b,
                                      void *dst) {
  const dmuon_batch batch = {r->count, r->small, r->small, r->small, r->plan->tile};
  DMUON_TRY(copy_squares(r, dst, b));
  return r->ops->gemm(r->queue, r->dtype, 0, 0, r->m, r->m, r->m, 1.0, a, r->m, b, r->m, alpha, dst,
                      r->m, &batch);
}

/* The same where a and b are symmetric and commute. */
static DMuonErrorCode shifted_symmetric(const run *r, double alpha, const void *a, const void *b,
                                        void *dst) {
  const dmuon_batch batch = {r->count, r->small, r->small, r->small, r->plan->tile};
  DMUON_TRY(copy_squares(r, dst, b));
  return r->ops->gemm_symmetric(r->queue, r->dtype, r->m, 1.0, a, r->m, b, r->m, alpha, dst, r->m,
                                &batch);
}

/* dst = b a + alpha 1 of the first step of a segment: a with something on its diagonal. */
static DMuonErrorCode shifted_copy(const run *r, double alpha, const void *a, void *dst) {
  DMUON_TRY(copy_squares(r, dst, a));
  for (int64_t i = 0; i < r->count; i++)
    DMUON_TRY(
        r->ops->add_diagonal(r->queue, r->dtype, r->m, alpha, nth(r, dst, i, r->small), r->m));
  return DMUON_SUCCESS;
}

/* X <- alpha X + Q X */
static DMuonErrorCode apply_q(run *r, double alpha, const void *q) {
  const dmuon_batch batch = {r->count, r->small, r->big, r->big, 0};
  if (alpha != 0)
    DMUON_TRY(
        r->ops->copy(r->queue, r->y, r->x, ((r->count - 1) * r->big + r->m * r->n) * r->bytes));
  DMUON_TRY(r->ops->gemm(r->queue, r->dtype, 0, 0, r->m, r->n, r->m, 1.0, q, r->m, r->x, r->n,
                         alpha, r->y, r->n, &batch));
  swap(&r->x, &r->y);
  return DMUON_SUCCESS;
}

/* A = X X^T; B = bA + cA^2; X = aX + BX, each step. */
static DMuonErrorCode iterate_direct(run *r) {
  const dmuon_ns_recipe *recipe = r->plan->recipe;
  void *a_matrix = r->square[0], *b_matrix = r->square[1];
  for (int i = 0; i < recipe->steps; i++) {
    const double *abc = recipe->abc + 3 * i;
    DMUON_TRY(gram_of_x(r, a_matrix));
    DMUON_TRY(quadratic(r, abc[1], abc[2], a_matrix, b_matrix));
    DMUON_TRY(apply_q(r, abc[0], b_matrix));
  }
  return DMUON_SUCCESS;
}

/* R = X X^T once a segment; each step Z = bR + cR^2, Q <- (aI + Z) Q, R <- (aI + Z)^2 R; at the end
 * of a segment X <- Q X. */
static DMuonErrorCode iterate_gram(run *r) {
  const dmuon_ns_recipe *recipe = r->plan->recipe;
  void *gram = r->square[0], *z = r->square[1], *q = r->square[2], *t = r->square[3];
  int next = 0, fresh = 1;
  DMUON_TRY(gram_of_x(r, gram));
  for (int i = 0; i < recipe->steps; i++) {
    double a = recipe->abc[3 * i], b = recipe->abc[3 * i + 1], c = recipe->abc[3 * i + 2];
    if (next < recipe->restart_count && recipe->restarts[next] == i) {
      DMUON_TRY(apply_q(r, 0, q));
      DMUON_TRY(gram_of_x(r, gram));
      fresh = 1;
      next++;
    }
    DMUON_TRY(quadratic(r, b, c, gram, z));
    if (fresh) {
      DMUON_TRY(shifted_copy(r, a, z, q));
    } else {
      DMUON_TRY(shifted_product(r, a, z, q, t));
      swap(&q, &t);
    }
    fresh = 0;
    int ends =
        i + 1 == recipe->steps || (next < recipe->restart_count && recipe->restarts[next] == i + 1);
    if (!ends) {
      DMUON_TRY(shifted_symmetric(r, a, z, gram, t)); /* t = aR + ZR */
      DMUON_TRY(shifted_symmetric(r, a, z, t, gram)); /* R = at + Zt */
    }
  }
  return apply_q(r, 0, q);
}

static DMuonErrorCode check_view(const char *what, const dmuon_ns_plan *plan,
                                 const dmuon_ns_view *view) {
  int64_t side = view->side == DMUON_ROWS ? view->rows : view->cols;
  int64_t width = view->side == DMUON_ROWS ? view->cols : view->strip;
  if (view->rows != plan->rows || view->cols != plan->cols || view->strips < 1 ||
      view->strips * view->strip != side || view->ld < width) {
    DMUON_FAIL(DMUON_ERR_INTERNAL,
               "%s: %lld strips of %lld along side %d, ld %lld, do not make a %lld x %lld matrix",
               what, (long long)view->strips, (long long)view->strip, (int)view->side,
               (long long)view->ld, (long long)plan->rows, (long long)plan->cols);
  }
  return DMUON_SUCCESS;
}

/* Strip s of a view of a matrix: its rows and columns, its place in memory and in the whole. */
static dmuon_copy_matrix strip_of(const dmuon_ns_view *view, int64_t s, int64_t *row,
                                  int64_t *col) {
  int by_rows = view->side == DMUON_ROWS;
  *row = by_rows ? s * view->strip : 0;
  *col = by_rows ? 0 : s * view->strip;
  return (dmuon_copy_matrix){.rows = by_rows ? view->strip : view->rows,
                             .cols = by_rows ? view->cols : view->strip,
                             .alpha = 1.0};
}

/* x = in / ||in||, oriented. What is in one piece and in the stage's dtype already is read where it
 * stands: the same values in the same order, so the same bits. */
static DMuonErrorCode load(const run *r, const dmuon_ns_view *view, DMuonDType dtype,
                           const void *in, void *stage, dmuon_norm *norm, void *x) {
  const dmuon_ns_plan *plan = r->plan;
  const void *whole = in;
  int64_t ld = view->ld;
  if (view->strips != 1 || dtype != plan->stage) {
    for (int64_t s = 0; s < view->strips; s++) {
      int64_t row, col;
      dmuon_copy_matrix copy = strip_of(view, s, &row, &col);
      copy.src = dmuon_dtype_at(in, s * view->stride, dtype);
      copy.src_ld = view->ld;
      copy.src_dtype = dtype;
      copy.dst = dmuon_dtype_at(stage, row * plan->cols + col, plan->stage);
      copy.dst_ld = plan->cols;
      copy.dst_dtype = plan->stage;
      DMUON_TRY(r->ops->copy_matrix(r->queue, &copy));
    }
    whole = stage;
    ld = plan->cols;
  }
  DMUON_TRY(r->ops->norm(r->queue, plan->stage, plan->rows, plan->cols, whole, ld, norm));
  dmuon_copy_matrix copy = {.rows = plan->rows,
                            .cols = plan->cols,
                            .src = whole,
                            .src_ld = ld,
                            .src_dtype = plan->stage,
                            .dst = x,
                            .dst_ld = plan->big,
                            .dst_dtype = plan->iterate,
                            .transpose = plan->transposed,
                            .alpha = 1.0,
                            .divide = norm};
  return r->ops->copy_matrix(r->queue, &copy);
}

/* out = alpha x, in the matrix's own orientation. */
static DMuonErrorCode store(const run *r, const dmuon_ns_view *view, DMuonDType dtype, void *out,
                            double alpha, const void *x) {
  const dmuon_ns_plan *plan = r->plan;
  for (int64_t s = 0; s < view->strips; s++) {
    int64_t row, col;
    dmuon_copy_matrix copy = strip_of(view, s, &row, &col);
    int64_t at = plan->transposed ? col * plan->big + row : row * plan->big + col;
    if (plan->transposed) {
      int64_t rows = copy.rows;
      copy.rows = copy.cols;
      copy.cols = rows;
    }
    copy.src = dmuon_dtype_at(x, at, plan->iterate);
    copy.src_ld = plan->big;
    copy.src_dtype = plan->iterate;
    copy.dst = dmuon_dtype_at(out, s * view->stride, dtype);
    copy.dst_ld = view->ld;
    copy.dst_dtype = dtype;
    copy.transpose = plan->transposed;
    copy.alpha = alpha;
    DMUON_TRY(r->ops->copy_matrix(r->queue, &copy));
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode check_batch(const dmuon_ns_plan *plan, int64_t count,
                                  const dmuon_ns_matrix *matrices) {
  if (count < 0 || count > plan->batch)
    DMUON_FAIL(DMUON_ERR_INTERNAL, "%lld matrices with a plan for %lld", (long long)count,
               (long long)plan->batch);
  for (int64_t i = 0; i < count; i++) {
    DMUON_TRY(check_view("input", plan, &matrices[i].in_view));
    DMUON_TRY(check_view("output", plan, &matrices[i].out_view));
  }
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_ns_issue_batch(dmuon_queue *queue, dmuon_device *device,
                                    const dmuon_ns_plan *plan, int64_t count,
                                    const dmuon_ns_matrix *matrices, DMuonDType in_dtype,
                                    DMuonDType out_dtype, void *workspace) {
  DMUON_TRY(check_batch(plan, count, matrices));
  if (plan->small == 0 || count == 0) return DMUON_SUCCESS;
  const dmuon_ns_layout layout = dmuon_ns_plan_layout(plan);
  const int64_t bytes = (int64_t)dmuon_dtype_bytes(plan->iterate);
  char *base = workspace;
  dmuon_norm *norms = (dmuon_norm *)(void *)(base + layout.norm);
  run r = {.ops = device->ops,
           .queue = queue,
           .plan = plan,
           .dtype = plan->iterate,
           .m = plan->small,
           .n = plan->big,
           .count = count,
           .bytes = bytes,
           .big = layout.big_stride / bytes,
           .small = layout.square_stride / bytes,
           .x = base + layout.big[0],
           .y = base + layout.big[1]};
  for (int i = 0; i < 4; i++) r.square[i] = base + layout.square[i];
  for (int64_t i = 0; i < count; i++)
    DMUON_TRY(load(&r, &matrices[i].in_view, in_dtype, matrices[i].in, r.y, &norms[i],
                   nth(&r, r.x, i, r.big)));
  DMUON_TRY(plan->variant == DMUON_NS_GRAM ? iterate_gram(&r) : iterate_direct(&r));
  for (int64_t i = 0; i < count; i++)
    DMUON_TRY(store(&r, &matrices[i].out_view, out_dtype, matrices[i].out, matrices[i].alpha,
                    nth(&r, r.x, i, r.big)));
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_ns_issue(dmuon_queue *queue, dmuon_device *device, const dmuon_ns_plan *plan,
                              const dmuon_ns_view *in_view, DMuonDType in_dtype, const void *in,
                              const dmuon_ns_view *out_view, DMuonDType out_dtype, void *out,
                              double alpha, void *workspace) {
  const dmuon_ns_matrix matrix = {in, *in_view, out, *out_view, alpha};
  return dmuon_ns_issue_batch(queue, device, plan, 1, &matrix, in_dtype, out_dtype, workspace);
}
