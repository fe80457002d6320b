/* Filling and combining the ballots of Step. */
#include "optim/ballot.h"

#include <string.h>

int64_t dmuon_ballot_bytes(int mesh_count, int param_count) {
  int64_t bits = ((int64_t)param_count + 7) / 8;
  return (int64_t)sizeof(dmuon_ballot) + mesh_count * (int64_t)sizeof(dmuon_ballot_mesh) +
         (bits + 7) / 8 * 8;
}

dmuon_ballot_mesh *dmuon_ballot_mesh_at(dmuon_ballot *ballot, int mesh) {
  return (dmuon_ballot_mesh *)(ballot + 1) + mesh;
}

static unsigned char *bits_of(const dmuon_ballot *ballot) {
  return (unsigned char *)(dmuon_ballot_mesh_at((dmuon_ballot *)ballot, ballot->mesh_count));
}

void dmuon_ballot_init(dmuon_ballot *ballot, int mesh_count, int param_count) {
  int64_t bytes = dmuon_ballot_bytes(mesh_count, param_count);
  memset(ballot, 0, (size_t)bytes);
  ballot->bytes = bytes;
  ballot->mesh_count = mesh_count;
  ballot->param_count = param_count;
  ballot->other_caller_rank = ballot->error_rank = ballot->nonfinite_param =
      ballot->nonfinite_rank = -1;
  for (int i = 0; i < mesh_count; i++) {
    dmuon_ballot_mesh *mesh = dmuon_ballot_mesh_at(ballot, i);
    mesh->first_rank = mesh->differing_rank = mesh->uncounted_rank = -1;
  }
}

void dmuon_ballot_set_gradient(dmuon_ballot *ballot, int param) {
  bits_of(ballot)[param / 8] |= (unsigned char)(1u << (param % 8));
}

int dmuon_ballot_has_gradient(const dmuon_ballot *ballot, int param) {
  return bits_of(ballot)[param / 8] >> (param % 8) & 1;
}

static void combine_mesh(dmuon_ballot_mesh *a, const dmuon_ballot_mesh *b) {
  if (b->voters == 0) return;
  if (a->voters == 0) {
    *a = *b;
    return;
  }
  if (a->differing_rank < 0)
    a->differing_rank = b->values != a->values ? b->first_rank : b->differing_rank;
  if (a->uncounted_rank < 0) a->uncounted_rank = b->uncounted_rank;
  a->voters += b->voters;
  a->counted += b->counted;
  a->samples += b->samples;
}

void dmuon_ballot_combine(void *into, const void *from, int64_t bytes, void *context) {
  dmuon_ballot *a = into;
  const dmuon_ballot *b = from;
  (void)context;
  (void)bytes;
  if (a->other_caller_rank < 0)
    a->other_caller_rank = a->caller != b->caller ? b->first_rank : b->other_caller_rank;
  if (a->error_code == 0 && b->error_code != 0) {
    a->error_code = b->error_code;
    a->error_rank = b->error_rank;
  }
  if (b->nonfinite_param >= 0 &&
      (a->nonfinite_param < 0 || b->nonfinite_param < a->nonfinite_param)) {
    a->nonfinite_param = b->nonfinite_param;
    a->nonfinite_rank = b->nonfinite_rank;
  }
  for (int i = 0; i < a->mesh_count; i++)
    combine_mesh(dmuon_ballot_mesh_at(a, i), dmuon_ballot_mesh_at((dmuon_ballot *)b, i));
  unsigned char *bits = bits_of(a), *more = bits_of(b);
  for (int i = 0; i < (a->param_count + 7) / 8; i++) bits[i] |= more[i];
}
