/* A pairwise selection: of several choices with a few values each, picks of one value a choice
 * until every pair of values has met. The same sequence on all ranks. */
#ifndef TEST_PAIRS_H
#define TEST_PAIRS_H

#include <stdint.h>
#include <string.h>

enum { PAIRS_CHOICES = 24, PAIRS_VALUES = 6 };

typedef struct {
  int choices;
  int values[PAIRS_CHOICES]; /* how many values each choice has */
  unsigned char met[PAIRS_CHOICES][PAIRS_VALUES][PAIRS_CHOICES][PAIRS_VALUES];
} pairs;

/* Pairs of the pick that had not met. mark: now they have. */
static int pairs_new(pairs *p, const int *pick, int mark) {
  int count = 0;
  for (int i = 0; i < p->choices; i++)
    for (int j = 0; j < i; j++) {
      count += !p->met[i][pick[i]][j][pick[j]];
      if (mark) p->met[i][pick[i]][j][pick[j]] = 1;
    }
  return count;
}

/* The best of some random picks; 0 when every pair has met. */
static int pairs_next(pairs *p, uint64_t *seed, int *pick) {
  int best = 0, left = 0;
  for (int i = 0; i < p->choices; i++)
    for (int j = 0; j < i; j++)
      for (int a = 0; a < p->values[i]; a++)
        for (int b = 0; b < p->values[j]; b++) left += !p->met[i][a][j][b];
  if (left == 0) return 0;
  while (best == 0)
    for (int try = 0; try < 200; try++) {
      int candidate[PAIRS_CHOICES];
      for (int i = 0; i < p->choices; i++) {
        *seed = *seed * 6364136223846793005u + 1442695040888963407u;
        candidate[i] = (int)((*seed >> 33) % (uint64_t)p->values[i]);
      }
      const int count = pairs_new(p, candidate, 0);
      if (count <= best) continue;
      best = count;
      memcpy(pick, candidate, (size_t)p->choices * sizeof *pick);
    }
  pairs_new(p, pick, 1);
  return 1;
}

#endif
