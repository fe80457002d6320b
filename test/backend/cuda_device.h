/* A CUDA device over the double, for tests of the backend, and runs of this program with other
 * settings of the double, which it reads when it is first called. */
#ifndef TEST_BACKEND_CUDA_DEVICE_H
#define TEST_BACKEND_CUDA_DEVICE_H

#include <sys/wait.h>
#include <unistd.h>

#include "backend/cuda/cuda.h"

static DMuonErrorCode cuda_device_try(dmuon_context *context, int ordinal, dmuon_device **device) {
  const dmuon_module_request request = {.text = "cuda", .ordinal = ordinal};
  return dmuon_cuda_module.create(context, &request, device);
}

/* This program again, with one argument and one more variable in its environment; what it prints
 * goes to stderr. Its exit status. */
static int cuda_device_rerun(const char *argument, const char *variable, const char *value) {
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    char self[] = "/proc/self/exe", copy[64];
    snprintf(copy, sizeof copy, "%s", argument);
    char *const arguments[] = {self, copy, NULL};
    setenv(variable, value, 1);
    dup2(2, 1);
    execv(self, arguments);
    _exit(127);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

#endif
