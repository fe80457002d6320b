/* One option's value: text against its spec, and back. Decides which spellings are accepted and
 * what a refusal says; where the text came from, and which of several wins, is decided elsewhere.
 * Numbers are read and written with a '.', whatever the program's locale. */
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/glob.h"
#include "base/options_entry.h"

static int equal_folded(const char *a, const char *b) {
  for (; *a && *b; a++, b++) {
    int ca = *a >= 'A' && *a <= 'Z' ? *a - 'A' + 'a' : *a;
    int cb = *b >= 'A' && *b <= 'Z' ? *b - 'A' + 'a' : *b;
    if (ca != cb) return 0;
  }
  return *a == *b;
}

/* 1 true, 0 false, -1 neither. */
static int read_bool(const char *text) {
  static const char *const words[] = {"0", "1", "false", "true", "no", "yes", "off", "on"};
  for (int i = 0; i < 8; i++) {
    if (equal_folded(text, words[i])) return i & 1;
  }
  return -1;
}

static int read_integer(const char *text, int64_t *value) {
  char *end = NULL;
  if (*text != '-' && *text != '+' && (*text < '0' || *text > '9')) return 0;
  errno = 0;
  long long number = strtoll(text, &end, 10);
  if (end == text || *end || errno) return 0;
  *value = (int64_t)number;
  return 1;
}

static const char *locale_point(void) {
  const struct lconv *conventions = localeconv();
  const char *point = conventions ? conventions->decimal_point : NULL;
  return point && *point ? point : ".";
}

/* Decimal digits, point, exponent, nothing else: no hexadecimal, no "inf", no "nan". */
static int read_real(const char *text, double *value) {
  char buffer[128], *end = NULL;
  const char *point = locale_point();
  size_t used = 0;
  for (const char *c = text; *c; c++) {
    if (!strchr("0123456789+-.eE", *c)) return 0;
    size_t bytes = *c == '.' ? strlen(point) : 1;
    if (used + bytes >= sizeof buffer) return 0;
    memcpy(buffer + used, *c == '.' ? point : c, bytes);
    used += bytes;
  }
  buffer[used] = 0;
  double number = strtod(buffer, &end);
  if (end == buffer || *end || !isfinite(number)) return 0;
  *value = number;
  return 1;
}

/* The shortest decimal that reads back as the same double; whole numbers without an exponent. */
static void write_real(double value, char *buffer) {
  const char *point = locale_point();
  double back = 0;
  if (fabs(value) < 1e15 && value == floor(value)) {
    snprintf(buffer, 40, "%.0f", value);
    return;
  }
  for (int digits = 1; digits <= 17; digits++) {
    snprintf(buffer, 40, "%.*g", digits, value);
    char *at = strcmp(point, ".") ? strstr(buffer, point) : NULL;
    if (at) {
      *at = '.';
      memmove(at + 1, at + strlen(point), strlen(at + strlen(point)) + 1);
    }
    if (read_real(buffer, &back) && back == value) return;
  }
}

/* Both zero: no limits were meant. */
static int has_range(const dmuon_option_spec *spec) {
  return spec->low != 0 || spec->high != 0;
}

static int may_decide(const dmuon_option_spec *spec) {
  return spec->type == DMUON_OPTION_INT && has_range(spec) && spec->low <= DMUON_DECIDE;
}

/* "; command line", or nothing. */
#define WHERE_FORMAT "%s%s"
#define WHERE_VALUES where ? "; " : "", where ? where : ""

static DMuonErrorCode check_range(const dmuon_option_spec *spec, const char *shown,
                                  const char *text, const char *where, double number) {
  if (!has_range(spec) || (number >= spec->low && number <= spec->high)) return DMUON_SUCCESS;
  char low[40], high[40];
  write_real(spec->low, low);
  write_real(spec->high, high);
  if (isinf(spec->low)) snprintf(low, sizeof low, "-infinity");
  if (isinf(spec->high)) snprintf(high, sizeof high, "infinity");
  DMUON_FAIL(DMUON_ERR_ARGUMENT, "option %s: %s is out of range [%s, %s]" WHERE_FORMAT, shown, text,
             low, high, WHERE_VALUES);
}

