# Files under src/kernels/cpu/ that are compiled once per instruction set are listed here.
