/* What the user said: collected from the command line, files and the environment, and asked for.
 *
 * Decides how a saying is recognised and under which name it is kept. What a value must look like
 * is decided in option_value.c, which of several sayings wins in options_apply.c. */
#include "base/options.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/options_entry.h"

enum { MOST_FILE_BYTES = 1 << 20 }; /* of an options file: more is a mistake */

extern char **environ;

static const char command_prefix[] = "-dmuon_", environment_prefix[] = "DMUON_";

const char *dmuon_environment(const char *name) {
  const char *value = getenv(name);
  return value && *value ? value : NULL;
}

const char *dmuon_option_source_name(dmuon_option_source source) {
  switch (source) {
    case DMUON_SOURCE_DEFAULT:
      return "default";
    case DMUON_SOURCE_PROGRAM:
      return "program";
    case DMUON_SOURCE_FILE:
      return "file";
    case DMUON_SOURCE_ENVIRONMENT:
      return "environment";
    case DMUON_SOURCE_COMMAND_LINE:
      return "command line";
    case DMUON_SOURCE_LIVE:
      return "live";
  }
  return "unknown";
}

void dmuon_options_init(dmuon_options *options, dmuon_memory *memory) {
  *options = (dmuon_options){.memory = memory};
}

void dmuon_options_entry_free(dmuon_options_entry *entry) {
  dmuon_memory_free(entry->name);
  dmuon_memory_free(entry->value);
  dmuon_memory_free(entry->where);
  memset(entry, 0, sizeof *entry);
}

void dmuon_options_free(dmuon_options *options) {
  if (!options) return;
  for (int i = 0; i < options->said_count; i++) dmuon_options_entry_free(&options->said[i]);
  for (int i = 0; i < options->effective_count; i++) {
    dmuon_options_entry_free(&options->effective[i]);
  }
  dmuon_memory_free(options->said);
  dmuon_memory_free(options->effective);
  dmuon_options_init(options, options->memory);
}

