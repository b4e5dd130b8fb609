import numpy as np
import pandas as pd
import pytest

import geomxp as gx
from geomxp.data.tables import decode, encode

FRAME = pd.DataFrame(
    {
        "x": [0.0, 1.0, 2.0, 3.0],
        "y": [0.0, 1.0, 0.0, 1.0],
        "z": [1.0, 2.0, 4.0, 3.0],
        "rock": ["sand", "clay", " sand ", "lime"],
        "soil": ["1", "2", "2a", "1"],
        "depth": ["1.5", "2", "3", "4"],
    }
)
PLACES = {"locations": ("x", "y"), "values": "z"}


def test_text_is_kept_as_codes_and_numbers_as_numbers():
    codes, levels = encode(FRAME, ("rock", "depth"))
    assert levels == {"rock": ("clay", "lime", "sand")}
    assert codes.tolist() == [[2.0, 1.5], [0.0, 2.0], [2.0, 3.0], [1.0, 4.0]]
    assert decode(codes[:, 0], levels["rock"]).tolist() == ["sand", "clay", "sand", "lime"]


def test_a_column_of_numbers_with_a_slip_stays_an_error():
    with pytest.raises(gx.InvalidInput, match="row 3, column 'soil': '2a' is not a number"):
        gx.Observations.from_frame(FRAME, covariates=("soil",), **PLACES)


def test_a_column_that_stands_in_c_only_may_hold_any_word():
    seen = gx.Observations.from_frame(FRAME, formula="C(soil) + depth", **PLACES)
    assert seen.covariate_names == ("soil", "depth")
    assert seen.levels == {"soil": ("1", "2", "2a")}


def test_missing_text_is_dropped_or_an_error():
    gap = FRAME.assign(rock=["sand", "", "clay", "lime"])
    with pytest.raises(gx.InvalidInput, match="Got nan in row 2, column 'rock'"):
        gx.Observations.from_frame(gap, formula="rock", **PLACES)
    kept = gx.Observations.from_frame(gap, formula="rock", drop_missing=True, **PLACES)
    assert kept.covariate_frame()["rock"].tolist() == ["sand", "clay", "lime"]


def test_a_table_a_frame_and_arrays_are_the_same_observations(tmp_path):
    FRAME.to_csv(tmp_path / "rocks.csv", index=False)
    read = gx.read_table(tmp_path / "rocks.csv", formula="rock + depth", **PLACES)
    framed = gx.Observations.from_frame(FRAME, covariates=("rock", "depth"), **PLACES)
    arrays = gx.Observations(FRAME[["x", "y"]], FRAME["z"], FRAME[["rock", "depth"]])
    assert read.digest() == framed.digest() == arrays.digest()
    renamed = gx.Observations(
        FRAME[["x", "y"]], FRAME["z"], FRAME[["rock", "depth"]].replace("sand", "silt")
    )
    assert renamed.digest() != arrays.digest()


def test_a_subset_keeps_its_levels():
    seen = gx.Observations.from_frame(FRAME, formula="rock", **PLACES)
    part = seen.subset([1, 2, 3])
    assert part.levels == seen.levels
    assert part.covariate_frame()["rock"].tolist() == ["clay", "sand", "lime"]


@pytest.mark.parametrize(
    ("levels", "words"),
    [
        ({"rock": ("a", "b")}, "'rock', which is not a covariate"),
        ({"code": ("a", "b")}, "codes of 2 levels, 0 to 1. Got 2 in row 3"),
    ],
)
def test_wrong_levels_are_named(levels, words):
    with pytest.raises(gx.InvalidInput, match=words):
        gx.Observations(
            np.eye(3), [1.0, 2.0, 4.0], [[0], [1], [2]], covariate_names=("code",), levels=levels
        )
