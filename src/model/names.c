/* Decides, from names and shapes alone, which group a parameter is in and how it is routed when no
 * rule says otherwise. Rules are resolved in rules.c. */
#include "model/names.h"

#include <stdio.h>
#include <string.h>

static int is_digit(char c) {
  return c >= '0' && c <= '9';
}
static int is_upper(char c) {
  return c >= 'A' && c <= 'Z';
}
static int is_lower(char c) {
  return c >= 'a' && c <= 'z';
}
static int is_letter(char c) {
  return is_upper(c) || is_lower(c);
}

static int is_block_word(const char *component, size_t length) {
  static const char *const words[] = {"layers", "blocks", "layer", "h"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (strlen(words[i]) == length && memcmp(words[i], component, length) == 0) return 1;
  return 0;
}

size_t dmuon_name_block(const char *name) {
  const char *component = name;
  for (;;) {
    const char *dot = strchr(component, '.');
    if (!dot) return 0;
    if (is_block_word(component, (size_t)(dot - component))) {
      const char *end = dot + 1;
      while (is_digit(*end)) end++;
      if (end > dot + 1 && (*end == '.' || *end == '\0')) return (size_t)(end - name);
    }
    component = dot + 1;
  }
}

DMuonErrorCode dmuon_name_group(dmuon_memory *memory, const char *name, char **key) {
  size_t length = dmuon_name_block(name);
  if (!length) {
    const char *dot = strrchr(name, '.');
    if (dot) length = (size_t)(dot - name);
  }
  if (!length) return dmuon_memory_strdup(memory, DMUON_ROOT_GROUP, key);
  char *copy = NULL;
  DMUON_TRY(dmuon_memory_alloc(memory, (int64_t)length + 1, 1, &copy));
  memcpy(copy, name, length);
  *key = copy;
  return DMUON_SUCCESS;
}

/* The next word at or after *at: letters up to a non-letter or a capital that begins a word ("RMS"
 * and "Norm" of "RMSNorm"). 0 at the end. */
static size_t next_word(const char **at) {
  const char *p = *at;
  while (*p && !is_letter(*p)) p++;
  *at = p;
  if (!*p) return 0;
  size_t n = 1;
  for (; is_letter(p[n]); n++) {
    if (!is_upper(p[n])) continue;
    if (is_lower(p[n - 1]) || is_lower(p[n + 1])) break;
  }
  return n;
}

static int word_is(const char *word, size_t length, const char *lower) {
  if (strlen(lower) != length) return 0;
  for (size_t i = 0; i < length; i++)
    if ((word[i] | 0x20) != lower[i]) return 0;
  return 1;
}

static int word_begins(const char *word, size_t length, const char *lower) {
  size_t n = strlen(lower);
  return length >= n && word_is(word, n, lower);
}

static int word_ends(const char *word, size_t length, const char *lower) {
  size_t n = strlen(lower);
  return length >= n && word_is(word + length - n, n, lower);
}

const char *dmuon_name_base_word(const char *name, size_t *length) {
  static const char *const whole[] = {"ln", "bias", "biases", "rope", "rotary"};
  const char *lm = NULL; /* the word before, when it was lm */
  const char *at = name;
  size_t n;
  while ((n = next_word(&at)) > 0) {
    int base = word_ends(at, n, "norm") || word_ends(at, n, "norms") || word_begins(at, n, "embed");
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
      base = base || word_is(at, n, whole[i]);
    if (base) {
      *length = n;
      return at;
    }
    if (lm && word_is(at, n, "head")) {
      *length = (size_t)(at - lm) + n;
      return lm;
    }
    lm = word_is(at, n, "lm") && at[n] == '_' ? at : NULL;
    at += n;
  }
  return NULL;
}

DMuonRoute dmuon_route_default(const dmuon_param *param, char *reason, size_t size) {
  size_t length = 0, block = dmuon_name_block(param->name);
  const char *word = dmuon_name_base_word(param->name, &length);
  if (dmuon_param_is_vector(param)) {
    snprintf(reason, size, "%s", param->ndim == 0 ? "scalar" : "vector");
  } else if (!block) {
    snprintf(reason, size, "matrix outside the numbered blocks");
  } else if (word) {
    snprintf(reason, size, "name says %.*s", (int)(length < 64 ? length : 64), word);
  } else if (param->rows <= 1 || param->cols <= 1) {
    snprintf(reason, size, "%lld x %lld matrix", (long long)param->rows, (long long)param->cols);
  } else {
    snprintf(reason, size, "matrix in numbered block %.*s", (int)(block < 120 ? block : 120),
             param->name);
    return DMUON_ROUTE_MUON;
  }
  return DMUON_ROUTE_ADAMW;
}
