"""Methods that evaluate the Gaussian likelihood, and the trend."""
