/* A backend in a file of its own: what libdmuon_NAME.so exports, and what it is told when a device
 * is made. The module is opened when somebody asks for its device and stays open until the process
 * ends; it uses the library's own functions (base, device, comm), so both must be of one build.
 *
 * How it is found is decided in src/mesh/module.c. */
#ifndef DMUON_COMM_MODULE_H
#define DMUON_COMM_MODULE_H

#include "base/text.h"
#include "comm/comm.h"
#include "device/device.h"

/* Grows with every change of this file, of comm.h or of device.h. */
enum { DMUON_MODULE_ABI = 1 };
/* The version and what else must be the same in the library and its module. */
#ifdef DMUON_DEBUG
#define DMUON_MODULE_BUILD PACKAGE_VERSION " debug"
#else
#define DMUON_MODULE_BUILD PACKAGE_VERSION
#endif

/* What a device shall be. */
typedef struct {
  const char *text; /* the whole wish, for messages: "cuda:tf32" */
  int ordinal;      /* which of the process's devices; -1: the thread's current one */
  const char *pci; /* unless NULL: the one at this address ("0000:07:00.0"), whatever its ordinal */
  int reduce_nccl; /* sums by the communication library, in its association */
  int allow_tf32;  /* products of fp32 may round their operands */
  int batched;     /* a batch of products is one call; its bits may depend on how many they are */
  int rank;        /* in the mesh, for messages */
  /* What the rest of the process has under way: called again and again while a device waits. A mesh
   * that breaks meanwhile is told by break_device. */
  DMuonErrorCode (*progress)(void *argument);
  void *progress_argument;
  /* Where device memory comes from; NULL: the backend's own. */
  DMuonAllocFunction alloc;
  DMuonFreeFunction release;
  void *alloc_context;
} dmuon_module_request;

typedef struct {
  int abi;           /* DMUON_MODULE_ABI */
  const char *build; /* DMUON_MODULE_BUILD */
  const char *name;  /* "cuda": also the name in the ops of its devices */
  const DMuonCommOps *comm;

  /* *device: to be given to its destroy; it begins with a dmuon_module_device.
   * DMUON_ERR_UNSUPPORTED says what is missing here (driver, devices), DMUON_ERR_ARGUMENT of an
   * ordinal that is none. Local. */
  DMuonErrorCode (*create)(dmuon_context *context, const dmuon_module_request *request,
                           dmuon_device **device);
  /* The longest wait for other ranks in seconds; 0: for ever. Live. */
  void (*set_timeout)(dmuon_device *device, double seconds);
  /* The mesh gave up (code >= 200, message in the thread's record): nothing waits any more. */
  void (*break_device)(dmuon_device *device, DMuonErrorCode code);
  /* What it is, for people: "NVIDIA H200, ordinal 0, PCI 0000:07:00.0; CUDA 13.0, NCCL 2.28.9,
   * launch order implicit". */
  void (*describe)(const dmuon_device *device, dmuon_text *text);
  /* &dmuon_error_set: of the same copy of the library as the one that opens the module? */
  DMuonErrorCode (*library)(DMuonErrorCode code, const char *function, const char *file, int line,
                            const char *format, ...);
  /* Which piece of hardware it is: two ranks on one are found by it. */
  void (*identify)(const dmuon_device *device, unsigned char uuid[16]);
} dmuon_module;

/* A module's device begins with this; create fills it in. */
typedef struct {
  dmuon_device base;
  const dmuon_module *module;
  char pci[24]; /* "0000:07:00.0", lower case; "" where it is not known */
} dmuon_module_device;

/* The one object that libdmuon_cuda.so exports. */
extern const dmuon_module dmuon_cuda_module;

#endif
