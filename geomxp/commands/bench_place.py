"""Where a benchmark runs: on one core, or on one GPU beside NVIDIA's own library."""

from contextlib import contextmanager

from ..dense import blas
from ..execution.devices import blas_threads, resolve
from ..tiles import assemble


class Place:
    """A core or a GPU, with what a benchmark needs there.

    Parameters
    ----------
    on : str
        "cpu", "gpu" or "gpu:N".

    Raises
    ------
    MissingDevice
    InvalidInput
    """

    def __init__(self, on="cpu"):
        self.on, self.device = on, resolve(on)

    @property
    def gpu(self):
        """Whether it is a GPU."""
        return self.device.index is not None

    @property
    def library(self):
        """Whose Cholesky factorization is the baseline."""
        return "cuSOLVER" if self.gpu else "scipy"

    @contextmanager
    def active(self, order=1):
        """Let what is in the block run here: on one core, or on this GPU.

        Parameters
        ----------
        order : int, optional
            Of the matrices: BLAS takes as many cores as suit it.
        """
        if not self.gpu:
            with blas_threads(order):
                yield
            return
        import cupy

        with cupy.cuda.Device(self.device.index):
            yield

    @contextmanager
    def one_core(self):
        """Let what is in the block run on one core, whatever BLAS does; or on this GPU."""
        if self.gpu:
            with self.active():
                yield
            return
        with blas_threads(0), blas.one_core():
            yield

    def put(self, a):
        """Return a NumPy array here, in the same order."""
        if not self.gpu:
            return a
        import cupy

        return cupy.asarray(a, order="A")

    def covariance(self, model, places, out=None):
        """Return Σ as one FP64 array here; on a CPU written over `out`, if there is one."""
        if self.gpu:
            index = self.device.index
            return assemble.covariance_matrix_on_gpu(model, places, "euclidean", index)
        return assemble.covariance_matrix(model, places, "euclidean", out)

    def factor(self, a, overwrite=False):
        """Factor a matrix by the library: LAPACK's dpotrf, or cuSOLVER's; in place if allowed."""
        if not self.gpu:
            from scipy.linalg import lapack

            return lapack.dpotrf(a, lower=1, overwrite_a=overwrite, clean=0)[0]
        from ..dense import views_gpu

        a = a if overwrite else a.copy(order="F")
        views_gpu.factor("L", a)
        return a

    def wait(self):
        """Wait until all that was asked for here is done."""
        if self.gpu:
            import cupy

            cupy.cuda.Device(self.device.index).synchronize()


def batches_by_cupy(a):
    """Return CuPy's factorization of a batch that is on a GPU, as a callable."""
    import cupy

    return lambda: cupy.linalg.cholesky(a)
