"""Where problems come from: the library itself, and files in KernelBench's format."""
