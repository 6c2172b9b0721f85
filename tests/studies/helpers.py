"""A tiny study: two methods, two seeds, an axis of two values, and a baseline without training."""

from pathlib import Path

from tests.tiny import save_tiny, sentences, write_colours, write_nli, write_pairs

STUDY = """
title = "A tiny study"
source = "Nobody 2020, Table 1"
columns = ["pairs.tsv", "other.tsv", "average", "validation"]
replicates = { seed = [1, 2] }
compare = [["scl", "sbert"]]

[train]
model = "{start}"
data = ["nli.tsv"]
evaluate_on = "dev.tsv"
max_steps = 2
batch_size = 8
evaluate_every = 1

[evaluate]
pairs = ["pairs.tsv", "other.tsv"]
resamples = 10

[[axes]]
name = "rate"
setting = "train.learning_rate"
values = [0.001, 0.01]

[[rows]]
id = "untrained"
model = "{start}"
steps = ["evaluate"]
axes = []

[[rows]]
id = "sbert"
train = { method = "sbert" }
paper = [{ rate = 0.001, average = 50.0 }]

[[rows]]
id = "scl"
name = "SCL"
train = { method = "scl", scl_weight = 0.3 }

[scales.tiny]
only_rows = ["untrained", "sbert"]
[[scales.tiny.axes]]
name = "rate"
values = [0.01]
"""


def write_study(folder: Path, text: str = STUDY) -> Path:
    """Write a study and its data and model into a folder."""
    save_tiny(folder / "start")
    write_nli(folder / "nli.tsv", 16)
    for number, name in enumerate(("dev.tsv", "pairs.tsv", "other.tsv")):
        write_pairs(folder / name, 20, seed=number)
    write_colours(folder / "colours.tsv")
    (folder / "texts.txt").write_text("\n".join(sentences(12)) + "\n", encoding="utf-8")
    file = folder / "study.toml"
    file.write_text(text, encoding="utf-8")
    return file
