/* From what was said to the settings of one object: decides which of several sayings is in force,
 * and stores all of them or none. */
#include <stdio.h>
#include <string.h>

#include "base/options_entry.h"

/* What is about to happen to one option. */
typedef struct {
  const dmuon_options_entry *winner; /* NULL: the settings stay */
  dmuon_option_value value;
  char *string; /* the copy that will be stored */
} decision;

static int equal_env(const char *a, const char *b, size_t length) {
  for (size_t i = 0; i < length; i++) {
    char c = a[i] >= 'A' && a[i] <= 'Z' ? (char)(a[i] - 'A' + 'a') : a[i];
    if (c != b[i]) return 0;
  }
  return 1;
}

/* How entry speaks of option name of object: 2 of this object, 1 of every one, 0 not at all. The
 * environment has lost the case of an object's name. */
static int speaks_of(const dmuon_options_entry *entry, const char *object, const char *name) {
  if (!strcmp(entry->name, name)) return 1;
  size_t length = object ? strlen(object) : 0;
  if (length == 0 || strlen(entry->name) != length + 1 + strlen(name)) return 0;
  if (entry->name[length] != '.' || strcmp(entry->name + length + 1, name)) return 0;
  int is_same = entry->source == DMUON_SOURCE_ENVIRONMENT ? equal_env(object, entry->name, length)
                                                          : !memcmp(object, entry->name, length);
  return is_same ? 2 : 0;
}

/* The option's name as its source spells it. */
static void show_name(const dmuon_options_entry *entry, char *buffer, size_t bytes) {
  if (entry->source == DMUON_SOURCE_COMMAND_LINE) {
    snprintf(buffer, bytes, "-dmuon_%s", entry->name);
  } else {
    snprintf(buffer, bytes, "%s", entry->name);
  }
}

static int find_effective(const dmuon_options *options, const dmuon_option_table *table,
                          const char *full_name) {
  for (int i = 0; i < options->effective_count; i++) {
    const dmuon_options_entry *e = &options->effective[i];
    if ((!table || !e->table || e->table == table) && !strcmp(e->name, full_name)) return i;
  }
  return -1;
}

static DMuonErrorCode join_name(dmuon_memory *memory, const char *object, const char *name,
                                char **out) {
  size_t object_bytes = object && *object ? strlen(object) + 1 : 0, name_bytes = strlen(name) + 1;
  char *joined = NULL;
  DMUON_TRY(dmuon_memory_alloc(memory, (int64_t)(object_bytes + name_bytes), 1, &joined));
  if (object_bytes) {
    memcpy(joined, object, object_bytes - 1);
    joined[object_bytes - 1] = '.';
  }
  memcpy(joined + object_bytes, name, name_bytes);
  *out = joined;
  return DMUON_SUCCESS;
}

/* An entry for every option of the table among the effective ones, without values yet. */
static DMuonErrorCode ensure_effective(dmuon_options *options, const dmuon_option_table *table,
                                       const char *object, int *index) {
  for (int i = 0; i < table->count; i++) {
    char *full = NULL;
    DMUON_TRY(join_name(options->memory, object, table->specs[i].name, &full));
    index[i] = find_effective(options, table, full);
    if (index[i] < 0) {
      DMuonErrorCode code =
          dmuon_options_grow(options->memory, &options->effective, &options->effective_count,
                             &options->effective_capacity, 1);
      dmuon_options_entry *entry = code ? NULL : &options->effective[options->effective_count];
      if (!code) code = dmuon_options_set_value(options->memory, entry, "");
      if (code) {
        dmuon_memory_free(full);
        DMUON_TRY(code);
      }
      index[i] = options->effective_count++;
      entry->name = full;
    } else {
      dmuon_memory_free(full);
    }
    options->effective[index[i]].table = table;
    options->effective[index[i]].help = table->specs[i].help;
  }
  return DMUON_SUCCESS;
}

