# test/schedule: nothing to build yet.
