# src/topo: nothing to build yet.
