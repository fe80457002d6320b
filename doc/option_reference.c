/* Prints doc/options.md, the reference of all options, from the tables that the library itself
 * reads options by: "make option-reference" writes the page, a test holds it to the tables. */
#include <math.h>
#include <stdio.h>

#include "mesh/mesh.h"
#include "ns/ns.h"
#include "optim/optimizer.h"
#include "partition/partition.h"

static void print_values(const dmuon_option_spec *spec) {
  switch (spec->type) {
    case DMUON_OPTION_BOOL:
      printf("0, 1");
      return;
    case DMUON_OPTION_STRING:
      printf("text");
      return;
    case DMUON_OPTION_ENUM:
      for (int i = 0; spec->values[i]; i++) printf("%s%s", i ? ", " : "", spec->values[i]);
      return;
    default:
      break;
  }
  const char *kind = spec->type == DMUON_OPTION_INT ? "integer" : "real";
  if (spec->low == 0 && spec->high == 0)
    printf("%s", kind);
  else if (spec->high >= 1e15 || spec->high >= 2147483647.0)
    printf("%s from %g", kind, spec->low);
  else if (spec->high == nextafter(1, 0))
    printf("%s, %g to below 1", kind, spec->low);
  else
    printf("%s, %g to %g", kind, spec->low, spec->high);
}

static void print_table(const char *title, const dmuon_option_table *table) {
  printf("\n## %s\n\n| option | values | default | meaning |\n| --- | --- | --- | --- |\n", title);
  for (int i = 0; i < table->count; i++) {
    const dmuon_option_spec *spec = &table->specs[i];
    printf("| `%s` | ", spec->name);
    print_values(spec);
    printf(" | %s | %s |\n", spec->default_text ? spec->default_text : "", spec->help);
  }
}

int main(void) {
  printf(
      "# Options\n\n"
      "Made from the library's own tables by `make option-reference`; do not edit.\n\n"
      "One name everywhere: `-dmuon_X value` on the command line, `DMUON_X` (upper case) in the\n"
      "environment, a line `X value` in the file that `-dmuon_options_file` or\n"
      "`DMUON_OPTIONS_FILE` names, and `DMuonMeshSetOption(mesh, \"X\", \"value\")`. Of file,\n"
      "environment and command line the later wins, and each wins over what the program set.\n"
      "An option of one optimizer only: `-dmuon_disc.lr`, `DMUON_DISC__LR`, for the optimizer "
      "named\n"
      "disc. `DMuonMeshViewOptions` prints every value in force and where it came from, and names\n"
      "what nobody used. Options are read where the program calls `DMuonMeshSetFromOptions`.\n");
  print_table("Mesh", &dmuon_mesh_option_table);
  print_table("Partition", &dmuon_partition_option_table);
  print_table("Newton-Schulz", &dmuon_ns_option_table);
  print_table("Optimizer", &dmuon_optimizer_option_table);
  return 0;
}
