/* PCI addresses between text and numbers. */
#include "topo/pci.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void dmuon_pci_print(char name[24], dmuon_pci pci) {
  (void)snprintf(name, 24, "%04x:%02x:%02x.%01x", (unsigned)pci.domain, pci.bus, pci.device,
                 pci.function);
}

int dmuon_pci_parse(const char *name, dmuon_pci *pci) {
  static const unsigned long most[4] = {0xffffffff, 0xff, 0xff, 0xf};
  unsigned long part[4];
  char *end = NULL, again[24];
  const char *at = name;
  for (int i = 0; i < 4; i++, at = end + 1) {
    part[i] = strtoul(at, &end, 16);
    if (end == at || part[i] > most[i] || *end != ("::."[i])) return 0;
  }
  *pci = (dmuon_pci){(uint32_t)part[0], (uint8_t)part[1], (uint8_t)part[2], (uint8_t)part[3]};
  dmuon_pci_print(again, *pci);
  return strcmp(again, name) == 0;
}

uint64_t dmuon_pci_key(dmuon_pci pci) {
  return (uint64_t)pci.domain << 32 | (uint64_t)pci.bus << 16 | (uint64_t)pci.device << 8 |
         pci.function;
}
