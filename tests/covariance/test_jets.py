import mpmath
import numpy as np
import pytest

from geomxp.covariance import jets

FUNCTIONS = {
    "exp": (mpmath.exp, (-30.0, -0.2, 3.0)),
    "log": (mpmath.log, (0.3, 7.0)),
    "log1p": (lambda x: mpmath.log(1 + x), (-0.5, 5.0)),
    "reciprocal": (lambda x: 1 / x, (-0.3, 5.0)),
    "expit": (lambda x: 1 / (1 + mpmath.exp(-x)), (-30.0, -0.2, 3.0)),
    "softplus": (lambda x: mpmath.log(1 + mpmath.exp(x)), (-30.0, -0.2, 3.0)),
    "gammaln": (mpmath.loggamma, (0.3, 7.0, 500.0)),
    "log1mexp": (lambda x: mpmath.log(1 - mpmath.exp(-x)), (0.01, 2.0, 30.0)),
    "log1mexp_of_exp": (
        lambda x: mpmath.log(1 - mpmath.exp(-mpmath.exp(x))),
        (-40.0, -12.0, -11.0, -4.7, -4.5, -0.4, -0.3, 2.0, 3.0),
    ),
    "log_ndtr": (lambda x: mpmath.log(mpmath.ncdf(x)), (-20.0, -0.2, 3.0)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_have_their_derivatives(name):
    exact, points = FUNCTIONS[name]
    for x in points:
        with mpmath.workdps(60):
            known = [float(mpmath.diff(exact, x, k)) for k in range(4)]
        # f(ψη) at ψ = 1: by ψ, f is xf', f' is f' + xf'', f'' is 2f'' + xf'''
        of = [x * known[1], known[1] + x * known[2], 2 * known[2] + x * known[3]]
        sizes = [abs(x * known[1]), abs(known[1]), abs(known[2])]
        found = getattr(jets, name)(jets.variable(np.array([x])) * jets.parameter(1.0))
        # log_ndtr's third derivative at -20 is a difference of numbers 10⁴ times as large
        np.testing.assert_allclose(found.value, known[0], rtol=1e-13)
        np.testing.assert_allclose(found.slopes()[:, 0], known[1:], rtol=1e-8)
        for one, want, size in zip(found.by_parameter()[:, 0], of, sizes, strict=True):
            assert abs(one - want) <= 1e-9 * (size + abs(want))
        assert getattr(jets, name)(x) == pytest.approx(known[0], rel=1e-13)


def test_arithmetic_is_that_of_polynomials():
    eta, rng = np.array([0.7, -1.3]), np.random.default_rng(0)
    a, b = rng.standard_normal((2, 2))
    x, psi = jets.variable(eta), jets.parameter(2.0)
    made = (a - x * psi) * (x * x + b) / (3.0 - 1.0 / (x * psi + 5.0)) - (-x)

    def plain(at, p):
        return (a - at * p) * (at * at + b) / (3.0 - 1.0 / (at * p + 5.0)) + at

    np.testing.assert_allclose(made.value, plain(eta, 2.0), rtol=1e-14)
    h = 1e-3
    steps = np.array([plain(eta + k * h, 2.0) for k in range(-3, 4)])
    first = np.array([-1, 9, -45, 0, 45, -9, 1]) / 60 / h
    second = np.array([2, -27, 270, -490, 270, -27, 2]) / 180 / h**2
    np.testing.assert_allclose(made.slopes()[0], first @ steps, rtol=1e-9)
    np.testing.assert_allclose(made.slopes()[1], second @ steps, rtol=1e-8)
    by = np.array([plain(eta, 2.0 + k * h) for k in range(-3, 4)])
    np.testing.assert_allclose(made.by_parameter()[0], first @ by, rtol=1e-9)


def test_a_choice_takes_jets_and_numbers():
    x = jets.variable(np.array([1.0, 2.0]))
    found = jets.chosen(np.array([True, False]), x * x, 3.0)
    assert found.value.tolist() == [1.0, 3.0]
    assert found.slopes().tolist() == [[2.0, 0.0], [2.0, 0.0], [0.0, 0.0]]


def test_arrays_on_the_left_are_constants():
    x, left = jets.variable(np.array([1.0, 2.0])), np.array([3.0, 4.0])
    for made, want in ((left * x, 3.0), (left + x, 4.0), (left - x, 2.0), (left / x, 3.0)):
        assert isinstance(made, jets.Jet)
        assert made.value[0] == want
