"""CuPy's bindings of CUDA libraries, over emulated GPUs."""
