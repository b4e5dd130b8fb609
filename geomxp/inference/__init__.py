"""From observations to parameters, and back to answers."""