DMuonErrorCode dmuon_options_grow(dmuon_memory *memory, dmuon_options_entry **list, int *count,
                                  int *capacity, int more) {
  if (more > INT_MAX / 2 - *count) DMUON_FAIL(DMUON_ERR_MEMORY, "%d options are too many", more);
  if (*count + more <= *capacity) return DMUON_SUCCESS;
  int wanted = 2 * *capacity > *count + more ? 2 * *capacity : *count + more + 8;
  DMUON_TRY(dmuon_memory_resize(memory, list, *capacity, wanted, sizeof **list));
  *capacity = wanted;
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_options_set_value(dmuon_memory *memory, dmuon_options_entry *entry,
                                       const char *value) {
  if (!value) {
    dmuon_memory_release(&entry->value);
    entry->value_capacity = 0;
    return DMUON_SUCCESS;
  }
  int64_t bytes = (int64_t)strlen(value) + 1;
  if (bytes > entry->value_capacity) {
    /* Room for any number from the start, so that live changes of one allocate nothing. */
    int64_t capacity = bytes > 40 ? bytes : 40;
    char *room = NULL;
    DMUON_TRY(dmuon_memory_alloc(memory, capacity, 1, &room));
    dmuon_memory_free(entry->value);
    entry->value = room;
    entry->value_capacity = capacity;
  }
  memcpy(entry->value, value, (size_t)bytes);
  return DMUON_SUCCESS;
}

int dmuon_option_is_name(const char *name) {
  if (!name ||
      !((*name >= 'a' && *name <= 'z') || (*name >= 'A' && *name <= 'Z') || *name == '_')) {
    return 0;
  }
  for (const char *c = name; *c; c++) {
    int is_letter = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z');
    if (!is_letter && !(*c >= '0' && *c <= '9') && !strchr("_-.", *c)) return 0;
  }
  return name[strlen(name) - 1] != '.';
}

DMuonErrorCode dmuon_options_push(dmuon_options *options, const char *name, const char *value,
                                  dmuon_option_source source, const char *where) {
  dmuon_options_entry fresh = {.source = source};
  DMuonErrorCode code = dmuon_memory_strdup(options->memory, name, &fresh.name);
  if (!code) code = dmuon_options_set_value(options->memory, &fresh, value);
  if (!code) code = dmuon_memory_strdup(options->memory, where, &fresh.where);
  if (!code) {
    code = dmuon_options_grow(options->memory, &options->said, &options->said_count,
                              &options->said_capacity, 1);
  }
  if (code) {
    dmuon_options_entry_free(&fresh);
    DMUON_TRY(code);
  }
  for (int i = 0; i < options->said_count; i++) {
    if (options->said[i].source != source || strcmp(options->said[i].name, name)) continue;
    dmuon_options_entry_free(&options->said[i]);
    options->said[i] = fresh;
    return DMUON_SUCCESS;
  }
  options->said[options->said_count++] = fresh;
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_options_say(dmuon_options *options, const char *name, const char *value,
                                 dmuon_option_source source) {
  if (!dmuon_option_is_name(name)) {
    DMUON_FAIL(DMUON_ERR_ARGUMENT,
               "'%s' is no option's name: letters, digits, '_', '-' and '.' (as in disc.lr)",
               name ? name : "NULL");
  }
  if (!strcmp(name, "options_file")) {
    DMUON_FAIL(DMUON_ERR_ARGUMENT,
               "options_file: files are read from -dmuon_options_file and DMUON_OPTIONS_FILE only");
  }
  DMUON_TRY(dmuon_options_push(options, name, value, source, dmuon_option_source_name(source)));
  return DMUON_SUCCESS;
}

static int is_space(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f';
}

/* One line, changed in place: "X value", "X = value", "X", or nothing. */
static DMuonErrorCode read_line(dmuon_options *fresh, char *line, const char *path, int number) {
  char where[512];
  snprintf(where, sizeof where, "file %.400s, line %d", path, number);
  for (char *c = line; *c; c++) {
    if (*c == '#' && (c == line || is_space(c[-1])))
      *c-- = 0;
    else
      continue;
    break;
  }
  size_t length = strlen(line);
  while (length > 0 && is_space(line[length - 1])) line[--length] = 0;
  while (is_space(*line)) line++;
  if (!*line) return DMUON_SUCCESS;
  char *end = line;
  while (*end && !is_space(*end) && *end != '=') end++;
  char *value = end;
  while (is_space(*value)) value++;
  int has_equals = *value == '=';
  if (has_equals) {
    value++;
    while (is_space(*value)) value++;
  }
  int has_value = has_equals || *value;
  *end = 0;
  if (!dmuon_option_is_name(line)) {
    DMUON_FAIL(DMUON_ERR_FORMAT, "'%s' is no option's name (write \"lr = 0.1\"); %s", line, where);
  }
  if (!strcmp(line, "options_file")) {
    DMUON_FAIL(DMUON_ERR_FORMAT, "options_file: a file of options names no other; %s", where);
  }
  DMUON_TRY(dmuon_options_push(fresh, line, has_value ? value : NULL, DMUON_SOURCE_FILE, where));
  return DMUON_SUCCESS;
}

static DMuonErrorCode read_lines(dmuon_options *fresh, const char *path, FILE *file, char **text) {
  int64_t length = 0, capacity = 0;
  size_t got = 0;
  do {
    if (capacity - length < 2) {
      int64_t wanted = capacity ? 2 * capacity : 4096;
      DMUON_TRY(dmuon_memory_resize(fresh->memory, text, capacity, wanted, 1));
      capacity = wanted;
    }
    got = fread(*text + length, 1, (size_t)(capacity - length - 1), file);
    length += (int64_t)got;
    if (length > MOST_FILE_BYTES)
      DMUON_FAIL(DMUON_ERR_FORMAT, "the options file %s is longer than %d bytes", path,
                 MOST_FILE_BYTES);
  } while (got > 0);
  if (ferror(file)) {
    DMUON_FAIL(DMUON_ERR_FILE, "cannot read the options file %s: %s", path, strerror(errno));
  }
  if (memchr(*text, 0, (size_t)length)) {
    DMUON_FAIL(DMUON_ERR_FORMAT, "the options file %s is no text: it has a zero byte", path);
  }
  (*text)[length] = 0;
  int number = 1;
  for (char *line = *text; line; number++) {
    char *end = strchr(line, '\n');
    if (end) *end = 0;
    DMUON_TRY(read_line(fresh, line, path, number));
    line = end ? end + 1 : NULL;
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode read_file(dmuon_options *fresh, const char *path, const char *named_by) {
  char *text = NULL;
  FILE *file = fopen(path, "r");
  if (!file) {
    DMUON_FAIL(DMUON_ERR_FILE, "cannot open the options file '%s' named by %s: %s", path, named_by,
               strerror(errno));
  }
  DMuonErrorCode code = read_lines(fresh, path, file, &text);
  fclose(file);
  dmuon_memory_free(text);
  DMUON_TRY(code);
  return DMUON_SUCCESS;
}

/* DMUON_DISC__LR is "disc.lr". A name no option could have is kept: it will be reported as unused.
 */
static DMuonErrorCode read_environment(dmuon_options *fresh) {
  const size_t prefix = sizeof environment_prefix - 1;
  for (char **variable = environ; variable && *variable; variable++) {
    const char *equals = strchr(*variable, '=');
    if (strncmp(*variable, environment_prefix, prefix) || !equals || !equals[1]) continue;
    int64_t length = equals - *variable - (int64_t)prefix;
    if (length <= 0) continue;
    char *name = NULL;
    const char *where = NULL;
    dmuon_text text;
    dmuon_text_init(&text, fresh->memory);
    dmuon_text_add(&text, "environment %.*s", (int)(equals - *variable), *variable);
    DMuonErrorCode code = dmuon_text_finish(&text, &where);
    if (!code) code = dmuon_memory_alloc(fresh->memory, length + 1, 1, &name);
    if (!code) {
      int64_t to = 0;
      for (int64_t from = 0; from < length; from++) {
        const char *c = *variable + prefix + from;
        int is_dot = c[0] == '_' && from > 0 && from + 2 < length && c[1] == '_';
        if (is_dot) from++;
        name[to++] = is_dot ? '.' : *c >= 'A' && *c <= 'Z' ? (char)(*c - 'A' + 'a') : *c;
      }
      name[to] = 0;
      if (strcmp(name, "options_file")) {
        code = dmuon_options_push(fresh, name, equals + 1, DMUON_SOURCE_ENVIRONMENT, where);
      }
    }
    dmuon_text_free(&text);
    dmuon_memory_free(name);
    DMUON_TRY(code);
  }
  return DMUON_SUCCESS;
}

/* "-1", "-.5", "-1e-3": a value although it begins with '-'. */
static int is_number(const char *word) {
  if (*word == '-' || *word == '+') word++;
  if (*word == '.') word++;
  return *word >= '0' && *word <= '9';
}

/* The option at argv[at]: its name (a copy), its value (NULL: a bare flag), how many words it has.
 */
static DMuonErrorCode read_word(dmuon_memory *memory, int argc, char **argv, int at, char **name,
                                const char **value, int *words) {
  const char *begin = argv[at] + sizeof command_prefix - 1, *equals = strchr(begin, '=');
  size_t length = equals ? (size_t)(equals - begin) : strlen(begin);
  char *copy = NULL;
  DMUON_TRY(dmuon_memory_alloc(memory, (int64_t)length + 1, 1, &copy));
  memcpy(copy, begin, length);
  if (!dmuon_option_is_name(copy)) {
    dmuon_memory_free(copy);
    DMUON_FAIL(DMUON_ERR_ARGUMENT,
               "'%s' names no option: letters, digits, '_', '-' and '.' (as in -dmuon_disc.lr); "
               "command line",
               argv[at]);
  }
  *name = copy;
  *words = 1;
  *value = equals ? equals + 1 : NULL;
  const char *next = !equals && at + 1 < argc ? argv[at + 1] : NULL;
  if (next && (*next != '-' || is_number(next))) {
    *value = next;
    *words = 2;
  }
  return DMUON_SUCCESS;
}

/* Reads the options (files_only 0) or the files they name (1), so that a file that is named first
 * does not hide what is wrong on the command line, and the file of the environment comes before. */
static DMuonErrorCode read_arguments(dmuon_options *fresh, int argc, char **argv, int files_only) {
  for (int i = 1; i < argc && argv[i] && strcmp(argv[i], "--");) {
    if (strncmp(argv[i], command_prefix, sizeof command_prefix - 1)) {
      i++;
      continue;
    }
    char *name = NULL;
    const char *value = NULL;
    int words = 0;
    DMUON_TRY(read_word(fresh->memory, argc, argv, i, &name, &value, &words));
    int is_file = !strcmp(name, "options_file");
    DMuonErrorCode code = DMUON_SUCCESS;
    if (is_file && (!value || !*value)) {
      code = DMUON_ERROR(DMUON_ERR_ARGUMENT,
                         "option -dmuon_options_file needs the path of a file; "
                         "command line");
    } else if (is_file && files_only) {
      code = read_file(fresh, value, "-dmuon_options_file");
    } else if (!is_file && !files_only) {
      code = dmuon_options_push(fresh, name, value, DMUON_SOURCE_COMMAND_LINE, "command line");
    }
    dmuon_memory_free(name);
    DMUON_TRY(code);
    i += words;
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode read_all(dmuon_options *fresh, int argc, char **argv) {
  const char *path = dmuon_environment("DMUON_OPTIONS_FILE");
  DMUON_TRY(read_arguments(fresh, argc, argv, 0));
  if (path) DMUON_TRY(read_file(fresh, path, "DMUON_OPTIONS_FILE"));
  DMUON_TRY(read_arguments(fresh, argc, argv, 1));
  DMUON_TRY(read_environment(fresh));
  return DMUON_SUCCESS;
}

/* Takes the options out of argv; what is known to be right is not checked again. */
static void take_out(int *argc, char **argv) {
  int kept = 0, is_over = 0;
  for (int i = 0; i < *argc; i++) {
    int is_option = i > 0 && !is_over && argv[i] &&
                    !strncmp(argv[i], command_prefix, sizeof command_prefix - 1);
    if (i > 0 && argv[i] && !strcmp(argv[i], "--")) is_over = 1;
    if (!is_option) {
      argv[kept++] = argv[i];
    } else if (!strchr(argv[i], '=') && i + 1 < *argc && argv[i + 1] &&
               (argv[i + 1][0] != '-' || is_number(argv[i + 1]))) {
      i++;
    }
  }
  if (kept < *argc) argv[kept] = NULL;
  *argc = kept;
}

DMuonErrorCode dmuon_options_read(dmuon_options *options, int *argc, char **argv) {
  dmuon_options fresh;
  int count = argc && argv ? *argc : 0;
  dmuon_options_init(&fresh, options->memory);
  DMuonErrorCode code = read_all(&fresh, count, argv);
  if (!code) {
    code = dmuon_options_grow(options->memory, &options->said, &options->said_count,
                              &options->said_capacity, fresh.said_count);
  }
  /* From here on nothing fails: the entries move over. */
  for (int i = 0; !code && i < fresh.said_count; i++) {
    dmuon_options_entry *entry = &fresh.said[i];
    int at = 0;
    while (at < options->said_count && (options->said[at].source != entry->source ||
                                        strcmp(options->said[at].name, entry->name))) {
      at++;
    }
    if (at < options->said_count) {
      dmuon_options_entry_free(&options->said[at]);
    } else {
      options->said_count++;
    }
    options->said[at] = *entry;
    memset(entry, 0, sizeof *entry);
  }
  if (!code && count > 0) take_out(argc, argv);
  dmuon_options_free(&fresh);
  DMUON_TRY(code);
  return DMUON_SUCCESS;
}
