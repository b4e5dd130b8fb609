#!/usr/bin/env bash
# scikit-learn 1.9.1: predictions by a Matérn kernel with nu >= 19.1 at the training points.
# Expected: nearly the training values, as for nu = 19 and for points a little apart.
# What happens: nan, without an error, only with NumPy's warning "invalid value encountered in multiply". k(X) has a diagonal
# of 1, but k(X, Y) replaces a distance of 0 by the machine epsilon and multiplies eps^nu by K_nu(eps), which
# overflows.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet scikit-learn==1.9.1
"$folder/env/bin/python" - <<'PYTHON'
import sys

import numpy as np, sklearn
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Matern

print("scikit-learn", sklearn.__version__)
x, y = np.array([[0.0], [1.0], [2.0]]), np.array([1.0, 2.0, 3.0])
found = {}
for nu in (19.0, 21.0):
    model = GaussianProcessRegressor(Matern(1.0, nu=nu), optimizer=None, alpha=1e-6).fit(x, y)
    found[nu] = model.predict(x), model.predict(x + 0.1)
    print(f"nu = {nu:g}: at the training points {found[nu][0]}, 0.1 apart {found[nu][1]}")
seen = np.isnan(found[21.0][0]).all() and np.isfinite([found[21.0][1], *found[19.0]]).all()
sys.exit(0 if seen else 1)
PYTHON
