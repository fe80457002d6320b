/* How passes end. */
#ifndef DMUON_OPTIM_PASS_H
#define DMUON_OPTIM_PASS_H

#include "optim/optimizer.h"

/* What ends a pass, beside a DMuonPass that follows. */
enum { DMUON_ENDS_STEP = 3, DMUON_ENDS_CANCEL, DMUON_ENDS_DESTROY };

int64_t dmuon_pass_vote_bytes(int param_count);
/* Every rank comes with its code so far; all return the same. Closes brackets, completes the
 * sequence of the pass, and for a Step reduces what is left on this rank. Collective over the
 * model's mesh; nothing at all when no parameter is lent. */
DMuonErrorCode dmuon_pass_close(DMuonOptimizer opt, const char *call, int next,
                                DMuonErrorCode code);

#endif
