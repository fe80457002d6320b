/* Cutting a parameter into the matrices that are orthogonalised. */
#include "update/pieces.h"

static int64_t blocks_of(const dmuon_param *param) {
  return param->nblocks > 0 ? param->nblocks : 1;
}

int64_t dmuon_piece_count(const dmuon_param *param) {
  return param->batch * blocks_of(param);
}

/* Of the blocks of one matrix as long as this one: how many there are, and are before it. */
static void count_alike(const dmuon_param *param, int block, int *together, int *before) {
  *together = 1, *before = 0;
  if (param->nblocks == 0) return;
  *together = 0;
  for (int j = 0; j < param->nblocks; j++) {
    if (param->blocks[j] != param->blocks[block]) continue;
    ++*together;
    if (j < block) ++*before;
  }
}

dmuon_piece_alike dmuon_piece_alike_of(const dmuon_param *param, int64_t index) {
  int together, before;
  count_alike(param, (int)(index % blocks_of(param)), &together, &before);
  return (dmuon_piece_alike){.count = param->batch * together,
                             .rank = index / blocks_of(param) * together + before};
}

int64_t dmuon_piece_alike_at(const dmuon_param *param, int64_t index, int64_t k) {
  const int block = (int)(index % blocks_of(param));
  int together, before, j = 0;
  count_alike(param, block, &together, &before);
  for (int64_t left = k % together; param->nblocks > 0; j++)
    if (param->blocks[j] == param->blocks[block] && left-- == 0) break;
  return k / together * blocks_of(param) + j;
}

void dmuon_piece_get(const dmuon_param *param, int64_t index, dmuon_piece *piece) {
  int64_t matrix = index / blocks_of(param);
  int block = (int)(index % blocks_of(param));
  int64_t before = 0, together = 0; /* output side before this block, and of all blocks */
  dmuon_ns_view *view = &piece->view;

  piece->offset = matrix * param->rows * param->cols;
  *view = (dmuon_ns_view){.rows = param->rows,
                          .cols = param->cols,
                          .ld = param->cols,
                          .side = DMUON_ROWS,
                          .strips = 1,
                          .strip = param->rows};
  dmuon_param_fans(param, block, &piece->out, &piece->in);
  if (param->nblocks == 0) return;

  for (int j = 0; j < param->nblocks; j++) {
    if (j < block) before += param->blocks[j];
    together += param->blocks[j];
  }
  view->side = param->output;
  view->strips = param->repeat;
  view->strip = param->blocks[block];
  if (param->output == DMUON_ROWS) {
    view->rows = param->repeat * param->blocks[block];
    view->stride = together * param->cols;
    piece->offset += before * param->cols;
  } else {
    view->cols = param->repeat * param->blocks[block];
    view->stride = together;
    piece->offset += before;
  }
}
