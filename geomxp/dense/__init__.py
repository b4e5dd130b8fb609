"""One array at a time, under LAPACK's names."""
