/* What the files of the options share: an entry of the two lists, and the check of one value. */
#ifndef DMUON_BASE_OPTIONS_ENTRY_H
#define DMUON_BASE_OPTIONS_ENTRY_H

#include "base/options.h"

struct dmuon_options_entry {
  char *name;  /* "lr" or "disc.lr" */
  char *value; /* said: the text as given, NULL for a bare flag; effective: in one spelling */
  int64_t value_capacity;
  char *where; /* said: "command line", "file run.opts, line 3"; effective: NULL */
  const dmuon_option_table *table; /* effective: whose, NULL when only a live call spoke of it */
  const char *help;                /* effective: of the table */
  dmuon_option_source source;
  int is_used; /* said: an object took it into account */
};

/* A checked value, not stored yet. */
typedef struct {
  int integer; /* BOOL, ENUM */
  int64_t count;
  double real;
  const char *string; /* borrowed from the text */
} dmuon_option_value;

/* Checks text (NULL: a bare flag) against spec. shown is the option's name as the user wrote it;
 * where may be NULL. */
DMuonErrorCode dmuon_option_check(const dmuon_option_spec *spec, const char *shown,
                                  const char *text, const char *where, dmuon_option_value *value);

/* Records one option whatever its name; where is text for people. */
DMuonErrorCode dmuon_options_push(dmuon_options *options, const char *name, const char *value,
                                  dmuon_option_source source, const char *where);
/* 1 when name may be that of an option: letters, digits, '_', '-', '.', a letter or '_' first. */
int dmuon_option_is_name(const char *name);
/* Replaces entry's value (NULL: none) by a copy, in place when it fits. */
DMuonErrorCode dmuon_options_set_value(dmuon_memory *memory, dmuon_options_entry *entry,
                                       const char *value);
void dmuon_options_entry_free(dmuon_options_entry *entry);
/* A new, empty entry at the end of a list. */
DMuonErrorCode dmuon_options_grow(dmuon_memory *memory, dmuon_options_entry **list, int *count,
                                  int *capacity, int more);

#endif
