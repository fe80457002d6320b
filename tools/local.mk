# tools: nothing to build yet.