/* Everything that concerns this option is checked, also what another source overrides. */
static DMuonErrorCode decide(const dmuon_options *options, const dmuon_option_spec *spec,
                             const char *object, decision *d) {
  int best = 0;
  for (int i = 0; i < options->said_count; i++) {
    const dmuon_options_entry *entry = &options->said[i];
    int how = speaks_of(entry, object, spec->name);
    if (!how) continue;
    char shown[256];
    dmuon_option_value value;
    show_name(entry, shown, sizeof shown);
    DMUON_TRY(dmuon_option_check(spec, shown, entry->value, entry->where, &value));
    int force = 2 * (int)entry->source + how;
    if (force < best) continue;
    best = force;
    d->winner = entry;
    d->value = value;
  }
  if (d->winner && spec->type == DMUON_OPTION_STRING) {
    DMUON_TRY(dmuon_memory_strdup(options->memory, d->value.string, &d->string));
  }
  return DMUON_SUCCESS;
}

static void store(const dmuon_option_spec *spec, const dmuon_option_value *value, char *string,
                  void *settings) {
  char *at = (char *)settings + spec->offset;
  switch (spec->type) {
    case DMUON_OPTION_BOOL:
    case DMUON_OPTION_ENUM:
      memcpy(at, &value->integer, sizeof value->integer);
      break;
    case DMUON_OPTION_INT:
      memcpy(at, &value->count, sizeof value->count);
      break;
    case DMUON_OPTION_REAL:
      memcpy(at, &value->real, sizeof value->real);
      break;
    case DMUON_OPTION_STRING:
      dmuon_memory_free(*(char **)(void *)at);
      memcpy(at, &string, sizeof string);
      break;
  }
}

/* The text that option would have after all decisions. */
static const char *text_after(const dmuon_option_spec *spec, const decision *d,
                              const void *settings, char *buffer) {
  if (!d->winner) return dmuon_option_format(spec, settings, buffer);
  if (spec->type == DMUON_OPTION_STRING) return d->string;
  union {
    int integer;
    int64_t count;
    double real;
  } single = {0};
  dmuon_option_spec at_zero = *spec;
  at_zero.offset = 0;
  store(&at_zero, &d->value, NULL, &single);
  return dmuon_option_format(&at_zero, &single, buffer);
}

/* Whether the settings differ from the spec's default: then the program set them. */
static int differs_from_default(const dmuon_option_spec *spec, const void *settings) {
  char now[40], then[40];
  decision d = {0};
  dmuon_options_entry unused = {0};
  const char *text = dmuon_option_format(spec, settings, now), *usual = spec->default_text;
  if (usual && spec->type != DMUON_OPTION_STRING) {
    if (dmuon_option_check(spec, spec->name, usual, NULL, &d.value)) return 1;
    d.winner = &unused;
    usual = text_after(spec, &d, settings, then);
  }
  if (!text || !usual) return text != usual;
  return strcmp(text, usual) != 0;
}

