/* What the training example is asked for on its command line. Plain C: no MPI, no libdmuon. */
#ifndef SETTINGS_H
#define SETTINGS_H

#include <stddef.h>

typedef struct {
  const char *text, *json, *save, *optimizer, *progress, *adamw, *order, *dtype;
  long steps, layers, width, heads, context, batch, seed;
  double lr, adamw_lr;
  long sharded, z2, recompute, reduce_each; /* 0 or 1 */
} Settings;

extern const char SETTINGS_USAGE[];

/* 0, or -1 with the trouble described in why, a line or more. */
int settings_read(Settings *settings, int argc, char **argv, char *why, size_t room);

/* Whether a setting, one of two words, is this one. */
int settings_is(const char *setting, const char *word);

#endif
