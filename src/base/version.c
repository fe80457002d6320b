/* The version, as configure took it from the file VERSION. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <dmuon/error.h>

void DMuonGetVersion(int *major, int *minor, int *patch) {
  if (major) *major = DMUON_VERSION_MAJOR;
  if (minor) *minor = DMUON_VERSION_MINOR;
  if (patch) *patch = DMUON_VERSION_PATCH;
}
