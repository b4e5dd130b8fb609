"""Every study of this folder, one after another.

    python experiments/responses/run.py [--python PEERS/bin/python] [--tiny] [--output DIR]

Each study is a script that also runs by itself; an interrupted one continues from its rows. PEERS
is an environment with gpboost, without which the speeds and the fits are geomxp's alone.
"""

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
STUDIES = ("speed", "fits", "predictive", "censored", "zilber_katzfuss", "scale", "calibration")
BESIDE_GPBOOST = ("speed", "fits")


def main():
    """Run the studies, the shortest first; the first that fails ends the run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", help="of an environment with gpboost")
    parser.add_argument("--tiny", action="store_true", help="seconds instead of minutes")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    arguments = parser.parse_args()
    shared = ["--output", str(arguments.output), *(["--tiny"] if arguments.tiny else [])]
    for study in STUDIES:
        peers = ["--python", arguments.python] if arguments.python else []
        options = shared + (peers if study in BESIDE_GPBOOST else [])
        print(f"# {study}", flush=True)
        subprocess.run([sys.executable, HERE / f"{study}.py", *options], check=True)


if __name__ == "__main__":
    main()
