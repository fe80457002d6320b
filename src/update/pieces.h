/* The matrices of one parameter: which rows and columns of it are orthogonalised together, and the
 * sides its scale is taken from. Pure.
 *
 * A parameter is batch matrices; each is cut by row blocks (on its output side) into nblocks
 * pieces, piece j made of part j of every repeat. */
#ifndef DMUON_UPDATE_PIECES_H
#define DMUON_UPDATE_PIECES_H

#include "model/param.h"
#include "ns/ns.h"

typedef struct {
  int64_t offset;     /* of its first element in the parameter */
  dmuon_ns_view view; /* strips in the parameter's memory */
  int64_t out, in;    /* for the scale rule */
} dmuon_piece;

int64_t dmuon_piece_count(const dmuon_param *param);
void dmuon_piece_get(const dmuon_param *param, int64_t index, dmuon_piece *piece);

/* Pieces of one shape: count of them, which of them this one is (from 0), and the one that is k-th.
 * They may be orthogonalised together. */
typedef struct {
  int64_t count, rank;
} dmuon_piece_alike;
dmuon_piece_alike dmuon_piece_alike_of(const dmuon_param *param, int64_t index);
int64_t dmuon_piece_alike_at(const dmuon_param *param, int64_t index, int64_t k);

#endif
