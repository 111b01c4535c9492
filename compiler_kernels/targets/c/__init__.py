"""C generator: one readable function per kernel, the same text for every processor (and, through a macro, for CUDA)."""
