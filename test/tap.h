/* The test protocol (TAP) for the programs of this directory: one line an assertion on stdout.
 *
 *   #include "tap.h"
 *   int main(void) {
 *     tap_plan(2);                                   // or tap_plan(0): counted at the end
 *     tap_ok(1 + 1 == 2, "sums of %d", 1);           // "ok 1 - sums of 1"
 *     tap_is_int(1 + 1, 2, "with both values in the diagnostics");
 *     return tap_done();                             // 0 when all passed
 *   }
 *
 * Under MPI include "tap_mpi.h" instead, which makes the verdict of every assertion the same on all
 * ranks (false anywhere is false everywhere) and lets rank 0 alone print: an assertion is then
 * collective. State is static, so one test program is one source file; helpers in other sources
 * report through return values. */
#ifndef TEST_TAP_H
#define TEST_TAP_H

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__GNUC__) || defined(__clang__)
#define TAP_PRINTF(f, a) __attribute__((format(printf, f, a), unused))
#define TAP_UNUSED __attribute__((unused))
#else
#define TAP_PRINTF(f, a)
#define TAP_UNUSED
#endif

static struct {
  int planned, run, failed;
  int quiet; /* another rank prints */
  int plan_printed;
  int (*agree)(int condition); /* NULL: this process decides alone */
} tap_state;

/* Diagnostics: "# text". Printed by the rank that prints, on the test's log. */
static void TAP_PRINTF(1, 2) tap_diag(const char *format, ...) {
  if (tap_state.quiet) return;
  va_list args;
  va_start(args, format);
  fputs("# ", stdout);
  vprintf(format, args);
  fputc('\n', stdout);
  va_end(args);
  fflush(stdout);
}

/* count 0: not known yet. A plan set after the first assertion, or not at all, is printed at the
 * end: TAP has it before all points or after them. */
static void TAP_UNUSED tap_plan(int count) {
  tap_state.planned = count;
  if (count <= 0 || tap_state.run || tap_state.quiet) return;
  tap_state.plan_printed = 1;
  printf("1..%d\n", count);
  fflush(stdout);
}

static int tap_report(int condition, const char *directive, const char *format, va_list args) {
  condition = !!condition;
  if (tap_state.agree) condition = tap_state.agree(condition);
  tap_state.run++;
  if (!condition) tap_state.failed++;
  if (!tap_state.quiet) {
    printf("%sok %d - ", condition ? "" : "not ", tap_state.run);
    vprintf(format, args);
    printf("%s\n", directive);
    fflush(stdout);
  }
  return condition;
}

/* Returns the verdict (under MPI: of all ranks together). */
static int TAP_PRINTF(2, 3) tap_ok(int condition, const char *format, ...) {
  va_list args;
  va_start(args, format);
  condition = tap_report(condition, "", format, args);
  va_end(args);
  return condition;
}

static int TAP_PRINTF(3, 4) tap_is_int(int64_t got, int64_t expected, const char *format, ...) {
  va_list args;
  va_start(args, format);
  int same = got == expected;
  int verdict = tap_report(same, "", format, args);
  va_end(args);
  if (!same) tap_diag("got %lld, expected %lld", (long long)got, (long long)expected);
  return verdict;
}

static int TAP_PRINTF(3, 4)
    tap_is_string(const char *got, const char *expected, const char *format, ...) {
  va_list args;
  va_start(args, format);
  int same = got && expected ? strcmp(got, expected) == 0 : got == expected;
  int verdict = tap_report(same, "", format, args);
  va_end(args);
  if (!same)
    tap_diag("got \"%s\", expected \"%s\"", got ? got : "(null)", expected ? expected : "(null)");
  return verdict;
}

/* |got - expected| <= bound; a NaN on either side is false. */
static int TAP_PRINTF(4, 5)
    tap_is_near(double got, double expected, double bound, const char *format, ...) {
  va_list args;
  va_start(args, format);
  int near = fabs(got - expected) <= bound;
  int verdict = tap_report(near, "", format, args);
  va_end(args);
  if (!near) tap_diag("got %.17g, expected %.17g, bound %g", got, expected, bound);
  return verdict;
}

/* Text that must contain a phrase, such as an error message that must name a parameter. */
static int TAP_PRINTF(3, 4)
    tap_contains(const char *text, const char *phrase, const char *format, ...) {
  va_list args;
  va_start(args, format);
  int found = text && strstr(text, phrase);
  int verdict = tap_report(found, "", format, args);
  va_end(args);
  if (!found) tap_diag("\"%s\" not in \"%s\"", phrase, text ? text : "(null)");
  return verdict;
}

/* Counts as many passed-over assertions, with the reason. */
static void TAP_PRINTF(2, 3) tap_skip(int count, const char *reason, ...) {
  for (int i = 0; i < count; i++) {
    tap_state.run++;
    if (tap_state.quiet) continue;
    va_list args;
    va_start(args, reason);
    printf("ok %d # SKIP ", tap_state.run);
    vprintf(reason, args);
    fputc('\n', stdout);
    va_end(args);
  }
  if (!tap_state.quiet) fflush(stdout);
}

/* The whole program is skipped; call before anything else, then return its value from main. */
static int TAP_PRINTF(1, 2) tap_skip_all(const char *reason, ...) {
  if (!tap_state.quiet) {
    va_list args;
    va_start(args, reason);
    fputs("1..0 # SKIP ", stdout);
    vprintf(reason, args);
    fputc('\n', stdout);
    va_end(args);
    fflush(stdout);
  }
  return 0;
}

/* Prints a plan left open; returns main's exit status. */
static int TAP_UNUSED tap_done(void) {
  if (!tap_state.quiet) {
    if (!tap_state.plan_printed)
      printf("1..%d\n", tap_state.planned > 0 ? tap_state.planned : tap_state.run);
    if (tap_state.planned > 0 && tap_state.planned != tap_state.run)
      printf("# planned %d, ran %d\n", tap_state.planned, tap_state.run);
    if (tap_state.failed) printf("# %d of %d failed\n", tap_state.failed, tap_state.run);
    fflush(stdout);
  }
  return tap_state.failed || (tap_state.planned > 0 && tap_state.planned != tap_state.run);
}

#endif
