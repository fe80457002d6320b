/* Ballots: what comes out of combining, in any bracketing of rank order. */
#include "optim/ballot.h"

#include "tap.h"

enum { MESHES = 2, PARAMS = 11, RANKS = 5 };
typedef union {
  dmuon_ballot ballot;
  char room[512];
} box;

static void fill(box *b, int rank) {
  dmuon_ballot_init(&b->ballot, MESHES, PARAMS);
  dmuon_ballot_mesh *all = dmuon_ballot_mesh_at(&b->ballot, 0);
  *all = (dmuon_ballot_mesh){.values = 7,
                             .voters = 1,
                             .first_rank = rank,
                             .differing_rank = -1,
                             .uncounted_rank = -1,
                             .counted = 1,
                             .samples = 10 + rank};
  if (rank == 3 || rank == 4) all->values = 8;
  if (rank >= 1) { /* rank 0 is not in the second mesh */
    dmuon_ballot_mesh *part = dmuon_ballot_mesh_at(&b->ballot, 1);
    *part = (dmuon_ballot_mesh){.values = 5,
                                .voters = 1,
                                .first_rank = rank,
                                .differing_rank = -1,
                                .uncounted_rank = rank == 2 ? 2 : -1,
                                .counted = rank != 2,
                                .samples = 1};
  }
  b->ballot.first_rank = rank;
  b->ballot.caller = rank == 2 || rank == 4 ? 2 : 1;
  dmuon_ballot_set_gradient(&b->ballot, 2 * rank);
  if (rank == 4) b->ballot.nonfinite_param = 3, b->ballot.nonfinite_rank = 4;
  if (rank == 1) b->ballot.nonfinite_param = 9, b->ballot.nonfinite_rank = 1;
  if (rank == 2) b->ballot.error_code = 2, b->ballot.error_rank = 2;
  if (rank == 3) b->ballot.error_code = 100, b->ballot.error_rank = 3;
}

static void check(dmuon_ballot *b, const char *how) {
  const dmuon_ballot_mesh *all = dmuon_ballot_mesh_at(b, 0), *part = dmuon_ballot_mesh_at(b, 1);
  tap_is_int(all->voters, 5, "%s: all voted", how);
  tap_is_int(all->differing_rank, 3, "%s: the lowest rank that differs", how);
  tap_ok(all->samples == 60, "%s: samples add up", how);
  tap_is_int(part->voters, 4, "%s: four in the second mesh", how);
  tap_is_int(part->first_rank, 1, "%s: compared with the lowest of them", how);
  tap_is_int(part->differing_rank, -1, "%s: who agree", how);
  tap_is_int(part->uncounted_rank, 2, "%s: one gave no count", how);
  tap_is_int(b->nonfinite_param, 3, "%s: first parameter that is not finite", how);
  tap_is_int(b->nonfinite_rank, 4, "%s: where", how);
  tap_is_int(b->other_caller_rank, 2, "%s: the lowest rank that steps another optimizer", how);
  tap_is_int(b->error_code, 2, "%s: error of the lowest rank", how);
  int wrong = 0;
  for (int p = 0; p < PARAMS; p++)
    wrong += dmuon_ballot_has_gradient(b, p) != (p % 2 == 0 && p <= 8);
  tap_is_int(wrong, 0, "%s: gradients present anywhere", how);
}

int main(void) {
  box ballots[RANKS], into;
  tap_ok(dmuon_ballot_bytes(MESHES, PARAMS) <= (int64_t)sizeof into, "fits");
  for (int r = 0; r < RANKS; r++) fill(&ballots[r], r);
  into = ballots[0];
  for (int r = 1; r < RANKS; r++) dmuon_ballot_combine(&into, &ballots[r], 0, NULL);
  check(&into.ballot, "one after another");

  for (int r = 0; r < RANKS; r++) fill(&ballots[r], r);
  dmuon_ballot_combine(&ballots[0], &ballots[1], 0, NULL);
  dmuon_ballot_combine(&ballots[2], &ballots[3], 0, NULL);
  dmuon_ballot_combine(&ballots[0], &ballots[2], 0, NULL);
  dmuon_ballot_combine(&ballots[0], &ballots[4], 0, NULL);
  check(&ballots[0].ballot, "as a tree");
  return tap_done();
}
