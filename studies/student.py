"""Makes a student that was not trained, of some layers of a model or without any: the start of studies of distillation.

A script step of nearfar study:

    script = { file = "../student.py", layers = 3 }
    script = { file = "../student.py", static = true }
    script = { file = "../student.py", static = true, dim = 128 }

The student has the teacher's width, or a static one DIM dimensions. It has a vector for each token and no transformer
(nearfar static).
"""

import argparse
from pathlib import Path

import nearfar


def main() -> None:
    """Write the student to OUTPUT/model."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", required=True, help="the teacher")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seed", type=int, help="of no effect: nothing here is random")
    kind = parser.add_mutually_exclusive_group(required=True)
    kind.add_argument("--layers", type=int, help="number of layers to keep, evenly spaced")
    kind.add_argument("--static", action="store_true", help="keep no layer, but the teacher's vector of each token")
    parser.add_argument("--dim", type=int, help="width of a static student, by default the teacher's")
    options = parser.parse_args()
    if options.static:
        nearfar.static(options.model, output=options.output / "model", dim=options.dim, progress=False)
    else:
        nearfar.Encoder.from_pretrained(options.model, keep_layers=str(options.layers)).save_pretrained(
            options.output / "model"
        )


if __name__ == "__main__":
    main()
