/* A rank that freezes: it makes no progress of anything for a while, in its own code or, by a
 * timer, wherever it happens to be. For tests in which other ranks wait for it. */
#ifndef TEST_FREEZE_H
#define TEST_FREEZE_H

#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

static double freeze_seconds = 1.3;

/* Also a signal's handler. */
static void freeze_now(int number) {
  struct timespec left = {(time_t)freeze_seconds,
                          (long)(1e9 * (freeze_seconds - (double)(time_t)freeze_seconds))};
  (void)number;
  while (nanosleep(&left, &left)) {
  }
}

/* The same until somebody sends SIGCONT. */
static inline void stop_now(int number) {
  (void)number;
  raise(SIGSTOP);
}

static inline void freeze_in(int milliseconds, void (*how)(int)) {
  struct itimerval timer = {{0, 0}, {milliseconds / 1000, milliseconds % 1000 * 1000}};
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = how;
  action.sa_flags = SA_RESTART;
  sigaction(SIGALRM, &action, NULL);
  setitimer(ITIMER_REAL, &timer, NULL);
}

#endif
