# src/comm: nothing to build yet.
