/* libdmuon: distributed matrix optimizers on MPI. Includes the whole public interface. */
#ifndef DMUON_H
#define DMUON_H

#include <dmuon/types.h>
#include <dmuon/error.h>
#include <dmuon/mesh.h>
#include <dmuon/model.h>
#include <dmuon/partition.h>
#include <dmuon/newton_schulz.h>
#include <dmuon/optimizer.h>
#include <dmuon/group.h>

#endif
