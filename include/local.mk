# The public headers.
include_HEADERS += include/dmuon.h

dmuoninclude_HEADERS += \
  include/dmuon/error.h \
  include/dmuon/group.h \
  include/dmuon/mesh.h \
  include/dmuon/model.h \
  include/dmuon/newton_schulz.h \
  include/dmuon/optimizer.h \
  include/dmuon/partition.h \
  include/dmuon/types.h
