/* How the devices of a mesh's ranks talk to each other, from what each rank has. Pure. */
#ifndef DMUON_MESH_DEVICE_CHOICE_H
#define DMUON_MESH_DEVICE_CHOICE_H

#include "base/text.h"

/* One rank's device. All of it comes from that rank; the others see zeros until it is agreed. */
typedef struct {
  unsigned char uuid[16]; /* which piece of hardware; zeros: the host */
  unsigned char is_missing, decides_late, prefers_half, prefers_batches;
} dmuon_device_fact;

typedef enum {
  DMUON_TRANSPORT_OWN = 0, /* the device's communication */
  DMUON_TRANSPORT_ASKED,   /* staged through host memory: asked for, */
  DMUON_TRANSPORT_MISSING, /* a rank has no such device, */
  DMUON_TRANSPORT_SHARED   /* two ranks of a communicator have one device */
} dmuon_transport_reason;

typedef struct {
  dmuon_transport_reason reason;
  int missing;  /* ranks without */
  int ranks[2]; /* the lowest without; or the two */
  unsigned char uuid[16];
} dmuon_transport_choice;

/* rank_at[(r*G + s)*T + t]: who stands there. Two ranks that no axis joins may share a device. */
dmuon_transport_choice dmuon_transport_choose(int size, const dmuon_device_fact *facts,
                                              const int sizes[3], const int *rank_at, int is_asked);
/* "staged through host memory: rank 3 has no GPU (no driver)"; why is what the lowest rank without
 * one said. Nothing for OWN. */
void dmuon_transport_explain(const dmuon_transport_choice *choice, int size,
                             const dmuon_device_fact *facts, const char *why, dmuon_text *text);

#endif
