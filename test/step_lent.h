/* The model of step_case.h in the library's memory: its groups, and passes written as programs of
 * brackets. A program is a text of a letter and a group's number each: f and F open and close a
 * forward, b and B a backward, as in "f0F0 f1F1 b1B1 b0B0". Between the brackets every open group's
 * values are compared with those expected, and gradients are given in parts that add up exactly. */
#ifndef TEST_STEP_LENT_H
#define TEST_STEP_LENT_H

#include "step_case.h"

/* layers.0, layers.1, layers.2, embed, _root, layers.3 */
enum { LENT_GROUPS = 6 };

typedef enum {
  LENT_ADD = 0,   /* GetGrad, added to */
  LENT_SET,       /* SetGrad: an own array */
  LENT_OVERWRITE, /* GetGrad, written (grad_mode overwrite) */
  LENT_ARRAYS     /* GetArrays, added to */
} lent_way;

typedef struct {
  step_case *c;
  lent_way way;
  int step, micro;
  double factor;               /* of the gradients; a power of two, or 0 */
  const void *const *expected; /* [CASE_PARAMS] values, or NULL: not looked at */
  unsigned long long without;  /* bit p: no gradient is given of parameter p */
  /* Out. */
  int64_t wrong; /* elements of values that were not as expected, whenever looked at */
} lent_pass;

/* Initial values by a function, case_weight. flat: the AdamW route on flat shards. */
DMuonErrorCode lent_create(DMuonMesh mesh, int flat, step_case *c);
/* Runs a program; stops at the first error. A group's gradients are shared out equally over its
 * outermost backwards, whose number must be a power of two. */
DMuonErrorCode lent_run(lent_pass *pass, const char *program);
/* All values into c->weight, on all ranks. Collective. */
DMuonErrorCode lent_load(step_case *c);
/* 1 when parameter p is of group g. */
int lent_is_in(int p, int g);

#endif
