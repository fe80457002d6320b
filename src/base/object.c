/* Handles: decides whether what a caller handed in is a live object of the class that a call is
 * about, and in the state it needs. It does not decide when an object dies. */
#include "base/object.h"

#include <stdio.h>
#include <string.h>

static const char *class_name(dmuon_class class_id) {
  switch (class_id) {
    case DMUON_CLASS_MESH:
      return "mesh";
    case DMUON_CLASS_MODEL:
      return "model";
    case DMUON_CLASS_PARTITION:
      return "partition";
    case DMUON_CLASS_OPTIMIZER:
      return "optimizer";
    case DMUON_CLASS_NEWTON_SCHULZ:
      return "newton_schulz";
  }
  return NULL;
}

void dmuon_object_init(dmuon_object *object, dmuon_class class_id, dmuon_context *context) {
  memset(object, 0, sizeof *object);
  object->class_id = class_id;
  object->references = 1;
  object->context = context;
}

DMuonErrorCode dmuon_object_set_name(dmuon_object *object, const char *name) {
  if (!name || !*name)
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "the name of the %s is %s", class_name(object->class_id),
               name ? "empty" : "NULL");
  /* It stands before the dot in "disc.lr", in lines "name=value" and in views. */
  for (const char *c = name; *c; c++) {
    if ((unsigned char)*c < ' ' || *c == 0x7f)
      DMUON_FAIL(DMUON_ERR_ARGUMENT,
                 "the name of the %s has the control character 0x%02x as its character %d",
                 class_name(object->class_id), (unsigned)(unsigned char)*c, (int)(c - name) + 1);
    if (*c == '=' || *c == '#')
      DMUON_FAIL(DMUON_ERR_ARGUMENT, "the name of the %s is \"%s\": no '=' or '#' may stand in it",
                 class_name(object->class_id), name);
  }
  char *copy = NULL;
  DMUON_TRY(dmuon_memory_strdup(&object->context->memory, name, &copy));
  dmuon_memory_free(object->name);
  object->name = copy;
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_object_check(const void *object, dmuon_class class_id) {
  const char *wanted = class_name(class_id);
  if (!object) DMUON_FAIL(DMUON_ERR_ARGUMENT, "%s handle is NULL", wanted);
  dmuon_class have = ((const dmuon_object *)object)->class_id;
  if (have == class_id) return DMUON_SUCCESS;
  if (class_name(have)) {
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "the handle is of class %s; this call wants class %s",
               class_name(have), wanted);
  }
  DMUON_FAIL(DMUON_ERR_ARGUMENT, "%s handle is no live object: destroyed, or never created",
             wanted);
}

DMuonErrorCode dmuon_object_check_state(const void *object, dmuon_class class_id, int set_up,
                                        const char *call) {
  DMUON_TRY(dmuon_object_check(object, class_id));
  const dmuon_object *o = object;
  if (!o->is_set_up == !set_up) return DMUON_SUCCESS;
  char name[80] = "";
  if (o->name) snprintf(name, sizeof name, " '%.60s'", o->name);
  if (set_up) {
    DMUON_FAIL(DMUON_ERR_STATE, "%s: %s%s is not set up yet; call its SetUp first",
               call ? call : "this call", class_name(class_id), name);
  }
  DMUON_FAIL(DMUON_ERR_STATE, "%s: %s%s is set up already; call this before its SetUp",
             call ? call : "this call", class_name(class_id), name);
}
