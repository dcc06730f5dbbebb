"""Question sets: one module per data set turns its raw records into the frozen types of `kgrag_gpu.types`."""
