"""The simulated Kryo core: aarch64 code run by qemu, counted block by block, priced by llvm-mca and a cache model."""
