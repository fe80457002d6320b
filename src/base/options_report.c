/* Questions about options: the value in force, what ranks compare, and the report for people.
 * Decides the form of the answers; what is in force, and what was used, was decided when the
 * options were applied. */
#include <string.h>

#include "base/glob.h"
#include "base/hash.h"
#include "base/options_entry.h"
#include "base/sort.h"

int dmuon_options_find(const dmuon_option_table *table, const char *name) {
  for (int i = 0; i < table->count; i++) {
    if (!strcmp(table->specs[i].name, name)) return i;
  }
  return -1;
}

static const dmuon_options_entry *strongest_said(const dmuon_options *options, const char *name) {
  const dmuon_options_entry *found = NULL;
  for (int i = 0; i < options->said_count; i++) {
    const dmuon_options_entry *entry = &options->said[i];
    if (strcmp(entry->name, name)) continue;
    if (!found || entry->source > found->source) found = entry;
  }
  return found;
}

/* Of "lr": the first effective "lr", else the first "...lr" (and *other: another that differs). */
static const dmuon_options_entry *find_in_force(const dmuon_options *options, const char *name,
                                                const dmuon_options_entry **other) {
  const dmuon_options_entry *found = NULL;
  *other = NULL;
  for (int i = 0; i < options->effective_count; i++) {
    if (!strcmp(options->effective[i].name, name)) return &options->effective[i];
  }
  if (strchr(name, '.')) return NULL;
  for (int i = 0; i < options->effective_count; i++) {
    const dmuon_options_entry *entry = &options->effective[i];
    const char *dot = strrchr(entry->name, '.');
    if (!dot || strcmp(dot + 1, name)) continue;
    if (!found) found = entry;
    if (strcmp(found->value, entry->value) && !*other) *other = entry;
  }
  return found;
}

DMuonErrorCode dmuon_options_get(const dmuon_options *options, const char *name, const char **value,
                                 const char **source) {
  const dmuon_options_entry *other = NULL;
  if (!name) DMUON_FAIL(DMUON_ERR_ARGUMENT, "the name of an option is NULL");
  const dmuon_options_entry *entry = find_in_force(options, name, &other);
  if (other) {
    DMUON_FAIL(DMUON_ERR_NOT_FOUND, "option %s differs by object: ask for %s (%s) or %s (%s)", name,
               entry->name, entry->value, other->name, other->value);
  }
  if (!entry) entry = strongest_said(options, name);
  if (!entry) {
    const char *nearest = NULL;
    const char **names = NULL;
    int count = 0, room = options->effective_count + options->said_count;
    if (room > 0 && !dmuon_memory_alloc(options->memory, room, sizeof *names, &names)) {
      for (int i = 0; i < options->effective_count; i++) {
        const char *full = options->effective[i].name, *dot = strrchr(full, '.');
        names[count++] = dot && !strchr(name, '.') ? dot + 1 : full;
      }
      for (int i = 0; i < options->said_count; i++) names[count++] = options->said[i].name;
      nearest = dmuon_nearest_name(name, count, names);
    }
    dmuon_memory_free(names);
    DMUON_FAIL(DMUON_ERR_NOT_FOUND, "no option %s%s%s%s", name,
               nearest ? "; did you mean " : " is known yet", nearest ? nearest : "",
               nearest ? "?" : "");
  }
  if (value) *value = entry->value ? entry->value : "1";
  if (source) *source = dmuon_option_source_name(entry->source);
  return DMUON_SUCCESS;
}

static int is_compared(const dmuon_options_entry *entry) {
  return entry->source != DMUON_SOURCE_ENVIRONMENT || entry->is_used;
}

uint64_t dmuon_options_hash(const dmuon_options *options) {
  uint64_t sum = 0; /* of the entries' own hashes: the order does not count */
  for (int i = 0; i < options->said_count; i++) {
    const dmuon_options_entry *entry = &options->said[i];
    if (!is_compared(entry)) continue;
    uint64_t hash = dmuon_hash_string(DMUON_HASH_SEED, entry->name);
    hash = dmuon_hash_int(hash, entry->value != NULL);
    sum += dmuon_hash_string(hash, entry->value ? entry->value : "");
  }
  return dmuon_hash_int(DMUON_HASH_SEED, (int64_t)sum);
}

static int compare_entries(const void *a, const void *b, void *context) {
  const dmuon_options_entry *x = *(const dmuon_options_entry *const *)a;
  const dmuon_options_entry *y = *(const dmuon_options_entry *const *)b;
  (void)context;
  int order = strcmp(x->name, y->name);
  return order ? order : strcmp(x->value ? x->value : "", y->value ? y->value : "");
}

