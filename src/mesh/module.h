/* Backends in files of their own: whether one is built, where its file is, and opening it. */
#ifndef DMUON_MESH_MODULE_H
#define DMUON_MESH_MODULE_H

#include "comm/module.h"

/* The library was built with this one ("cuda"). */
int dmuon_module_is_built(const char *name);
/* *module: linked in, or of libdmuon_NAME.so in the directory path (NULL: beside this library),
 * which then stays open as long as the process. DMUON_ERR_UNSUPPORTED: not compiled in; no such
 * file; it cannot be loaded (what is missing is said); of another build. */
DMuonErrorCode dmuon_module_find(dmuon_context *context, const char *name, const char *path,
                                 const dmuon_module **module);

#endif
