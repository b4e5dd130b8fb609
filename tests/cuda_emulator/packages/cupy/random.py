"""CuPy's random numbers: NumPy's, copied to the device."""

import numpy as np
from cuda_emulator import arrays


class Generator:
    """A generator of random numbers on the current device."""

    def __init__(self, seed=None):
        self._generator = np.random.default_rng(seed)

    def random(self, size=None, dtype=float):
        """Return uniform numbers."""
        return arrays.array(self._generator.random(size, dtype))

    def standard_normal(self, size=None, dtype=float):
        """Return normal numbers."""
        return arrays.array(self._generator.standard_normal(size, dtype))


default_rng = Generator
