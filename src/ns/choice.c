/* The table of choices: entries in order, found by shape, read from and written as JSON. Decides
 * what a right entry is; what an entry means is plan.c's.
 *
 *   {"dmuon_ns_choices": 1, "device": "host",
 *    "entries": [{"small": 1024, "big": 4096, "dtype": "fp16", "variant": "gram", "batch": 2,
 *                 "tile": 256, "seconds": {"gram": 0.0011, "direct": 0.0020}}]}
 *
 * device and seconds are for people; batch and tile may be left out; tile 0 says that products are
 * not cut. Nothing else may stand there. */
#include "ns/choice.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"

#define FORMAT "dmuon_ns_choices"
enum { VERSION = 1 };

/* Smaller, equal, larger: -1, 0, 1. */
static int compare(const dmuon_ns_choice *a, int64_t small, int64_t big, DMuonDType dtype) {
  if (a->dtype != dtype) return a->dtype < dtype ? -1 : 1;
  if (a->small != small) return a->small < small ? -1 : 1;
  return a->big < big ? -1 : a->big > big;
}

/* The first entry that is not before this shape. */
static int position(const dmuon_ns_choices *choices, int64_t small, int64_t big, DMuonDType dtype) {
  int low = 0, high = choices->count;
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (compare(&choices->entries[middle], small, big, dtype) < 0)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

const dmuon_ns_choice *dmuon_ns_choices_find(const dmuon_ns_choices *choices, int64_t small,
                                             int64_t big, DMuonDType dtype) {
  const int at = position(choices, small, big, dtype);
  if (at == choices->count || compare(&choices->entries[at], small, big, dtype)) return NULL;
  return &choices->entries[at];
}

static DMuonErrorCode check_choice(const dmuon_ns_choice *c) {
  if (c->small < 1 || c->big < c->small)
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "small is %lld, big is %lld; sides are at least 1, small first",
               (long long)c->small, (long long)c->big);
  if (!dmuon_dtype_is_valid(c->dtype)) DMUON_FAIL(DMUON_ERR_ARGUMENT, "no dtype %d", (int)c->dtype);
  if (c->variant != DMUON_NS_GRAM && c->variant != DMUON_NS_DIRECT)
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "variant is %s; gram or direct is expected",
               dmuon_ns_variant_name(c->variant));
  if (c->batch < 0)
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "batch is %lld; at least 1, or left out", (long long)c->batch);
  if (c->tile < -1)
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "tile is %lld; at least 0 (not cut), or left out",
               (long long)c->tile);
  for (int v = 0; v < 3; v++)
    if (!(c->seconds[v] >= 0 && isfinite(c->seconds[v])))
      DMUON_FAIL(DMUON_ERR_ARGUMENT, "seconds are %g; at least 0", c->seconds[v]);
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_ns_choices_add(dmuon_memory *memory, dmuon_ns_choices *choices,
                                    const dmuon_ns_choice *choice) {
  dmuon_ns_choice *entries = NULL;
  DMUON_TRY(check_choice(choice));
  const int at = position(choices, choice->small, choice->big, choice->dtype);
  if (at < choices->count &&
      !compare(&choices->entries[at], choice->small, choice->big, choice->dtype)) {
    choices->entries[at] = *choice;
    return DMUON_SUCCESS;
  }
  DMUON_TRY(dmuon_memory_alloc(memory, (int64_t)choices->count + 1, sizeof *entries, &entries));
  if (at > 0) memcpy(entries, choices->entries, (size_t)at * sizeof *entries);
  entries[at] = *choice;
  if (at < choices->count)
    memcpy(entries + at + 1, choices->entries + at,
           (size_t)(choices->count - at) * sizeof *entries);
  dmuon_memory_free(choices->entries);
  choices->entries = entries;
  choices->count++;
  return DMUON_SUCCESS;
}

void dmuon_ns_choices_free(dmuon_ns_choices *choices) {
  dmuon_memory_free(choices->entries);
  *choices = (dmuon_ns_choices){0, NULL};
}

/* ---- reading ---- */

