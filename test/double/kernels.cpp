/* The kernels, for the double: the same bodies (backend/cuda/bodies.h), in loops over blocks and
 * threads, and what each of them touches. */
#include "backend/cuda/bodies_comm.h"
#include "double.h"

static void touch(double_touches *t, const void *ptr, int64_t n, DMuonDType dtype,
                  double_mode mode) {
  if (ptr && n > 0) double_touch(t, ptr, n, dmuon_bytes_of(dtype), mode);
}

static void touch_flag(double_touches *t, const float *flag, double_mode mode) {
  if (flag) double_touch(t, flag, 1, sizeof *flag, mode);
}

static void touch_count(double_touches *t, const int64_t *count) {
  if (count) double_touch(t, count, 1, sizeof *count, DOUBLE_UPDATE);
}

static void touch_norm(double_touches *t, const dmuon_norm *norm, double_mode mode) {
  if (norm) double_touch(t, norm, 2, 8, mode);
}

#define TOUCHES(name, args) \
  static void touches_##name(const void *untyped, dim3 grid, dim3 block, double_touches *t)
#define ARGS(type)                       \
  const type *a = (const type *)untyped; \
  (void)grid, (void)block

/* Packed buffers have padding that nobody writes: what moves it reads nothing. */
TOUCHES(cast, dmuon_cast_args) {
  ARGS(dmuon_cast_args);
  touch(t, a->src, a->n, a->src_dtype, DOUBLE_MOVE);
  touch(t, a->dst, a->n, a->dst_dtype, DOUBLE_WRITE);
}

TOUCHES(pack, dmuon_pack) {
  ARGS(dmuon_pack);
  touch(t, a->addend, a->n, a->addend_dtype, DOUBLE_MOVE);
  touch(t, a->src, a->n, a->src_dtype, DOUBLE_MOVE);
  touch(t, a->dst, a->n, a->dst_dtype, DOUBLE_WRITE);
}

TOUCHES(axpby, dmuon_axpby_args) {
  ARGS(dmuon_axpby_args);
  touch(t, a->x, a->n, a->dtype, DOUBLE_READ);
  touch(t, a->y, a->n, a->dtype, a->beta != 0 ? DOUBLE_UPDATE : DOUBLE_WRITE);
}

TOUCHES(divide, dmuon_divide_args) {
  ARGS(dmuon_divide_args);
  touch(t, a->x, a->n, a->dtype, DOUBLE_MAYBE);
}

TOUCHES(copy_matrix, dmuon_copy_matrix_args) {
  ARGS(dmuon_copy_matrix_args);
  const dmuon_copy_matrix *m = &a->matrix;
  touch_norm(t, m->divide, DOUBLE_READ);
  if (!a->constant)
    double_touch_rows(t, m->src, m->rows, m->cols, m->src_ld, dmuon_bytes_of(m->src_dtype),
                      DOUBLE_READ);
  double_touch_rows(t, m->dst, m->rows, m->cols, m->dst_ld, dmuon_bytes_of(m->dst_dtype),
                    DOUBLE_WRITE);
}

TOUCHES(transpose, dmuon_copy_matrix_args) {
  ARGS(dmuon_copy_matrix_args);
  const dmuon_copy_matrix *m = &a->matrix;
  touch_norm(t, m->divide, DOUBLE_READ);
  double_touch_rows(t, m->src, m->rows, m->cols, m->src_ld, dmuon_bytes_of(m->src_dtype),
                    DOUBLE_READ);
  double_touch_rows(t, m->dst, m->cols, m->rows, m->dst_ld, dmuon_bytes_of(m->dst_dtype),
                    DOUBLE_WRITE);
}

TOUCHES(add_diagonal, dmuon_diagonal_args) {
  ARGS(dmuon_diagonal_args);
  double_touch_rows(t, a->c, a->m, 1, a->ld + 1, dmuon_bytes_of(a->dtype), DOUBLE_UPDATE);
}

TOUCHES(norm, dmuon_norm_args) {
  ARGS(dmuon_norm_args);
  const bool last = a->finish || grid.x == 1;
  if (a->finish)
    double_touch(t, a->partials, a->count, 8, DOUBLE_READ);
  else if (a->rows > 0 && a->cols > 0)
    double_touch_rows(t, a->x, a->rows, a->cols, a->ld, dmuon_bytes_of(a->dtype), DOUBLE_READ);
  if (!last) double_touch(t, a->partials, grid.x, 8, DOUBLE_WRITE);
  if (a->exponent && !a->largest) double_touch(t, a->exponent, 1, 8, DOUBLE_READ);
  if (last && a->largest) double_touch(t, a->exponent, 1, 8, DOUBLE_WRITE);
  if (last && !a->largest) touch_norm(t, a->norm, DOUBLE_WRITE);
}

TOUCHES(find_nonfinite, dmuon_find_args) {
  ARGS(dmuon_find_args);
  const dmuon_pack *p = &a->pack;
  const bool last = a->finish || grid.x == 1;
  if (a->finish) {
    double_touch(t, a->partials, a->count, 8, DOUBLE_READ);
  } else {
    touch(t, p->addend, p->n, p->addend_dtype, DOUBLE_READ);
    touch(t, p->src, p->n, p->src_dtype, DOUBLE_READ);
  }
  if (!last) double_touch(t, a->partials, grid.x, 8, DOUBLE_WRITE);
  if (last) double_touch(t, a->index, 1, 8, DOUBLE_WRITE);
  if (last) touch_flag(t, a->flag, DOUBLE_MAYBE);
}

