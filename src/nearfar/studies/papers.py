"""``nearfar reproduce``: the tables and figures of the papers, each a study whose file is part of the package."""

import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from nearfar.config.calls import accepts_settings
from nearfar.config.verbs import SCALES, START, ReproduceConfig, Scale
from nearfar.data.named_sets import CATALOG, FINETUNING_TASKS, MIXTURES, PROBE_TASKS
from nearfar.disk import write_text
from nearfar.disk.checks import path_errors
from nearfar.disk.folders import new_folder
from nearfar.studies import DryRun, command_line, dry_run, study
from nearfar.studies.cells import load_study, plan_cells
from nearfar.studies.spec import Study
from nearfar.types import NearfarError
from nearfar.validation import unknown_name_message

if TYPE_CHECKING:
    from rich.console import Console

    from nearfar.evaluation.results import StudyTable

FOLDER = Path(__file__).parent / "tables"
PAPERS = {
    "liao": "Liao 2021, Sentence Embeddings using Supervised Contrastive Learning",
    "simcse-review": "A review of Gao et al. 2021, SimCSE",
    "gunel": "Gunel et al. 2021, Supervised Contrastive Learning for Pre-trained Language Model Fine-tuning",
    "kim": "Kim et al. 2021, Self-Guided Contrastive Learning for BERT Sentence Representations",
}
"""First words of a table's name -> the paper."""
INPUTS, ENCODER = "inputs", "encoder"
"""Folder in OUTPUT with the generated inputs of the scale ``tiny``, and in it that of the encoder."""
NO_DATA = "NEARFAR_DATA"
"""Stands for the data folder in paths if there is none; the message about the missing file then names it."""


def table_names(paper: str | None = None) -> list[str]:
    """The names of all tables and figures, or of those of one paper, by paper and then by number.

    >>> table_names("liao")[:2]
    ['liao-table-2', 'liao-table-3']
    """

    def in_order(name: str) -> str:
        return re.sub(r"\d+", lambda number: number[0].zfill(3), name)

    names = sorted((file.stem for file in FOLDER.glob("*.toml")), key=in_order)
    return [name for key in PAPERS if paper in (None, key) for name in names if name.startswith(f"{key}-")]


def table_file(name: str) -> Path:
    """The study file of a table.

    Raises:
        NearfarError: no table of this name; the message has the nearest one, or all.
    """
    names = table_names()
    if name not in names:
        raise NearfarError(f"{unknown_name_message(name, names, what='table')} nearfar reproduce lists all.")
    return FOLDER / f"{name}.toml"


@accepts_settings(ReproduceConfig)
@path_errors()
def reproduce(
    names: str | Sequence[str], config: ReproduceConfig, *, console: "Console | None" = None
) -> "dict[str, StudyTable]":
    """Run tables or figures of the papers, and write each to ``OUTPUT/NAME``.

    ::

        reproduce("liao-table-2", output="tables", scale="here", workers=2)
        reproduce(["kim-table-1", "kim-table-5"], output="tables", start="models/mine")

    The cells that tables share are run once. A call after an interruption, on the same folder, goes on.

    Args:
        names: names of tables, as ``nearfar reproduce`` lists them.
        config: the settings; see :class:`nearfar.ReproduceConfig`.
        console: shows progress; by default nothing is shown.

    Returns:
        Name -> the table, in the order of ``names``.

    Raises:
        NearfarError: an unknown name, and as :func:`nearfar.study`. Of several tables, all are run before the error of
            the first one that failed is raised.
        KeyboardInterrupt: after Ctrl-C; what is finished is kept.
    """
    chosen = _check(names, config)
    tables: dict[str, StudyTable] = {}
    failed: NearfarError | None = None
    for name in chosen:
        inputs = Path(config.output) / INPUTS
        loaded = load_table(name, config, inputs=write_inputs(inputs) if config.scale == "tiny" else inputs)
        if console is not None and len(chosen) > 1:
            console.print(f"{name}: {loaded.title}", markup=False, highlight=False)
        command = command_line("reproduce", name, config)
        try:
            tables[name] = study(loaded, _study_config(name, config), console=console, command=command)
        except NearfarError as error:
            failed = failed or NearfarError(f"{name}: {error}")
    if failed is not None:
        raise failed
    return tables


@accepts_settings(ReproduceConfig)
@path_errors()
def plan(names: str | Sequence[str], config: ReproduceConfig) -> dict[str, DryRun]:
    """What :func:`reproduce` would do: cells, missing data and how to get them. Nothing is written.

    Raises:
        NearfarError: an unknown name, and as :func:`nearfar.study` before its first job.
    """
    chosen, inputs = _check(names, config), Path(config.output) / INPUTS
    with tempfile.TemporaryDirectory() as temporary:
        if config.scale == "tiny" and not inputs.is_dir():
            inputs = write_inputs(Path(temporary) / INPUTS)
        return {name: dry_run(load_table(name, config, inputs=inputs), _study_config(name, config)) for name in chosen}


