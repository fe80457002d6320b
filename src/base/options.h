/* Options as data.
 *
 * A class of objects describes its options in one static table (dmuon_option_spec). What the user
 * said (file, environment, command line) is collected in a dmuon_options as text. When an object is
 * set up, dmuon_options_apply takes what concerns it, checks it against the table, and stores it in
 * the object's settings struct over what the program had set. Order of force: default, program,
 * file, environment, command line (and SetOption), live.
 *
 * One name everywhere: "-dmuon_X" on the command line, "DMUON_X" (upper case) in the environment,
 * "X" in a file and for SetOption. "disc.X" concerns only the object named disc and wins over "X"
 * of the same source; in the environment the dot is two underscores: DMUON_DISC__X. */
#ifndef DMUON_BASE_OPTIONS_H
#define DMUON_BASE_OPTIONS_H

#include "base/memory.h"
#include "base/text.h"
#include "base/visible.h"

DMUON_VISIBLE_BEGIN

/* Numbers are decimal, with a '.' whatever the locale. */
typedef enum {
  DMUON_OPTION_BOOL,  /* int: 1|true|yes|on, 0|false|no|off; a bare flag is 1 */
  DMUON_OPTION_INT,   /* int64_t within [low, high]; "decide" is DMUON_DECIDE where low <= -1 */
  DMUON_OPTION_REAL,  /* double within [low, high], finite */
  DMUON_OPTION_ENUM,  /* int: index into values, which end with NULL */
  DMUON_OPTION_STRING /* char *: a copy owned by the settings struct, freed by its owner */
} dmuon_option_type;

typedef struct {
  const char *name; /* "prefetch_depth" */
  dmuon_option_type type;
  size_t offset; /* of the int, int64_t, double or char * in the settings struct */
  const char *default_text;
  double low, high;          /* both 0: no limits */
  const char *const *values; /* for ENUM */
  const char *help;
} dmuon_option_spec;

typedef struct {
  const char *class_name; /* "mesh", "model", "partition", "optimizer", "newton_schulz" */
  int count;
  const dmuon_option_spec *specs;
} dmuon_option_table;

typedef enum {
  DMUON_SOURCE_DEFAULT = 0,
  DMUON_SOURCE_PROGRAM,
  DMUON_SOURCE_FILE,
  DMUON_SOURCE_ENVIRONMENT,
  DMUON_SOURCE_COMMAND_LINE, /* and SetOption */
  DMUON_SOURCE_LIVE
} dmuon_option_source;
const char *dmuon_option_source_name(dmuon_option_source source); /* "command line" */

/* What the user said and what came of it. Zero-initialise; the fields are options.c's own. */
typedef struct dmuon_options_entry dmuon_options_entry;
typedef struct {
  dmuon_memory *memory;
  int said_count, said_capacity;
  dmuon_options_entry *said; /* text as given, with source and whether anyone used it */
  int effective_count, effective_capacity;
  dmuon_options_entry *effective; /* after apply: value in force, its source */
} dmuon_options;

void dmuon_options_init(dmuon_options *options, dmuon_memory *memory);
void dmuon_options_free(dmuon_options *options);

/* Records one option as said by source; value NULL is a bare flag. Said twice by one source, the
 * later counts. Checks only that name is a word and not options_file (only dmuon_options_read reads
 * files); whether anybody knows it is found out by dmuon_options_report. */
DMuonErrorCode dmuon_options_say(dmuon_options *options, const char *name, const char *value,
                                 dmuon_option_source source);
/* Takes "-dmuon_X [value]" and "-dmuon_X=value" out of argv (argc, argv may be NULL; what follows
 * "--" is left alone), reads the files named by DMUON_OPTIONS_FILE and -dmuon_options_file (which
 * wins over it), and every DMUON_... of the environment that is not empty.
 * A word after -dmuon_X is its value unless it begins with '-' and is no number. File: a line
 * "X value" or "X = value", or X alone for a flag; '#' at the beginning of a word begins a comment.
 * DMUON_ERR_ARGUMENT, or for a file DMUON_ERR_FILE and DMUON_ERR_FORMAT with its line. Nothing is
 * recorded, and argv stays, when anything is wrong. */