TOUCHES(decide, dmuon_decide_args) {
  ARGS(dmuon_decide_args);
  double_touch(t, a->flags, a->count, sizeof(float), DOUBLE_READ);
  touch_flag(t, a->any, DOUBLE_WRITE);
  touch_count(t, a->skipped);
}

TOUCHES(stamp, dmuon_stamp_args) {
  ARGS(dmuon_stamp_args);
  double_touch(t, a->seconds, 1, 8, DOUBLE_WRITE);
}

TOUCHES(muon_momentum, dmuon_muon_momentum) {
  ARGS(dmuon_muon_momentum);
  touch_flag(t, a->skip, DOUBLE_READ);
  touch(t, a->grad, a->n, a->grad_dtype, DOUBLE_READ);
  if (a->l2 != 0) touch(t, a->weight, a->n, a->weight_dtype, DOUBLE_READ);
  touch(t, a->momentum, a->n, a->momentum_dtype,
        !a->first ? DOUBLE_UPDATE
        : a->skip ? DOUBLE_MAYBE
                  : DOUBLE_WRITE);
  touch(t, a->update, a->n, a->momentum_dtype, DOUBLE_WRITE);
}

TOUCHES(muon_apply, dmuon_muon_apply) {
  ARGS(dmuon_muon_apply);
  touch_flag(t, a->skip, DOUBLE_READ);
  touch_count(t, a->skipped);
  touch(t, a->update, a->n, a->update_dtype, DOUBLE_READ);
  touch(t, a->weight, a->n, a->weight_dtype, DOUBLE_UPDATE);
  if (a->value != a->weight) touch(t, a->value, a->n, a->value_dtype, DOUBLE_WRITE);
}

TOUCHES(adamw, dmuon_adamw_args) {
  ARGS(dmuon_adamw_args);
  const dmuon_adamw *w = &a->adamw;
  touch_flag(t, w->skip, DOUBLE_READ);
  touch_count(t, w->skipped);
  touch(t, w->grad, w->n, w->grad_dtype, DOUBLE_READ);
  touch(t, w->exp_avg, w->n, w->state_dtype, DOUBLE_UPDATE);
  touch(t, w->exp_avg_sq, w->n, w->state_dtype, DOUBLE_UPDATE);
  touch(t, w->weight, w->n, w->weight_dtype, DOUBLE_UPDATE);
  if (w->value != w->weight) touch(t, w->value, w->n, w->value_dtype, DOUBLE_WRITE);
}

/* The upper triangle may never have been written before. */
TOUCHES(mirror, dmuon_mirror_args) {
  ARGS(dmuon_mirror_args);
  for (int64_t i = 0; i < a->count; i++)
    double_touch_rows(t, (const char *)a->c + i * a->stride * dmuon_bytes_of(a->dtype), a->m, a->m,
                      a->ld, dmuon_bytes_of(a->dtype), DOUBLE_MAYBE);
}

TOUCHES(tiles, dmuon_tiles_args) {
  ARGS(dmuon_tiles_args);
  const int64_t all = a->tiles * (a->tiles + 1) / 2 * a->count;
  double_touch(t, a->a_out, all, sizeof(void *), DOUBLE_WRITE);
  double_touch(t, a->b_out, all, sizeof(void *), DOUBLE_WRITE);
  double_touch(t, a->c_out, all, sizeof(void *), DOUBLE_WRITE);
}

TOUCHES(sum, dmuon_sum_args) {
  ARGS(dmuon_sum_args);
  for (int i = 0; i < DMUON_SUM_WIDTH; i++) touch(t, a->source[i], a->n, a->in_dtype, DOUBLE_MOVE);
  for (int i = 0; i < a->merge_count; i++) touch(t, a->merge[i], a->n, a->sum_dtype, DOUBLE_MOVE);
  touch(t, a->out, a->n, a->sum_dtype, DOUBLE_WRITE);
}

/* ---- handles and runs ---- */

#define RUN_THREAD(name, args)                       \
  const int64_t threads = (int64_t)grid.x * block.x; \
  for (int64_t i = 0; i < threads; i++) dmuon_body_##name((const args *)untyped, i, threads)
#define RUN_BLOCK(name, args)                                                  \
  double shared[DMUON_SHARED];                                                 \
  for (int64_t i = 0; i < grid.x; i++) {                                       \
    memset(shared, 0xff, sizeof shared);                                       \
    dmuon_body_##name((const args *)untyped, i, grid.x, (int)block.x, shared); \
  }
#define DEFINE(name, args, kind)                                       \
  extern "C" void dmuon_kernel_##name(args) {                          \
  }                                                                    \
  static void run_##name(const void *untyped, dim3 grid, dim3 block) { \
    RUN_##kind(name, args);                                            \
  }
DMUON_KERNELS(DEFINE)
DMUON_KERNELS_COMM(DEFINE)

#define ROW(name, args, kind) \
  {(const void *)dmuon_kernel_##name, #name, sizeof(args), touches_##name, run_##name},
static const double_kernel kernels[] = {DMUON_KERNELS(ROW) DMUON_KERNELS_COMM(ROW)};
static const int known = double_register(kernels, sizeof kernels / sizeof *kernels);

/* Keeps this file, and with it the table, in a link. */
extern "C" int double_kernel_count(void) {
  return known;
}
