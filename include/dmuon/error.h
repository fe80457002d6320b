/* Error codes, the thread's last error, and the macros that propagate it. */
#ifndef DMUON_ERROR_H
#define DMUON_ERROR_H

#include <dmuon/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  DMUON_SUCCESS = 0,
  /* 1..99: your call was wrong, on this rank: nothing changed, nothing was sent. */
  DMUON_ERR_ARGUMENT = 1,
  DMUON_ERR_STATE,
  DMUON_ERR_UNSUPPORTED,
  DMUON_ERR_NOT_FOUND,
  DMUON_ERR_THREAD,
  /* 100..199: the same code on every rank of the mesh: nothing changed, go on.
   * (From a local or not collective call MEMORY, FILE and FORMAT are this rank's only; the next
   * collective call says DISAGREE.) */
  DMUON_ERR_DISAGREE = 100,
  DMUON_ERR_SETUP, /* names, patterns, plan: what is wrong is named */
  DMUON_ERR_MEMORY,
  DMUON_ERR_FILE,
  DMUON_ERR_FORMAT,
  /* 200 and up: the mesh is broken: every later call on it returns the same code at once; View,
   * Get... and Destroy still work. */
  DMUON_ERR_PEER = 200,
  DMUON_ERR_TIMEOUT,
  DMUON_ERR_REVOKED,
  DMUON_ERR_COMM,
  DMUON_ERR_DEVICE,
  DMUON_ERR_INTERNAL
} DMuonErrorCode;

/* This thread's last error: what is wrong, the values, the call stack. Not collective. The string
 * is the library's, good until this thread's next failing call. Never NULL. */
DMUON_API const char *DMuonErrorGetMessage(void);
/* "DMUON_ERR_STATE" for DMUON_ERR_STATE. Not collective; static string, never NULL. */
DMUON_API const char *DMuonErrorGetName(DMuonErrorCode code);
/* 1 when the code says that the mesh is broken (200 and up): destroy, rebuild, resume. */
DMUON_API int DMuonErrorIsFatal(DMuonErrorCode code);
/* Forgets this thread's record. Not collective. */
DMUON_API void DMuonErrorClear(void);
/* Adds a frame to this thread's record and returns code; used by DMUON_CALL. Not collective. */
DMUON_API DMuonErrorCode DMuonErrorTrace(DMuonErrorCode code, const char *function,
                                         const char *file, int line);
/* Version of the library at run time. Not collective; each output may be NULL. */
DMUON_API void DMuonGetVersion(int *major, int *minor, int *patch);
/* Frees what Summary calls hand out. Not collective; NULL is fine. */
DMUON_API void DMuonFree(void *ptr);

/* Returns the code of a failed call to the caller's caller, with a frame added. */
#define DMUON_CALL(call)                                                                \
  do {                                                                                  \
    DMuonErrorCode dmuon_code_ = (call);                                                \
    if (dmuon_code_) return DMuonErrorTrace(dmuon_code_, __func__, __FILE__, __LINE__); \
  } while (0)

/* For programs that do stop on errors: your abort, in your code (needs stdio.h and mpi.h). */
#define DMUON_CALL_OR_ABORT(comm, call)                \
  do {                                                 \
    DMuonErrorCode dmuon_code_ = (call);               \
    if (dmuon_code_) {                                 \
      fprintf(stderr, "%s\n", DMuonErrorGetMessage()); \
      MPI_Abort((comm), dmuon_code_);                  \
    }                                                  \
  } while (0)

#ifdef __cplusplus
}
#endif
#endif
