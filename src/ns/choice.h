/* Choices by shape: which form runs, how many matrices together, and how a device that cuts
 * symmetric products into tiles does so, where somebody measured it.
 * What is not listed follows the rule of plan.c. A table is text (JSON), so that it can be saved
 * and every rank can read the same; whether all ranks did is compared with the other settings. */
#ifndef DMUON_NS_CHOICE_H
#define DMUON_NS_CHOICE_H

#include "base/dtype.h"
#include "base/memory.h"

typedef enum { DMUON_NS_AUTO = 0, DMUON_NS_GRAM, DMUON_NS_DIRECT } dmuon_ns_variant;
const char *dmuon_ns_variant_name(dmuon_ns_variant variant);

typedef struct {
  int64_t small, big;       /* sides; small <= big */
  DMuonDType dtype;         /* of the iteration */
  dmuon_ns_variant variant; /* GRAM or DIRECT */
  int64_t batch;            /* matrices together; 0: by rule */
  int64_t tile;             /* side of tiles; 0: by the device's rule, -1: products are not cut */
  double seconds[3];        /* measured, by variant, of one matrix; 0: not told */
} dmuon_ns_choice;

typedef struct {
  int count;
  dmuon_ns_choice *entries; /* ascending by dtype, small, big; owned */
} dmuon_ns_choices;

/* NULL: none for this shape. */
const dmuon_ns_choice *dmuon_ns_choices_find(const dmuon_ns_choices *choices, int64_t small,
                                             int64_t big, DMuonDType dtype);
/* Adds one, or replaces the one of its shape. DMUON_ERR_ARGUMENT says which field is wrong. */
DMuonErrorCode dmuon_ns_choices_add(dmuon_memory *memory, dmuon_ns_choices *choices,
                                    const dmuon_ns_choice *choice);
void dmuon_ns_choices_free(dmuon_ns_choices *choices);

/* Reads a file as write makes it. DMUON_ERR_FILE, or DMUON_ERR_FORMAT with the entry and what is
 * wrong with it; choices is untouched then, and replaced else. */
DMuonErrorCode dmuon_ns_choices_read(dmuon_memory *memory, const char *path,
                                     dmuon_ns_choices *choices);
/* The text, of malloc: for DMuonFree. device: what was measured on, for people. */
DMuonErrorCode dmuon_ns_choices_print(const dmuon_ns_choices *choices, const char *device,
                                      char **text);

#endif