static DMuonErrorCode read_side(json_t *entry, const char *name, int64_t *value) {
  json_t *number = json_object_get(entry, name);
  if (!json_is_integer(number))
    DMUON_FAIL(DMUON_ERR_FORMAT, "\"%s\" is missing or no integer", name);
  *value = json_integer_value(number);
  return DMUON_SUCCESS;
}

static DMuonErrorCode read_variant(const char *text, dmuon_ns_variant *variant) {
  for (int v = DMUON_NS_GRAM; v <= DMUON_NS_DIRECT; v++) {
    if (!text || strcmp(text, dmuon_ns_variant_name((dmuon_ns_variant)v))) continue;
    *variant = (dmuon_ns_variant)v;
    return DMUON_SUCCESS;
  }
  DMUON_FAIL(DMUON_ERR_FORMAT, "variant is \"%s\"; gram or direct is expected",
             text ? text : "(none)");
}

static DMuonErrorCode read_seconds(json_t *seconds, dmuon_ns_choice *choice) {
  const char *key;
  json_t *value;
  if (!json_is_object(seconds))
    DMUON_FAIL(DMUON_ERR_FORMAT, "\"seconds\" is no object of variants");
  json_object_foreach(seconds, key, value) {
    dmuon_ns_variant variant = DMUON_NS_AUTO;
    DMUON_TRY(read_variant(key, &variant));
    if (!json_is_number(value)) DMUON_FAIL(DMUON_ERR_FORMAT, "seconds of %s are no number", key);
    choice->seconds[variant] = json_number_value(value);
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode check_keys(json_t *object, int count, const char *const *names) {
  const char *key;
  json_t *value;
  json_object_foreach(object, key, value) {
    int known = 0;
    for (int i = 0; i < count && !known; i++) known = !strcmp(key, names[i]);
    if (!known) DMUON_FAIL(DMUON_ERR_FORMAT, "nothing is known by the name \"%s\"", key);
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode read_entry(json_t *entry, dmuon_ns_choice *choice) {
  static const char *const names[] = {"small", "big",  "dtype",  "variant",
                                      "batch", "tile", "seconds"};
  const char *dtype = json_string_value(json_object_get(entry, "dtype"));
  json_t *batch = json_object_get(entry, "batch"), *seconds = json_object_get(entry, "seconds");
  json_t *tile = json_object_get(entry, "tile");
  if (!json_is_object(entry)) DMUON_FAIL(DMUON_ERR_FORMAT, "it is no object");
  DMUON_TRY(check_keys(entry, (int)(sizeof names / sizeof *names), names));
  DMUON_TRY(read_side(entry, "small", &choice->small));
  DMUON_TRY(read_side(entry, "big", &choice->big));
  if (!dtype) DMUON_FAIL(DMUON_ERR_FORMAT, "\"dtype\" is missing or no text");
  DMUON_TRY(dmuon_dtype_parse(dtype, &choice->dtype));
  DMUON_TRY(read_variant(json_string_value(json_object_get(entry, "variant")), &choice->variant));
  if (batch) DMUON_TRY(read_side(entry, "batch", &choice->batch));
  if (batch && choice->batch < 1)
    DMUON_FAIL(DMUON_ERR_FORMAT, "batch is %lld; at least 1, or left out",
               (long long)choice->batch);
  if (tile) DMUON_TRY(read_side(entry, "tile", &choice->tile));
  if (tile && choice->tile < 0)
    DMUON_FAIL(DMUON_ERR_FORMAT, "tile is %lld; at least 0 (not cut), or left out",
               (long long)choice->tile);
  if (tile && choice->tile == 0) choice->tile = -1;
  if (seconds) DMUON_TRY(read_seconds(seconds, choice));
  return DMUON_SUCCESS;
}

static DMuonErrorCode add_entry(dmuon_memory *memory, json_t *entry, dmuon_ns_choices *choices) {
  dmuon_ns_choice choice = {.batch = 0};
  DMUON_TRY(read_entry(entry, &choice));
  if (dmuon_ns_choices_find(choices, choice.small, choice.big, choice.dtype))
    DMUON_FAIL(DMUON_ERR_FORMAT, "%lld x %lld in %s is there twice", (long long)choice.small,
               (long long)choice.big, dmuon_dtype_name(choice.dtype));
  return dmuon_ns_choices_add(memory, choices, &choice);
}

static DMuonErrorCode read_tree(dmuon_memory *memory, const char *path, json_t *root,
                                dmuon_ns_choices *choices) {
  static const char *const names[] = {FORMAT, "device", "entries"};
  json_t *entries = json_object_get(root, "entries");
  if (json_integer_value(json_object_get(root, FORMAT)) != VERSION || !json_is_array(entries))
    DMUON_FAIL(DMUON_ERR_FORMAT,
               "%s: no table of Newton-Schulz choices: an object with \"" FORMAT
               "\": %d and a list \"entries\" is expected",
               path, VERSION);
  if (check_keys(root, (int)(sizeof names / sizeof *names), names)) {
    char why[300];
    snprintf(why, sizeof why, "%s", dmuon_error_text());
    DMUON_FAIL(DMUON_ERR_FORMAT, "%s: %s", path, why);
  }
  for (size_t i = 0; i < json_array_size(entries); i++) {
    DMuonErrorCode code = add_entry(memory, json_array_get(entries, i), choices);
    if (code == DMUON_ERR_MEMORY) return code;
    if (code) {
      char why[300];
      snprintf(why, sizeof why, "%s", dmuon_error_text());
      DMUON_FAIL(DMUON_ERR_FORMAT, "%s: entry %zu: %s", path, i, why);
    }
  }
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_ns_choices_read(dmuon_memory *memory, const char *path,
                                     dmuon_ns_choices *choices) {
  dmuon_ns_choices made = {0, NULL};
  json_error_t error;
  json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
  if (!root && json_error_code(&error) == json_error_cannot_open_file)
    DMUON_FAIL(DMUON_ERR_FILE, "%s: %s", path, error.text);
  if (!root && json_error_code(&error) == json_error_out_of_memory)
    DMUON_FAIL(DMUON_ERR_MEMORY, "no memory to read %s", path);
  if (!root)
    DMUON_FAIL(DMUON_ERR_FORMAT, "%s, line %d, column %d: %s", path, error.line, error.column,
               error.text);
  DMuonErrorCode code = read_tree(memory, path, root, &made);
  json_decref(root);
  if (code) {
    dmuon_ns_choices_free(&made);
    return DMuonErrorTrace(code, __func__, __FILE__, __LINE__);
  }
  dmuon_ns_choices_free(choices);
  *choices = made;
  return DMUON_SUCCESS;
}

/* ---- writing ---- */

static json_t *entry_json(const dmuon_ns_choice *c) {
  json_t *entry =
      json_pack("{s:I, s:I, s:s, s:s}", "small", (json_int_t)c->small, "big", (json_int_t)c->big,
                "dtype", dmuon_dtype_name(c->dtype), "variant", dmuon_ns_variant_name(c->variant));
  json_t *seconds = json_object();
  for (int v = DMUON_NS_GRAM; v <= DMUON_NS_DIRECT; v++)
    if (c->seconds[v] > 0)
      json_object_set_new(seconds, dmuon_ns_variant_name((dmuon_ns_variant)v),
                          json_real(c->seconds[v]));
  if (c->batch > 0) json_object_set_new(entry, "batch", json_integer(c->batch));
  if (c->tile != 0) json_object_set_new(entry, "tile", json_integer(c->tile > 0 ? c->tile : 0));
  if (json_object_size(seconds) > 0)
    json_object_set_new(entry, "seconds", seconds);
  else
    json_decref(seconds);
  return entry;
}

DMuonErrorCode dmuon_ns_choices_print(const dmuon_ns_choices *choices, const char *device,
                                      char **text) {
  json_t *entries = json_array();
  for (int i = 0; i < choices->count; i++)
    json_array_append_new(entries, entry_json(&choices->entries[i]));
  return dmuon_json_finish(
      json_pack("{s:i, s:s, s:o}", FORMAT, VERSION, "device", device, "entries", entries), text);
}
