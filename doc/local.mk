# What is installed beside the library to be read.
dist_doc_DATA += README.md INSTALL.md CHANGES.md COPYING doc/design.md