DMuonErrorCode dmuon_options_read(dmuon_options *options, int *argc, char **argv);

/* Fills settings with each spec's default text (NULL: the STRING is NULL). Called by the object's
 * Create on fresh settings: strings that stand there are not freed. */
DMuonErrorCode dmuon_options_defaults(dmuon_memory *memory, const dmuon_option_table *table,
                                      void *settings);
/* Frees the strings of settings. */
void dmuon_options_settings_free(const dmuon_option_table *table, void *settings);
/* Overrides settings by what was said for object_name (NULL: unnamed class), and records the value
 * in force of every option of the table, as "object_name.X" or "X". program[i] nonzero: the program
 * set option i (its value stands in settings), used for the source; with program NULL that is taken
 * from whether the value differs from the default. Checks everything said about the table's
 * options, overridden or not, before storing any; on failure nothing changed. */
DMuonErrorCode dmuon_options_apply(dmuon_options *options, const dmuon_option_table *table,
                                   const char *object_name, const unsigned char *program,
                                   void *settings);
/* Stores in settings what was said of one option for object_name, if anything was, without noting
 * that it is in force: for an option that decides the defaults of others. *said tells. */
DMuonErrorCode dmuon_options_peek(const dmuon_options *options, const dmuon_option_spec *spec,
                                  const char *object_name, void *settings, int *said);
/* The program set one option through a setter: checks text against the spec and stores it. */
DMuonErrorCode dmuon_options_store(dmuon_memory *memory, const dmuon_option_spec *spec,
                                   const char *text, void *settings);
/* The value in settings in its one spelling; buffer of at least 40. NULL for a string not set. */
const char *dmuon_option_format(const dmuon_option_spec *spec, const void *settings, char *buffer);
/* All of them, a line "name=value" each: what ranks compare. */
void dmuon_options_print(const dmuon_option_table *table, const void *settings, dmuon_text *text);
/* Index of name in table, or -1. */
int dmuon_options_find(const dmuon_option_table *table, const char *name);
/* A live call changed an option of object_name. */
DMuonErrorCode dmuon_options_note_live(dmuon_options *options, const char *object_name,
                                       const char *name, const char *value);

/* The value in force ("disc.lr" or "lr"; plain "lr" also finds "disc.lr" when all objects that have
 * it agree), in one spelling whoever said it (flags as 1 and 0, the shortest decimal of a number);
 * before any apply, what was said. NOT_FOUND names the nearest. Strings are the options', until
 * their next change. */
DMuonErrorCode dmuon_options_get(const dmuon_options *options, const char *name, const char **value,
                                 const char **source);
/* A hash of everything said (name, value), in whatever order, for the agreement at set-up. Of the
 * environment only what an apply has used counts: other DMUON_ variables may be another program's,
 * and differ from rank to rank. So the agreement comes after the apply. */
uint64_t dmuon_options_hash(const dmuon_options *options);
/* The same things, one "name=value" a line (a bare flag: "name"), sorted: what is compared when
 * hashes differ. */
void dmuon_options_list(const dmuon_options *options, dmuon_text *text);
/* Report for people: every option in force with value, source, help (of tables not applied yet the
 * defaults); then what was said and used by nobody, with the nearest known name among tables. */
void dmuon_options_report(const dmuon_options *options, int table_count,
                          const dmuon_option_table *const *tables, dmuon_text *text);

/* The end of that report alone: nothing when everything said was used. */
void dmuon_options_unused(const dmuon_options *options, int table_count,
                          const dmuon_option_table *const *tables, dmuon_text *text);

/* The only getenv of the library; name is the whole name ("DMUON_OPTIONS_FILE"). NULL when unset or
 * empty. The string is the environment's. */
const char *dmuon_environment(const char *name);

DMUON_VISIBLE_END

#endif