void dmuon_options_list(const dmuon_options *options, dmuon_text *text) {
  const dmuon_options_entry **sorted = NULL;
  int count = 0;
  DMuonErrorCode code =
      dmuon_memory_alloc(text->memory, options->said_count, sizeof *sorted, &sorted);
  for (int i = 0; !code && i < options->said_count; i++) {
    if (is_compared(&options->said[i])) sorted[count++] = &options->said[i];
  }
  if (!code) code = dmuon_sort(text->memory, sorted, count, sizeof *sorted, compare_entries, NULL);
  for (int i = 0; !code && i < count; i++) {
    const char *value = sorted[i]->value;
    dmuon_text_add(text, "%s%s%s\n", sorted[i]->name, value ? "=" : "", value ? value : "");
  }
  if (code && !text->failed) text->failed = code;
  dmuon_memory_free(sorted);
}

static void add_row(dmuon_text *text, const char *name, const char *value, const char *source,
                    const char *help) {
  dmuon_text_add(text, "  %-32s %-16s %-14s %s\n", name, value && *value ? value : "-", source,
                 help ? help : "");
}

static int is_applied(const dmuon_options *options, const dmuon_option_table *table) {
  for (int i = 0; i < options->effective_count; i++) {
    if (options->effective[i].table == table) return 1;
  }
  return 0;
}

/* The class that has this option, or NULL. */
static const char *class_with(int table_count, const dmuon_option_table *const *tables,
                              const char *name) {
  for (int t = 0; t < table_count; t++) {
    if (dmuon_options_find(tables[t], name) >= 0) return tables[t]->class_name;
  }
  return NULL;
}

/* Among the options in force, "disc.lr" as a whole; among the tables, "lr". */
static const char *nearest_known(const dmuon_options *options, int table_count,
                                 const dmuon_option_table *const *tables, const char *name,
                                 const char **room) {
  int count = 0;
  for (int i = 0; i < options->effective_count; i++) room[count++] = options->effective[i].name;
  for (int t = 0; t < table_count; t++) {
    for (int i = 0; i < tables[t]->count; i++) room[count++] = tables[t]->specs[i].name;
  }
  room[count++] = "options_file";
  return dmuon_nearest_name(name, count, room);
}

static void add_unused(const dmuon_options *options, int table_count,
                       const dmuon_option_table *const *tables, const dmuon_options_entry *entry,
                       const char **room, dmuon_text *text) {
  const char *dot = strrchr(entry->name, '.'), *bare = dot ? dot + 1 : entry->name;
  const char *owner = class_with(table_count, tables, bare), *nearest = NULL;
  /* Only a value's spelling is shown of another program's variables, never judged. */
  dmuon_text_add(text, "  %s%s%s (%s)", entry->name, entry->value ? " = " : "",
                 entry->value ? entry->value : "", entry->where);
  if (room) nearest = nearest_known(options, table_count, tables, entry->name, room);
  if (owner && dot) {
    dmuon_text_add(text, ": no %s named %.*s took it", owner, (int)(dot - entry->name),
                   entry->name);
  } else if (owner) {
    dmuon_text_add(text, ": no %s was set up after it was said", owner);
  } else {
    dmuon_text_add(text, ": unknown");
  }
  if (nearest && strcmp(nearest, entry->name)) dmuon_text_add(text, "; did you mean %s?", nearest);
  dmuon_text_add(text, "\n");
}

void dmuon_options_unused(const dmuon_options *options, int table_count,
                          const dmuon_option_table *const *tables, dmuon_text *text) {
  int unused = 0, known = options->effective_count + 1;
  for (int t = 0; t < table_count; t++) known += tables[t]->count;
  for (int i = 0; i < options->said_count; i++) unused += !options->said[i].is_used;
  if (!unused) return;
  const char **room = NULL;
  DMuonErrorCode code = dmuon_memory_alloc(text->memory, known, sizeof *room, &room);
  if (code && !text->failed) text->failed = code;
  dmuon_text_add(text, "options said that nothing used:\n");
  for (int i = 0; i < options->said_count; i++) {
    if (options->said[i].is_used) continue;
    add_unused(options, table_count, tables, &options->said[i], room, text);
  }
  dmuon_memory_free(room);
}

void dmuon_options_report(const dmuon_options *options, int table_count,
                          const dmuon_option_table *const *tables, dmuon_text *text) {
  dmuon_text_add(text, "options: name, value in force, source, meaning\n");
  for (int i = 0; i < options->effective_count; i++) {
    const dmuon_options_entry *entry = &options->effective[i];
    add_row(text, entry->name, entry->value, dmuon_option_source_name(entry->source), entry->help);
  }
  for (int t = 0; t < table_count; t++) {
    if (is_applied(options, tables[t])) continue;
    for (int i = 0; i < tables[t]->count; i++) {
      const dmuon_option_spec *spec = &tables[t]->specs[i];
      add_row(text, spec->name, spec->default_text, "default", spec->help);
    }
  }
  dmuon_options_unused(options, table_count, tables, text);
}
