/* Decides whether ranks' devices can talk to each other, and says why not. What is done about it is
 * device_agree.c's. */
#include "mesh/device_choice.h"

#include <string.h>

enum { MOST_NAMED = 8 };

static int is_same(const dmuon_device_fact *a, const dmuon_device_fact *b) {
  static const unsigned char none[16] = {0};
  return memcmp(a->uuid, b->uuid, sizeof none) == 0 && memcmp(a->uuid, none, sizeof none) != 0;
}

/* The lowest two ranks of one line along an axis that have the same device. */
static int find_shared(const dmuon_device_fact *facts, const int sizes[3], const int *rank_at,
                       int axis, int pair[2]) {
  const int strides[3] = {sizes[1] * sizes[2], sizes[2], 1};
  const int size = sizes[0] * sizes[1] * sizes[2], stride = strides[axis], length = sizes[axis];
  int found = 0;
  for (int position = 0; position < size; position++) {
    const int coord = position / stride % length;
    for (int other = coord + 1; other < length; other++) {
      const int a = rank_at[position], b = rank_at[position + (other - coord) * stride];
      const int low = a < b ? a : b, high = a < b ? b : a;
      if (!is_same(&facts[a], &facts[b])) continue;
      if (found && (low > pair[0] || (low == pair[0] && high > pair[1]))) continue;
      pair[0] = low;
      pair[1] = high;
      found = 1;
    }
  }
  return found;
}

dmuon_transport_choice dmuon_transport_choose(int size, const dmuon_device_fact *facts,
                                              const int sizes[3], const int *rank_at,
                                              int is_asked) {
  dmuon_transport_choice choice = {.reason = DMUON_TRANSPORT_OWN};
  for (int rank = size - 1; rank >= 0; rank--) {
    if (!facts[rank].is_missing) continue;
    choice.reason = DMUON_TRANSPORT_MISSING;
    choice.ranks[0] = rank;
    choice.missing++;
  }
  if (choice.missing) return choice;
  for (int axis = 0; axis < 3; axis++) {
    int pair[2];
    if (!find_shared(facts, sizes, rank_at, axis, pair)) continue;
    if (choice.reason == DMUON_TRANSPORT_SHARED && pair[0] >= choice.ranks[0]) continue;
    choice.reason = DMUON_TRANSPORT_SHARED;
    memcpy(choice.ranks, pair, sizeof pair);
    memcpy(choice.uuid, facts[pair[0]].uuid, sizeof choice.uuid);
  }
  if (choice.reason == DMUON_TRANSPORT_OWN && is_asked) choice.reason = DMUON_TRANSPORT_ASKED;
  return choice;
}

static void add_missing(const dmuon_transport_choice *choice, int size,
                        const dmuon_device_fact *facts, const char *why, dmuon_text *text) {
  int named = 0;
  for (int rank = 0; rank < size && named < MOST_NAMED; rank++) {
    if (!facts[rank].is_missing) continue;
    named++;
    dmuon_text_add(text, "%s%d",
                   named == 1                 ? choice->missing > 1 ? "ranks " : "rank "
                   : named == choice->missing ? " and "
                                              : ", ",
                   rank);
  }
  if (named < choice->missing) dmuon_text_add(text, " and %d more", choice->missing - named);
  dmuon_text_add(text, choice->missing > 1 ? " have no GPU (" : " has no GPU (");
  /* Mostly it says by itself whose words they are. */
  if (choice->missing > 1 && strncmp(why, "rank ", 5) != 0)
    dmuon_text_add(text, "rank %d: ", choice->ranks[0]);
  dmuon_text_add(text, "%s)", why);
}

void dmuon_transport_explain(const dmuon_transport_choice *choice, int size,
                             const dmuon_device_fact *facts, const char *why, dmuon_text *text) {
  if (choice->reason == DMUON_TRANSPORT_OWN) return;
  dmuon_text_add(text, "staged through host memory: ");
  switch (choice->reason) {
    case DMUON_TRANSPORT_OWN:
      break;
    case DMUON_TRANSPORT_ASKED:
      dmuon_text_add(text, "asked for");
      break;
    case DMUON_TRANSPORT_MISSING:
      add_missing(choice, size, facts, why, text);
      break;
    case DMUON_TRANSPORT_SHARED:
      dmuon_text_add(text, "ranks %d and %d share GPU-", choice->ranks[0], choice->ranks[1]);
      for (int i = 0; i < 16; i++)
        dmuon_text_add(text, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                       choice->uuid[i]);
      dmuon_text_add(text,
                     "; bind gpu, device cuda:ordinal=N or CUDA_VISIBLE_DEVICES give each its own");
      break;
  }
}