def load_table(name: str, config: ReproduceConfig, *, inputs: Path) -> Study:
    """The study of a table at the scale of ``config``; ``inputs`` is the folder of the generated inputs.

    Raises:
        NearfarError: an unknown name.
    """
    start = config.start or (str(inputs / ENCODER) if config.scale == "tiny" else START)
    data = os.environ.get("NEARFAR_DATA") or NO_DATA
    return load_study(table_file(name), config.scale, placeholders={"start": start, "tiny": str(inputs), "data": data})


def _study_config(name: str, config: ReproduceConfig) -> ReproduceConfig:
    """The settings of the study of one table: its own folder, and the folder of cells that all tables share."""
    output = Path(config.output)
    return replace(config, output=str(output / name), cells=config.cells or str(output / "cells"))


def _check(names: str | Sequence[str], config: ReproduceConfig) -> list[str]:
    chosen = [names] if isinstance(names, str) else list(dict.fromkeys(names))
    if not chosen:
        raise NearfarError("no table given; nearfar reproduce lists all.")
    for name in chosen:
        table_file(name)
    if config.only and len(chosen) > 1:
        raise NearfarError("--only names rows of one table; give one table.")
    if config.start is not None and config.scale == "paper":
        raise NearfarError("--start is for the scales here and tiny; the scale paper has the paper's models.")
    return chosen


class ListedTable(NamedTuple):
    """A table or figure of a paper."""

    name: str
    title: str
    cells: dict[Scale, int]
    """Scale -> number of cells."""
    data: list[str]
    """Data sets that the scale ``here`` reads, without splits."""
    missing: tuple[str, ...]
    """Data and models of the scale ``here`` that are missing, with how to get them."""


def list_tables(config: ReproduceConfig) -> dict[str, list[ListedTable]]:
    """Paper -> its tables and figures. Nothing is run or written."""
    return {paper: [_list_table(name, config) for name in table_names(paper)] for paper in PAPERS}


def _list_table(name: str, config: ReproduceConfig) -> ListedTable:
    inputs = Path(config.output) / INPUTS
    studies = {scale: load_table(name, replace(config, scale=scale), inputs=inputs) for scale in SCALES}
    planned = dry_run(studies["here"], _study_config(name, replace(config, scale="here")))
    named = {one.spec.partition(":")[0] for cell in planned.cells for one in cell.sources}
    sets = sorted(named & {*CATALOG, *MIXTURES, *PROBE_TASKS, *FINETUNING_TASKS})
    cells = {scale: len(plan_cells(study)) for scale, study in studies.items()}
    return ListedTable(name, planned.study.title, cells, sets, planned.missing)


def write_inputs(folder: Path) -> Path:
    """Write the inputs to ``folder`` unless it exists, and return it. The same files are written every time.

    ``encoder`` is a BERT of width 32 with two layers and random weights, whose words are those of the generated
    corpus ``microworld``; ``glove.txt`` has a random vector for each word; ``pairs.tsv`` has scored
    pairs, ``sentences.txt`` and ``others.txt`` one sentence per line.

    Raises:
        NearfarError: the folder cannot be written.
    """
    if folder.is_dir():
        return folder
    from nearfar.data.catalog import find
    from nearfar.data.rows import load_pairs, load_sentences

    with new_folder(folder) as part:
        sentences = [text for (text,) in load_sentences("microworld-text").rows]
        pairs = load_pairs("microworld:dev+test")
        labelled = [str(text) for _, (text,) in find("microworld", "labelled")[0].rows(("text",))]
        texts = [*sentences, *(text for pair in pairs for text in pair[:2]), *labelled]
        words = _write_encoder(part / ENCODER, [*texts, *(text for (text,) in load_sentences("microworld").rows)])
        draw = Random(0)
        vectors = (" ".join(f"{draw.gauss(0, 1):.4f}" for _ in range(16)) for _ in words)
        files = {
            "glove.txt": (f"{word} {vector}" for word, vector in zip(words, vectors, strict=True)),
            "pairs.tsv": (
                "score\tsentence1\tsentence2",
                *(f"{pair.score:.3f}\t{pair.first}\t{pair.second}" for pair in pairs[:60]),
            ),
            "sentences.txt": sentences[:64],
            "others.txt": sentences[64:128],
        }
        for name, lines in files.items():
            write_text(part / name, "".join(f"{line}\n" for line in lines))
    return folder


def _write_encoder(folder: Path, texts: list[str]) -> list[str]:
    """Write the encoder and its tokenizer; returns the words of its vocabulary."""
    import torch
    import transformers
    from tokenizers.pre_tokenizers import BertPreTokenizer

    from nearfar.encoder.pretrained import quiet

    split = BertPreTokenizer()
    words = sorted({word for text in texts for word, _ in split.pre_tokenize_str(text.lower())})
    vocabulary = {word: index for index, word in enumerate(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words))}
    transformers.BertTokenizer(vocab=vocabulary, model_max_length=512).save_pretrained(folder)
    sizes: Any = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
    # with weights of the usual size, all embeddings would be nearly equal
    config = transformers.BertConfig(vocab_size=len(vocabulary), initializer_range=0.16, **sizes)
    with torch.random.fork_rng(devices=[]), quiet():
        torch.manual_seed(0)
        transformers.BertModel(config).save_pretrained(folder)
    return words