static DMuonErrorCode check_enum(const dmuon_option_spec *spec, const char *shown, const char *text,
                                 const char *where, int *index) {
  char list[512] = "";
  size_t used = 0;
  int count = 0;
  for (; spec->values[count]; count++) {
    if (!strcmp(text, spec->values[count])) {
      *index = count;
      return DMUON_SUCCESS;
    }
    int wrote =
        snprintf(list + used, sizeof list - used, "%s%s", count ? ", " : "", spec->values[count]);
    if (wrote > 0 && (size_t)wrote < sizeof list - used) used += (size_t)wrote;
  }
  const char *nearest = dmuon_nearest_name(text, count, spec->values);
  DMUON_FAIL(DMUON_ERR_ARGUMENT, "option %s: '%s' is none of %s%s%s%s" WHERE_FORMAT, shown, text,
             list, nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "",
             WHERE_VALUES);
}

DMuonErrorCode dmuon_option_check(const dmuon_option_spec *spec, const char *shown,
                                  const char *text, const char *where, dmuon_option_value *value) {
  dmuon_option_value read = {0};
  if (!text && spec->type == DMUON_OPTION_BOOL) text = "1";
  if (!text) {
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "option %s needs a value" WHERE_FORMAT, shown, WHERE_VALUES);
  }
  switch (spec->type) {
    case DMUON_OPTION_BOOL:
      read.integer = read_bool(text);
      if (read.integer < 0) {
        DMUON_FAIL(DMUON_ERR_ARGUMENT,
                   "option %s: '%s' is neither 1|true|yes|on nor 0|false|no|off" WHERE_FORMAT,
                   shown, text, WHERE_VALUES);
      }
      break;
    case DMUON_OPTION_INT:
      if (may_decide(spec) && !strcmp(text, "decide")) {
        read.count = DMUON_DECIDE;
      } else if (!read_integer(text, &read.count)) {
        DMUON_FAIL(DMUON_ERR_ARGUMENT, "option %s: '%s' is no integer" WHERE_FORMAT, shown, text,
                   WHERE_VALUES);
      }
      DMUON_TRY(check_range(spec, shown, text, where, (double)read.count));
      break;
    case DMUON_OPTION_REAL:
      if (!read_real(text, &read.real)) {
        DMUON_FAIL(DMUON_ERR_ARGUMENT, "option %s: '%s' is no finite number" WHERE_FORMAT, shown,
                   text, WHERE_VALUES);
      }
      DMUON_TRY(check_range(spec, shown, text, where, read.real));
      break;
    case DMUON_OPTION_ENUM:
      DMUON_TRY(check_enum(spec, shown, text, where, &read.integer));
      break;
    case DMUON_OPTION_STRING:
      read.string = text;
      break;
  }
  *value = read;
  return DMUON_SUCCESS;
}

const char *dmuon_option_format(const dmuon_option_spec *spec, const void *settings, char *buffer) {
  const char *at = (const char *)settings + spec->offset;
  switch (spec->type) {
    case DMUON_OPTION_BOOL:
      return *(const int *)(const void *)at ? "1" : "0";
    case DMUON_OPTION_INT: {
      int64_t count = *(const int64_t *)(const void *)at;
      if (may_decide(spec) && count == DMUON_DECIDE) return "decide";
      snprintf(buffer, 40, "%lld", (long long)count);
      return buffer;
    }
    case DMUON_OPTION_REAL:
      snprintf(buffer, 40, "nan");
      write_real(*(const double *)(const void *)at, buffer);
      return buffer;
    case DMUON_OPTION_ENUM: {
      int index = *(const int *)(const void *)at, count = 0;
      while (spec->values[count]) count++;
      return index >= 0 && index < count ? spec->values[index] : "?";
    }
    case DMUON_OPTION_STRING:
      return *(const char *const *)(const void *)at;
  }
  return NULL;
}

void dmuon_options_print(const dmuon_option_table *table, const void *settings, dmuon_text *text) {
  for (int i = 0; i < table->count; i++) {
    char buffer[40];
    const char *value = dmuon_option_format(&table->specs[i], settings, buffer);
    dmuon_text_add(text, "%s=%s\n", table->specs[i].name, value ? value : "");
  }
}
