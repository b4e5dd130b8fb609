"""A CUDA emulator for the tests: GPU code runs, checked, on a machine without a GPU."""