static DMuonErrorCode apply_decisions(dmuon_options *options, const dmuon_option_table *table,
                                      const char *object, const unsigned char *program,
                                      void *settings, decision *decisions, int *index) {
  char buffer[40];
  for (int i = 0; i < table->count; i++) {
    DMUON_TRY(decide(options, &table->specs[i], object, &decisions[i]));
  }
  int count_before = options->effective_count;
  DMuonErrorCode code = ensure_effective(options, table, object, index);
  for (int i = 0; !code && i < table->count; i++) {
    dmuon_options_entry *entry = &options->effective[index[i]];
    /* Room only, so that below nothing can fail; the value in force stays readable till then. */
    const char *text = text_after(&table->specs[i], &decisions[i], settings, buffer);
    int64_t wanted = text ? (int64_t)strlen(text) + 1 : 1;
    if (entry->value_capacity < wanted) {
      code = dmuon_memory_resize(options->memory, &entry->value, entry->value_capacity, wanted, 1);
      if (!code) entry->value_capacity = wanted;
    }
  }
  if (code) {
    while (options->effective_count > count_before) {
      dmuon_options_entry_free(&options->effective[--options->effective_count]);
    }
    DMUON_TRY(code);
  }
  for (int i = 0; i < table->count; i++) {
    const dmuon_option_spec *spec = &table->specs[i];
    dmuon_options_entry *entry = &options->effective[index[i]];
    decision *d = &decisions[i];
    const char *text = text_after(spec, d, settings, buffer);
    int is_program = program ? program[i] != 0 : differs_from_default(spec, settings);
    dmuon_option_source source = d->winner    ? d->winner->source
                                 : is_program ? DMUON_SOURCE_PROGRAM
                                              : DMUON_SOURCE_DEFAULT;
    memcpy(entry->value, text ? text : "", text ? strlen(text) + 1 : 1);
    entry->source = source;
    if (d->winner) store(spec, &d->value, d->string, settings);
    d->string = NULL;
    for (int j = 0; j < options->said_count; j++) {
      if (speaks_of(&options->said[j], object, spec->name)) options->said[j].is_used = 1;
    }
  }
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_options_peek(const dmuon_options *options, const dmuon_option_spec *spec,
                                  const char *object_name, void *settings, int *said) {
  decision d = {0};
  DMUON_TRY(decide(options, spec, object_name, &d));
  if (d.winner) store(spec, &d.value, d.string, settings);
  *said = d.winner != NULL;
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_options_apply(dmuon_options *options, const dmuon_option_table *table,
                                   const char *object_name, const unsigned char *program,
                                   void *settings) {
  decision *decisions = NULL;
  int *index = NULL;
  DMuonErrorCode code =
      dmuon_memory_alloc(options->memory, table->count, sizeof *decisions, &decisions);
  if (!code) code = dmuon_memory_alloc(options->memory, table->count, sizeof *index, &index);
  if (!code) {
    code = apply_decisions(options, table, object_name, program, settings, decisions, index);
  }
  for (int i = 0; decisions && i < table->count; i++) dmuon_memory_free(decisions[i].string);
  dmuon_memory_free(decisions);
  dmuon_memory_free(index);
  DMUON_TRY(code);
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_options_store(dmuon_memory *memory, const dmuon_option_spec *spec,
                                   const char *text, void *settings) {
  dmuon_option_value value;
  char *string = NULL;
  DMUON_TRY(dmuon_option_check(spec, spec->name, text, NULL, &value));
  if (spec->type == DMUON_OPTION_STRING) {
    DMUON_TRY(dmuon_memory_strdup(memory, value.string, &string));
  }
  store(spec, &value, string, settings);
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_options_defaults(dmuon_memory *memory, const dmuon_option_table *table,
                                      void *settings) {
  DMuonErrorCode code = DMUON_SUCCESS;
  char *none = NULL;
  for (int i = 0; i < table->count; i++) {
    if (table->specs[i].type != DMUON_OPTION_STRING) continue;
    memcpy((char *)settings + table->specs[i].offset, &none, sizeof none);
  }
  for (int i = 0; !code && i < table->count; i++) {
    const dmuon_option_spec *spec = &table->specs[i];
    if (spec->type == DMUON_OPTION_STRING && !spec->default_text) continue;
    code = dmuon_options_store(memory, spec, spec->default_text, settings);
  }
  if (code) dmuon_options_settings_free(table, settings);
  DMUON_TRY(code);
  return DMUON_SUCCESS;
}

void dmuon_options_settings_free(const dmuon_option_table *table, void *settings) {
  for (int i = 0; settings && i < table->count; i++) {
    if (table->specs[i].type != DMUON_OPTION_STRING) continue;
    char **at = (char **)(void *)((char *)settings + table->specs[i].offset);
    dmuon_memory_release(at);
  }
}

DMuonErrorCode dmuon_options_note_live(dmuon_options *options, const char *object_name,
                                       const char *name, const char *value) {
  char *full = NULL;
  DMUON_TRY(join_name(options->memory, object_name, name, &full));
  int at = find_effective(options, NULL, full);
  DMuonErrorCode code = DMUON_SUCCESS;
  if (at < 0) {
    code = dmuon_options_grow(options->memory, &options->effective, &options->effective_count,
                              &options->effective_capacity, 1);
    if (!code) at = options->effective_count;
  }
  if (!code) code = dmuon_options_set_value(options->memory, &options->effective[at], value);
  if (code) {
    dmuon_memory_free(full);
    DMUON_TRY(code);
  }
  options->effective[at].source = DMUON_SOURCE_LIVE;
  if (at == options->effective_count) {
    options->effective[at].name = full;
    options->effective_count++;
  } else {
    dmuon_memory_free(full);
  }
  return DMUON_SUCCESS;
}
