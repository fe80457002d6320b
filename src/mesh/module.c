/* Finds and opens a backend's module. It decides where to look and whether what is there belongs to
 * this library; what the backend needs of the machine is the backend's to say. */
#include "config.h" /* first: it asks the system's headers for dladdr */

#include "mesh/module.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#ifdef DMUON_CUDA_LINKED
/* The static library has it: whoever links this file gets it too. */
static const dmuon_module *linked(void) {
  return &dmuon_cuda_module;
}
#else
/* There when a program is linked with the backend's objects. */
extern const dmuon_module dmuon_cuda_module __attribute__((weak));
static const dmuon_module *linked(void) {
  return &dmuon_cuda_module;
}
#endif

int dmuon_module_is_built(const char *name) {
#ifdef HAVE_CUDA
  return strcmp(name, "cuda") == 0;
#else
  (void)name;
  return 0;
#endif
}

/* Something of this library, and no function: C has no common pointer to both. */
static const char here[] = "libdmuon";

/* The directory that this library was loaded from, with its last '/'; "" where nobody knows. */
static void own_directory(char *directory, size_t room) {
  Dl_info info;
  directory[0] = '\0';
  if (!dladdr(here, &info) || !info.dli_fname) return;
  const char *slash = strrchr(info.dli_fname, '/');
  size_t length = slash ? (size_t)(slash - info.dli_fname) + 1 : 0;
  if (length < room) {
    memcpy(directory, info.dli_fname, length);
    directory[length] = '\0';
  }
}

enum { FILE_ROOM = 3200 };

/* The places to look in, the first that has the file wins: beside this library, as installed and as
 * built; where it was to be installed. */
static int find_file(const char *name, const char *path, char file[FILE_ROOM], dmuon_text *looked) {
  char own[3000], places[3][FILE_ROOM];
  int count = 0;
  if (path) {
    snprintf(places[count++], sizeof *places, "%.3000s/libdmuon_%.100s.so", path, name);
  } else {
    own_directory(own, sizeof own);
    if (own[0]) {
      snprintf(places[count++], sizeof *places, "%slibdmuon/libdmuon_%.100s.so", own, name);
      snprintf(places[count++], sizeof *places, "%slibdmuon_%.100s.so", own, name);
    }
    snprintf(places[count++], sizeof *places, "%.3000s/libdmuon_%.100s.so", DMUON_MODULE_DIRECTORY,
             name);
  }
  for (int i = 0; i < count; i++) {
    if (access(places[i], F_OK) == 0) {
      memcpy(file, places[i], sizeof *places);
      return 1;
    }
    dmuon_text_add(looked, "%s%s", i ? ", " : "", places[i]);
  }
  return 0;
}

static DMuonErrorCode check(const dmuon_module *module, const char *name, const char *where) {
  if (module->abi != DMUON_MODULE_ABI || strcmp(module->build, DMUON_MODULE_BUILD))
    DMUON_FAIL(DMUON_ERR_UNSUPPORTED,
               "backend %s: %s is of another build (\"%s\", interface %d) than this library "
               "(\"%s\", interface %d); install them together",
               name, where, module->build, module->abi, DMUON_MODULE_BUILD, DMUON_MODULE_ABI);
  if (module->library != dmuon_error_set)
    DMUON_FAIL(
        DMUON_ERR_UNSUPPORTED,
        "backend %s: %s uses a libdmuon.so, but this program has a libdmuon of its own linked "
        "in; link the program with libdmuon.so, or build with --disable-shared, where the "
        "backend is part of libdmuon.a",
        name, where);
  return DMUON_SUCCESS;
}

static DMuonErrorCode open_file(const char *name, const char *file, const dmuon_module **module) {
  char symbol[140];
  void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char *why = dlerror();
    DMUON_FAIL(DMUON_ERR_UNSUPPORTED, "backend %s: its module cannot be loaded: %s", name,
               why ? why : file);
  }
  snprintf(symbol, sizeof symbol, "dmuon_%.100s_module", name);
  const dmuon_module *found = dlsym(handle, symbol);
  if (!found)
    DMUON_FAIL(DMUON_ERR_UNSUPPORTED, "backend %s: %s is not its module: it has no %s", name, file,
               symbol);
  DMUON_TRY(check(found, name, file));
  *module = found;
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_module_find(dmuon_context *context, const char *name, const char *path,
                                 const dmuon_module **module) {
  if (strcmp(name, "cuda") == 0 && linked()) {
    DMUON_TRY(check(linked(), name, "what was linked in"));
    *module = linked();
    return DMUON_SUCCESS;
  }
  if (!dmuon_module_is_built(name))
    DMUON_FAIL(DMUON_ERR_UNSUPPORTED,
               "backend %s is not compiled in (configured without CUDA); this library has host and "
               "trace",
               name);
  if (!path || !*path) path = dmuon_environment("DMUON_MODULE_PATH");
  char file[FILE_ROOM];
  dmuon_text looked;
  const char *places = "";
  dmuon_text_init(&looked, &context->memory);
  int found = find_file(name, path, file, &looked);
  DMuonErrorCode code = dmuon_text_finish(&looked, &places);
  if (!code)
    code = found ? open_file(name, file, module)
                 : DMUON_ERROR(DMUON_ERR_UNSUPPORTED,
                               "backend %s: its module is not installed: there is no %s; "
                               "DMUON_MODULE_PATH names its directory",
                               name, places);
  dmuon_text_free(&looked);
  DMUON_TRY(code);
  return DMUON_SUCCESS;
}
