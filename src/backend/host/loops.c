/* Element loops of the host backend that are no part of an update rule: zero, discard, copy, cast,
 * pack, axpby, divide, the copy of a matrix (transposed, scaled), the diagonal, and the search for
 * what is not finite.
 *
 * Arithmetic is in double on chunks that stay in cache, and rounds once when it is stored. For a
 * sum of two fp32 numbers stored in fp32 that gives the bits of an fp32 addition. */
#include "backend/host/tasks.h"

#include <math.h>
#include <string.h>

#include "backend/host/sum.h"

static DMuonErrorCode fill(dmuon_host_engine *engine, const dmuon_host_vector *v, int byte) {
  const int64_t piece = 8 * DMUON_HOST_POLL_ELEMENTS;
  for (int64_t i = 0; i < v->n; i += piece) {
    if (i) DMUON_TRY(dmuon_host_engine_poll(engine));
    memset((char *)v->dst + i, byte, (size_t)dmuon_host_min(piece, v->n - i));
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode zero_advance(dmuon_host_engine *engine, void *args, int *done) {
  *done = 1;
  return fill(engine, args, 0);
}

/* All bits set is NaN in every type. */
static DMuonErrorCode discard_advance(dmuon_host_engine *engine, void *args, int *done) {
  *done = 1;
  return fill(engine, args, 0xff);
}

static DMuonErrorCode copy_advance(dmuon_host_engine *engine, void *args, int *done) {
  const dmuon_host_vector *v = args;
  const int64_t piece = 8 * DMUON_HOST_POLL_ELEMENTS;
  *done = 1;
  if (v->dst == v->src) return DMUON_SUCCESS;
  for (int64_t i = 0; i < v->n; i += piece) {
    if (i) DMUON_TRY(dmuon_host_engine_poll(engine));
    memcpy((char *)v->dst + i, (const char *)v->src + i, (size_t)dmuon_host_min(piece, v->n - i));
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode cast_advance(dmuon_host_engine *engine, void *args, int *done) {
  const dmuon_host_vector *v = args;
  *done = 1;
  for (int64_t i = 0; i < v->n; i += DMUON_HOST_POLL_ELEMENTS) {
    if (i) DMUON_TRY(dmuon_host_engine_poll(engine));
    dmuon_dtype_cast(dmuon_host_min(DMUON_HOST_POLL_ELEMENTS, v->n - i), v->dst_dtype,
                     dmuon_dtype_at(v->dst, i, v->dst_dtype), v->src_dtype,
                     dmuon_dtype_at(v->src, i, v->src_dtype));
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode axpby_advance(dmuon_host_engine *engine, void *args, int *done) {
  const dmuon_host_vector *v = args;
  DMuonDType dtype = v->dst_dtype;
  double alpha = v->alpha, beta = v->beta;
  int64_t since_poll = 0;
  *done = 1;
  for (int64_t i = 0; i < v->n; i += DMUON_HOST_CHUNK) {
    double x[DMUON_HOST_CHUNK], y[DMUON_HOST_CHUNK];
    int64_t count = dmuon_host_min(DMUON_HOST_CHUNK, v->n - i);
    void *out = dmuon_dtype_at(v->dst, i, dtype);
    dmuon_dtype_cast(count, DMUON_FLOAT64, x, dtype, dmuon_dtype_at(v->src, i, dtype));
    if (beta != 0) {
      dmuon_dtype_cast(count, DMUON_FLOAT64, y, dtype, out);
      for (int64_t j = 0; j < count; j++) y[j] = alpha * x[j] + beta * y[j];
    } else {
      for (int64_t j = 0; j < count; j++) y[j] = alpha * x[j];
    }
    dmuon_dtype_cast(count, dtype, out, DMUON_FLOAT64, y);
    since_poll += count;
    if (since_poll < DMUON_HOST_POLL_ELEMENTS) continue;
    since_poll = 0;
    DMUON_TRY(dmuon_host_engine_poll(engine));
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode divide_advance(dmuon_host_engine *engine, void *args, int *done) {
  const dmuon_host_vector *v = args;
  *done = 1;
  for (int64_t i = 0; i < v->n; i += DMUON_HOST_POLL_ELEMENTS) {
    void *x = dmuon_dtype_at(v->dst, i, v->dst_dtype);
    if (i) DMUON_TRY(dmuon_host_engine_poll(engine));
    dmuon_sum_finish(dmuon_host_min(DMUON_HOST_POLL_ELEMENTS, v->n - i), v->dst_dtype, x, x,
                     v->alpha);
  }
  return DMUON_SUCCESS;
}

/* out = elements [first, first + count) of addend + src, in dst's type; count <= a chunk. */
static void pack_chunk(const dmuon_pack *p, int64_t first, int64_t count, void *out) {
  const void *only = !p->addend ? p->src : !p->src ? p->addend : NULL;
  if (!p->addend && !p->src) {
    memset(out, 0, (size_t)count * dmuon_dtype_bytes(p->dst_dtype));
  } else if (only) {
    DMuonDType dtype = p->src ? p->src_dtype : p->addend_dtype;
    const void *from = dmuon_dtype_at(only, first, dtype);
    if (from != out || dtype != p->dst_dtype)
      dmuon_dtype_cast(count, p->dst_dtype, out, dtype, from);
  } else {
    double x[DMUON_HOST_CHUNK], y[DMUON_HOST_CHUNK];
    dmuon_dtype_cast(count, DMUON_FLOAT64, x, p->addend_dtype,
                     dmuon_dtype_at(p->addend, first, p->addend_dtype));
    dmuon_dtype_cast(count, DMUON_FLOAT64, y, p->src_dtype,
                     dmuon_dtype_at(p->src, first, p->src_dtype));
    for (int64_t j = 0; j < count; j++) x[j] += y[j];
    dmuon_dtype_cast(count, p->dst_dtype, out, DMUON_FLOAT64, x);
  }
}

static DMuonErrorCode pack_advance(dmuon_host_engine *engine, void *args, int *done) {
  const dmuon_pack *p = args;
  int64_t since_poll = 0;
  *done = 1;
  for (int64_t i = 0; i < p->n; i += DMUON_HOST_CHUNK) {
    int64_t count = dmuon_host_min(DMUON_HOST_CHUNK, p->n - i);
    pack_chunk(p, i, count, dmuon_dtype_at(p->dst, i, p->dst_dtype));
    since_poll += count;
    if (since_poll < DMUON_HOST_POLL_ELEMENTS) continue;
    since_poll = 0;
    DMUON_TRY(dmuon_host_engine_poll(engine));
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode find_advance(dmuon_host_engine *engine, void *args, int *done) {
  const dmuon_host_find *f = args;
  const dmuon_pack *p = &f->pack;
  int64_t since_poll = 0;
  *done = 1;
  *f->index = -1;
  for (int64_t i = 0; i < p->n; i += DMUON_HOST_CHUNK) {
    double room[DMUON_HOST_CHUNK];
    int64_t count = dmuon_host_min(DMUON_HOST_CHUNK, p->n - i);
    pack_chunk(p, i, count, room);
    int64_t found = dmuon_dtype_find_nonfinite(count, p->dst_dtype, room);
    if (found >= 0) {
      *f->index = i + found;
      if (f->flag) *f->flag = 1;
      return DMUON_SUCCESS;
    }
    since_poll += count;
    if (since_poll < DMUON_HOST_POLL_ELEMENTS) continue;
    since_poll = 0;
    DMUON_TRY(dmuon_host_engine_poll(engine));
  }
  return DMUON_SUCCESS;
}

/* Division by a norm sqrt(sum) * 2^exponent. The power of two comes first, as a factor (exponents
 * stay above -1000 and no double needs more), so that neither a reciprocal nor the norm itself,
 * which may be beyond the range of double, is ever formed. */
typedef struct {
  int plain;    /* nothing but a cast */
  int constant; /* every element becomes value */
  double value; /* zero norm: 0; norm not finite: NaN */
  double alpha, factor, root;
} scaling;

static scaling scaling_of(double alpha, const dmuon_norm *divide) {
  scaling s = {alpha == 1 && !divide, 0, 0, alpha, 1, 1};
  if (!divide) return s;
  s.constant = divide->sum == 0 || !isfinite(divide->sum);
  s.value = divide->sum == 0 ? 0 : NAN;
  if (s.constant) return s;
  s.factor = ldexp(1, (int)-divide->exponent);
  s.root = sqrt(divide->sum);
  return s;
}

static void scale_chunk(const scaling *s, int64_t count, double *x) {
  if (s->plain) return;
  if (s->constant) {
    for (int64_t j = 0; j < count; j++) x[j] = s->value;
    return;
  }
  double alpha = s->alpha, factor = s->factor, root = s->root;
  if (factor == 1 && root == 1)
    for (int64_t j = 0; j < count; j++) x[j] = alpha * x[j];
  else
    for (int64_t j = 0; j < count; j++) x[j] = alpha * (x[j] * factor / root);
}

static void copy_row(const dmuon_copy_matrix *m, const scaling *s, int64_t row) {
  const void *src = dmuon_dtype_at(m->src, row * m->src_ld, m->src_dtype);
  void *dst = dmuon_dtype_at(m->dst, row * m->dst_ld, m->dst_dtype);
  if (s->plain) {
    if (src != dst || m->src_dtype != m->dst_dtype)
      dmuon_dtype_cast(m->cols, m->dst_dtype, dst, m->src_dtype, src);
    return;
  }
  for (int64_t i = 0; i < m->cols; i += DMUON_HOST_CHUNK) {
    double x[DMUON_HOST_CHUNK];
    int64_t count = dmuon_host_min(DMUON_HOST_CHUNK, m->cols - i);
    dmuon_dtype_cast(count, DMUON_FLOAT64, x, m->src_dtype, dmuon_dtype_at(src, i, m->src_dtype));
    scale_chunk(s, count, x);
    dmuon_dtype_cast(count, m->dst_dtype, dmuon_dtype_at(dst, i, m->dst_dtype), DMUON_FLOAT64, x);
  }
}

enum { TRANSPOSE_TILE = 32 };

static void copy_tile_transposed(const dmuon_copy_matrix *m, const scaling *s, int64_t row,
                                 int64_t col) {
  double tile[TRANSPOSE_TILE * TRANSPOSE_TILE], x[TRANSPOSE_TILE];
  int64_t rows = dmuon_host_min(TRANSPOSE_TILE, m->rows - row);
  int64_t cols = dmuon_host_min(TRANSPOSE_TILE, m->cols - col);
  for (int64_t i = 0; i < rows; i++) {
    double *line = tile + i * TRANSPOSE_TILE;
    dmuon_dtype_cast(cols, DMUON_FLOAT64, line, m->src_dtype,
                     dmuon_dtype_at(m->src, (row + i) * m->src_ld + col, m->src_dtype));
    scale_chunk(s, cols, line);
  }
  for (int64_t j = 0; j < cols; j++) {
    for (int64_t i = 0; i < rows; i++) x[i] = tile[i * TRANSPOSE_TILE + j];
    dmuon_dtype_cast(rows, m->dst_dtype,
                     dmuon_dtype_at(m->dst, (col + j) * m->dst_ld + row, m->dst_dtype),
                     DMUON_FLOAT64, x);
  }
}

/* The same for fp32 to fp32, which Newton-Schulz does with every tall matrix: straight from source
 * to destination, since narrow stores into a tile that wide loads read back at once stall
 * (measured: 5 to 10 times slower). */
static void copy_tile_transposed_f32(const dmuon_copy_matrix *m, const scaling *s, int64_t row,
                                     int64_t col) {
  int64_t rows = dmuon_host_min(TRANSPOSE_TILE, m->rows - row);
  int64_t cols = dmuon_host_min(TRANSPOSE_TILE, m->cols - col);
  double alpha = s->alpha, factor = s->factor, root = s->root, value = s->value;
  for (int64_t j = 0; j < cols; j++) {
    const float *src = (const float *)m->src + row * m->src_ld + col + j;
    float *dst = (float *)m->dst + (col + j) * m->dst_ld + row;
    if (s->plain)
      for (int64_t i = 0; i < rows; i++) dst[i] = src[i * m->src_ld];
    else if (s->constant)
      for (int64_t i = 0; i < rows; i++) dst[i] = (float)value;
    else
      for (int64_t i = 0; i < rows; i++)
        dst[i] = (float)(alpha * ((double)src[i * m->src_ld] * factor / root));
  }
}

static DMuonErrorCode copy_transposed(dmuon_host_engine *engine, const dmuon_copy_matrix *m,
                                      const scaling *s) {
  int both_f32 = m->src_dtype == DMUON_FLOAT32 && m->dst_dtype == DMUON_FLOAT32;
  int64_t since_poll = 0;
  for (int64_t i = 0; i < m->rows; i += TRANSPOSE_TILE) {
    for (int64_t j = 0; j < m->cols; j += TRANSPOSE_TILE)
      (both_f32 ? copy_tile_transposed_f32 : copy_tile_transposed)(m, s, i, j);
    since_poll += TRANSPOSE_TILE * m->cols;
    if (since_poll < DMUON_HOST_POLL_ELEMENTS) continue;
    since_poll = 0;
    DMUON_TRY(dmuon_host_engine_poll(engine));
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode copy_matrix_advance(dmuon_host_engine *engine, void *args, int *done) {
  const dmuon_copy_matrix *m = args;
  scaling s = scaling_of(m->alpha, m->divide);
  int64_t since_poll = 0;
  *done = 1;
  if (m->transpose) {
    DMUON_TRY(copy_transposed(engine, m, &s));
    return DMUON_SUCCESS;
  }
  for (int64_t i = 0; i < m->rows; i++) {
    copy_row(m, &s, i);
    since_poll += m->cols;
    if (since_poll < DMUON_HOST_POLL_ELEMENTS) continue;
    since_poll = 0;
    DMUON_TRY(dmuon_host_engine_poll(engine));
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode diagonal_advance(dmuon_host_engine *engine, void *args, int *done) {
  const dmuon_host_diagonal *d = args;
  (void)engine;
  *done = 1;
  for (int64_t i = 0; i < d->m; i++) {
    int64_t at = i * d->ld + i;
    dmuon_dtype_set(d->dtype, d->c, at, dmuon_dtype_get(d->dtype, d->c, at) + d->alpha);
  }
  return DMUON_SUCCESS;
}

const dmuon_host_task_class dmuon_host_zero_task = {.name = "zero", .advance = zero_advance};
const dmuon_host_task_class dmuon_host_discard_task = {.name = "discard",
                                                       .advance = discard_advance};
const dmuon_host_task_class dmuon_host_divide_task = {.name = "divide", .advance = divide_advance};
const dmuon_host_task_class dmuon_host_copy_task = {.name = "copy", .advance = copy_advance};
const dmuon_host_task_class dmuon_host_cast_task = {.name = "cast", .advance = cast_advance};
const dmuon_host_task_class dmuon_host_axpby_task = {.name = "axpby", .advance = axpby_advance};
const dmuon_host_task_class dmuon_host_pack_task = {.name = "pack", .advance = pack_advance};
const dmuon_host_task_class dmuon_host_find_task = {.name = "find_nonfinite",
                                                    .advance = find_advance};
const dmuon_host_task_class dmuon_host_copy_matrix_task = {.name = "copy_matrix",
                                                           .advance = copy_matrix_advance};
const dmuon_host_task_class dmuon_host_diagonal_task = {.name = "add_diagonal",
                                                        .advance = diagonal_advance};
