/* PCI addresses as text: "0000:34:00.0", domain, bus, device and function in hexadecimal. Pure. */
#ifndef DMUON_TOPO_PCI_H
#define DMUON_TOPO_PCI_H

#include <stdint.h>

typedef struct {
  uint32_t domain;
  uint8_t bus, device, function;
} dmuon_pci;

/* 1: name is an address, written the usual way (printing it gives name again). */
int dmuon_pci_parse(const char *name, dmuon_pci *pci);
void dmuon_pci_print(char name[24], dmuon_pci pci);
/* Orders addresses. */
uint64_t dmuon_pci_key(dmuon_pci pci);

#endif
