/* Patterns, and the nearest name. Decides what a pattern means; which names it is asked about, and
 * what happens when it matches none, is the caller's. Nothing here allocates. */
#include "base/glob.h"

#include <string.h>

/* The end of the class that begins at p ("[...]"): its ']', or NULL when it is not closed. A ']'
 * that comes first belongs to the class. */
static const char *class_end(const char *p) {
  p++;
  if (*p == '!' || *p == '^') p++;
  if (*p == ']') p++;
  while (*p && *p != ']') p++;
  return *p ? p : NULL;
}

/* The end of the alternative that begins at p: the next '|' that is not inside a class. */
static const char *alternative_end(const char *p) {
  for (; *p && *p != '|'; p++) {
    const char *end = *p == '[' ? class_end(p) : NULL;
    if (end) p = end;
  }
  return p;
}

static int class_has(const char *p, const char *end, unsigned char c) {
  int is_negated = 0, has = 0;
  p++;
  if (*p == '!' || *p == '^') {
    is_negated = 1;
    p++;
  }
  for (; p < end; p++) {
    unsigned char low = (unsigned char)*p, high = low;
    if (p + 2 < end && p[1] == '-') {
      high = (unsigned char)p[2];
      p += 2;
    }
    if (c >= low && c <= high) has = 1;
  }
  return has != is_negated;
}

/* One alternative [p, p_end). Only the last '*' is ever gone back to: what an earlier one could
 * take more of, the later one can too. */
static int match_one(const char *p, const char *p_end, const char *name) {
  const char *star = NULL, *star_name = NULL;
  while (*name) {
    const char *next = NULL;
    if (p < p_end && *p == '*') {
      star = ++p;
      star_name = name;
      continue;
    }
    if (p < p_end) {
      const char *end = *p == '[' ? class_end(p) : NULL;
      if (end && end < p_end) {
        if (class_has(p, end, (unsigned char)*name)) next = end + 1;
      } else if (*p == '?' || *p == *name) {
        next = p + 1;
      }
    }
    if (next) {
      p = next;
      name++;
    } else if (star) {
      p = star;
      name = ++star_name;
    } else {
      return 0;
    }
  }
  while (p < p_end && *p == '*') p++;
  return p == p_end;
}

int dmuon_glob_match(const char *pattern, const char *name) {
  if (!pattern || !name) return 0;
  for (;;) {
    const char *end = alternative_end(pattern);
    if (match_one(pattern, end, name)) return 1;
    if (!*end) return 0;
    pattern = end + 1;
  }
}

DMuonErrorCode dmuon_glob_check(const char *pattern) {
  if (!pattern || !*pattern) DMUON_FAIL(DMUON_ERR_ARGUMENT, "pattern is NULL or empty");
  const char *begin = pattern;
  for (const char *p = pattern;; p++) {
    if (*p == '[') {
      const char *end = class_end(p);
      if (!end) DMUON_FAIL(DMUON_ERR_ARGUMENT, "pattern '%s': '[' without its ']'", pattern);
      p = end;
    } else if (*p == '|' || !*p) {
      if (p == begin) {
        DMUON_FAIL(DMUON_ERR_ARGUMENT, "pattern '%s': an alternative is empty", pattern);
      }
      if (!*p) return DMUON_SUCCESS;
      begin = p + 1;
    }
  }
}

enum { LONGEST = 127 };

/* Letters alike whatever their case, and '-' like '_': what people mistake first. */
static int fold(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A' + 'a';
  return c == '-' ? '_' : (unsigned char)c;
}

/* Insertions, deletions, substitutions and swaps of neighbours. */
static int edit_distance(const char *a, int a_length, const char *b, int b_length) {
  int rows[3][LONGEST + 1];
  int *before = rows[0], *last = rows[1], *now = rows[2];
  for (int j = 0; j <= b_length; j++) before[j] = last[j] = j;
  for (int i = 1; i <= a_length; i++) {
    now[0] = i;
    for (int j = 1; j <= b_length; j++) {
      int is_other = fold(a[i - 1]) != fold(b[j - 1]);
      int best = last[j - 1] + is_other;
      if (last[j] + 1 < best) best = last[j] + 1;
      if (now[j - 1] + 1 < best) best = now[j - 1] + 1;
      if (i > 1 && j > 1 && fold(a[i - 1]) == fold(b[j - 2]) && fold(a[i - 2]) == fold(b[j - 1]) &&
          before[j - 2] + 1 < best) {
        best = before[j - 2] + 1;
      }
      now[j] = best;
    }
    int *oldest = before;
    before = last;
    last = now;
    now = oldest;
  }
  return last[b_length];
}

const char *dmuon_nearest_name(const char *word, int count, const char *const *names) {
  const char *nearest = NULL;
  int best = 0;
  size_t word_length = word ? strlen(word) : 0;
  if (word_length == 0 || word_length > LONGEST) return NULL;
  for (int i = 0; i < count; i++) {
    size_t length = names[i] ? strlen(names[i]) : 0;
    if (length == 0 || length > LONGEST) continue;
    int distance = edit_distance(word, (int)word_length, names[i], (int)length);
    int allowed = ((int)(length > word_length ? length : word_length) + 1) / 3;
    if (distance <= allowed && (!nearest || distance < best)) {
      nearest = names[i];
      best = distance;
    }
  }
  return nearest;
}
