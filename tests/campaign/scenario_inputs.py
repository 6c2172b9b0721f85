"""Writes the inputs of all scenarios: tiny models and files of a few rows."""

import json
import shutil
from pathlib import Path

_STUDY = """
title = "Two rows"
columns = ["scored.tsv", "validation"]
replicates = { seed = [1, 2] }
[train]
model = "tiny"
data = ["nli.tsv"]
evaluate_on = "dev.tsv"
max_steps = 4
batch_size = 8
evaluate_every = 2
checkpoint_every = 2
[evaluate]
pairs = ["scored.tsv"]
resamples = 10
[[rows]]
id = "untrained"
model = "tiny"
steps = ["evaluate"]
[[rows]]
id = "scl"
train = { method = "scl" }
"""


def write_inputs(folder: str) -> None:
    """Write the inputs of all scenarios; called in a fork of the server."""
    import pyarrow
    import pyarrow.parquet

    from tests.commands.get_data.downloads import classification, write_folder
    from tests.encoder.tiny_pairs import save_tiny_for_pairs
    from tests.method_configs import write_data
    from tests.tiny import save_tiny, sentences, write_anchors, write_colours
    from tests.tiny_seq2seq import save_tiny_seq2seq

    root = write_data(Path(folder), rows=31)  # tiny, noisy, teacher, dev.tsv, and the files of DATA
    shutil.rmtree(root / "tiny")
    (root / "noisy").rename(root / "tiny")
    save_tiny(root / "other", seed=2, dropout=0.3)
    save_tiny_for_pairs(root / "pairs-model")
    for seed, name in enumerate(("forward", "backward")):
        save_tiny_seq2seq(root / name, seed=seed)
    write_anchors(root / "pairs.tsv", 120)
    write_colours(root / "colours.tsv")
    (root / "study.toml").write_text(_STUDY, encoding="utf-8")
    texts = sentences(60, seed=5, longest=9)
    rows = [{"id": f"id-{number}", "text": text} for number, text in enumerate(texts)]
    (root / "table.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (root / "table.tsv").write_text("id\ttext\n" + "".join("\t".join(row.values()) + "\n" for row in rows))
    table = pyarrow.Table.from_pylist(rows)
    pyarrow.parquet.write_table(table, root / "table.parquet", row_group_size=17)
    (root / "parts").mkdir()
    for number, start in enumerate((0, 40)):
        pyarrow.parquet.write_table(table.slice(start, 40), root / "parts" / f"{number}.parquet", row_group_size=17)
    write_folder(root / "download", classification(rows=6))
