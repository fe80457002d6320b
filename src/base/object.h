/* What every handle begins with: its class (so that a wrong or dead handle is refused), a count of
 * holders, a name, and whether it is set up. Frozen at these fields. */
#ifndef DMUON_BASE_OBJECT_H
#define DMUON_BASE_OBJECT_H

#include "base/context.h"

typedef enum {
  DMUON_CLASS_MESH = 0x6d657368,
  DMUON_CLASS_MODEL,
  DMUON_CLASS_PARTITION,
  DMUON_CLASS_OPTIMIZER,
  DMUON_CLASS_NEWTON_SCHULZ
} dmuon_class;

typedef struct {
  dmuon_class class_id; /* 0 once destroyed */
  int references;       /* handles and objects that hold it */
  int is_set_up;
  char *name; /* in context->memory */
  dmuon_context *context;
} dmuon_object;

void dmuon_object_init(dmuon_object *object, dmuon_class class_id, dmuon_context *context);
/* Copies name, which must not be empty nor have control characters, '=' or '#': DMUON_ERR_ARGUMENT.
 * Blanks are fine, but a name with one cannot be said on a command line. */
DMuonErrorCode dmuon_object_set_name(dmuon_object *object, const char *name);
/* DMUON_ERR_ARGUMENT when object is NULL or not of this class: "optimizer handle is NULL". */
DMuonErrorCode dmuon_object_check(const void *object, dmuon_class class_id);
/* The same, and DMUON_ERR_STATE when it is (not) set up yet: for setters (0) and live calls (1). */
DMuonErrorCode dmuon_object_check_state(const void *object, dmuon_class class_id, int set_up,
                                        const char *call);

#endif
