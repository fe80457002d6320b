/* Patterns on names: '*' and '?' and '[a-z]' ('[!a-z]': any other; no escapes, but
 * '[*]' is a star and '[|]' a bar), alternatives with '|'. '*' also matches '.' and '/'.
 * And the nearest known name, for "did you mean". */
#ifndef DMUON_BASE_GLOB_H
#define DMUON_BASE_GLOB_H

#include "base/error.h"

int dmuon_glob_match(const char *pattern, const char *name);
/* DMUON_ERR_ARGUMENT for NULL, empty, an empty alternative, or an unclosed '['. */
DMuonErrorCode dmuon_glob_check(const char *pattern);

/* The name nearest to word by edit distance, NULL if none is near (more than about a third off). */
const char *dmuon_nearest_name(const char *word, int count, const char *const *names);

#endif
