/* The training example's own communication: a few numbers together, and rank 0's text for all. */
#ifndef RANKS_H
#define RANKS_H

#include <stddef.h>

/* Each of count values becomes its sum over all ranks. */
void ranks_sum(double *values, int count);

/* The largest of the ranks' values. */
double ranks_max(double value);

/* Everyone gets rank 0's. */
void ranks_broadcast(void *data, size_t size);

#endif
