/* A stable merge sort with a context: the order of equal elements is part of a plan. */
#ifndef DMUON_BASE_SORT_H
#define DMUON_BASE_SORT_H

#include "base/memory.h"

typedef int (*dmuon_compare)(const void *a, const void *b, void *context);

/* Sorts count elements of element_bytes each, in place; needs as much scratch from memory. */
DMuonErrorCode dmuon_sort(dmuon_memory *memory, void *base, int64_t count, size_t element_bytes,
                          dmuon_compare compare, void *context);

#endif
