"""The kinds of rows that ``nearfar train --data`` reads, and the recommended method and settings for each.

What is recommended depends on the start: a plain transformers model (``..._FROM_RAW``), or a sentence-transformers
folder, which was trained on similarity (``..._FROM_SIMILAR``). Each recipe names the page with its results.
:mod:`nearfar.commands.train.choose` finds the kind of a user's rows and start.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from nearfar.data.named_sets import OWN, VOCABULARY
from nearfar.methods.kim import SgOpt1Config
from nearfar.methods.regression import RegressionConfig

PAIR_COLUMNS = (
    ("anchor", "positive"),
    ("query", "positive"),
    ("query", "document"),
    ("question", "answer"),
    ("sent0", "sent1"),
)
"""Names of the columns of pairs."""
NEGATIVE_COLUMNS = ("negative", "hard_neg")
"""Names of the column of hard negatives, which makes triplets of pairs."""


class RowKind(NamedTuple):
    """A kind of rows, and the method that is recommended for it."""

    name: str
    columns: tuple[str, ...]
    """Names of its columns, of pairs the first ones."""
    settings: tuple[str, ...]
    """The settings that name other columns."""
    method: str
    why: str
    values: Mapping[str, Any] = {}
    """Settings of the method that are not its defaults."""
    with_sentences: Mapping[str, Any] = {}
    """Further ones if the user names sentences (``--sentences``)."""


PAIRS = RowKind(
    "pairs",
    ("anchor", "positive"),
    ("anchor_column", "positive_column", "negative_column"),
    "info-nce",
    "the other rows of a batch are negatives",
)
PAIRS_FROM_RAW = PAIRS._replace(
    why="the other rows of a batch are negatives, and texts of random words train beside them; with the settings of "
    "docs/tables/recipes-pairs-sentences.md, for a start that was not yet trained on similarity",
    values={
        "distinct_texts": True,
        "directions": "both",
        "pooling": "cls",
        "dropout": 0.0,
        "sentences": (VOCABULARY,),
        "second_weight": 0.3,
    },
)
"""Pairs, and a start that is a plain transformers model, such as a masked language model."""
PAIRS_FROM_SIMILAR = PAIRS._replace(
    why="the other rows of a batch are negatives, and the trained weights are averaged with those of the start; with "
    "the settings of docs/tables/recipes-pairs-minilm.md, for a start that was trained on similarity",
    values={"distinct_texts": True, "learning_rate": 4e-4, "start_weight": 0.7},
    with_sentences={"second_weight": 0.3},  # docs/tables/recipes-pairs-sentences-minilm.md
)
"""Pairs, and a start that was trained on similarity: a sentence-transformers folder."""
TRIPLETS_FROM_RAW = PAIRS._replace(
    name="triplets",
    why="the other rows of a batch and all hard negatives are negatives; with the settings of "
    "docs/tables/recipes-triplets.md, for a start that was not yet trained on similarity",
    values={"distinct_texts": True, "pooling": "cls", "dropout": 0.0},
)
"""Triplets, and such a start."""
TRIPLETS_FROM_SIMILAR = PAIRS._replace(
    name="triplets",
    why="the other rows of a batch and all hard negatives are negatives; with the settings of "
    "docs/tables/recipes-triplets-minilm.md, for a start that was trained on similarity",
    values={"distinct_texts": True, "learning_rate": 5e-5},
)
"""Triplets, and a sentence-transformers folder."""
NLI = RowKind(
    "NLI rows",
    ("premise", "hypothesis", "label"),
    ("premise_column", "hypothesis_column", "label_column"),
    "scl",
    "with --hard-negatives contradiction, as in docs/tables/recipes-nli-minilm.md for a start that was trained on "
    "similarity",
    {"hard_negatives": "contradiction", "pooling": "own"},
)
NLI_FROM_RAW = NLI._replace(
    method="nli-order",
    why="entailed hypotheses are positives, and the labels are ranked; with the settings of "
    "docs/tables/recipes-nli.md, for a start that was not yet trained on similarity",
    values={"order_pairs": "batch", "order_weight": 0.1, "dropout": 0.0, "pooling": "cls"},
    with_sentences={"second_weight": 0.3},
)
"""NLI rows, and such a start."""
NLI_FROM_SIMILAR = NLI._replace(
    why="with --hard-negatives contradiction, and the trained weights averaged with those of the start; with the "
    "settings of docs/tables/recipes-nli-minilm.md, for a start that was trained on similarity",
    values={**NLI.values, "learning_rate": 1e-4, "start_weight": 0.5},
)
"""NLI rows, and a sentence-transformers folder."""
LABELLED = RowKind(
    "labelled texts",
    ("text", "label"),
    ("text_column", "label_column"),
    "supcon-text",
    "texts of one label are positives of each other",
)
LABELLED_FROM_RAW = LABELLED._replace(
    why="texts of one label are positives of each other; the texts also train as sentences, which keeps the "
    "similarity of other texts, as an average with the start does at the recipe's learning rate; with the settings of "
    "docs/tables/recipes-labels.md, for a start that was not yet trained on similarity",
    values={
        "temperature": 0.1,
        "epochs": 3,
        "pooling": "cls",
        "sentences": (OWN,),
        "second_weight": 0.1,
        "start_weight": 0.3,
    },
)
"""Labelled texts, and such a start."""
LABELLED_FROM_SIMILAR = LABELLED._replace(
    why="texts of one label are positives of each other; the texts also train as sentences, and trained weights are "
    "averaged with those of the start, which keeps the similarity of other texts; with the settings of "
    "docs/tables/recipes-labels-minilm.md, for a start that was trained on similarity",
    values={
        "temperature": 0.1,
        "epochs": 3,
        "sentences": (OWN,),
        "second_weight": 0.1,
        "learning_rate": 2e-4,
        "start_weight": 0.3,
    },
)
"""Labelled texts, and a sentence-transformers folder."""
SCORED = RowKind(
    "scored pairs",
    ("sentence1", "sentence2", "score"),
    ("first_column", "second_column", "score_column"),
    "regression",
    "cosines are fitted to the scores",
)
SCORED_FROM_RAW = SCORED._replace(
    why="cosines are ranked as the scores, and the texts also train as sentences; with the settings of "
    "docs/tables/recipes-scored.md, for a start that was not yet trained on similarity",
    values={
        "objective": "cosent",
        "dropout": 0.0,
        "batch_size": RegressionConfig.recipe_batch_size,
        "epochs": 4,
        "warmup": 0.1,
        "pooling": "cls",
        "sentences": (OWN,),
        "second_weight": 0.3,
    },
)
"""Scored pairs, and such a start."""
SCORED_FROM_SIMILAR = SCORED._replace(
    why="cosines are ranked as the scores, and the trained weights averaged with those of the start; with the settings "
    "of docs/tables/recipes-scored-minilm.md, for a start that was trained on similarity",
    values={
        "objective": "cosent",
        "batch_size": RegressionConfig.recipe_batch_size,
        "epochs": 4,
        "warmup": 0.1,
        "learning_rate": 5e-5,
        "start_weight": 0.3,
    },
)
"""Scored pairs, and a sentence-transformers folder."""
SENTENCES = RowKind(
    "sentences",
    ("text",),
    ("text_column",),
    "sg-opt1",
    "the best method for sentences alone in docs/tables/methods-from-raw.md, from an encoder that was not yet trained "
    "on similarity; one that was, such as all-MiniLM-L6-v2, often gets worse by it",
)
SENTENCES_FROM_RAW = SENTENCES._replace(
    why="with the settings of docs/tables/recipes-sentences.md, the best that were measured for sentences alone and a "
    "start that was not yet trained on similarity",
    values={"views": "0-0", "dropout": 0.0, "batch_size": SgOpt1Config.recipe_batch_size, "pooling": "cls"},
)
"""Sentences, and such a start."""
SENTENCES_FROM_SIMILAR = SENTENCES._replace(
    why="the token embeddings guide it, and the trained weights are averaged with those of the start; with the "
    "settings of docs/tables/recipes-sentences-minilm.md, for a start that was trained on similarity",
    values={
        "views": "0-0",
        "dropout": 0.0,
        "batch_size": SgOpt1Config.recipe_batch_size,
        "pooling": "own",
        "learning_rate": 1e-4,
        "start_weight": 0.85,
    },
)
"""Sentences, and a sentence-transformers folder."""
FROM_RAW = {
    kind.name: kind
    for kind in (
        PAIRS_FROM_RAW,
        TRIPLETS_FROM_RAW,
        NLI_FROM_RAW,
        LABELLED_FROM_RAW,
        SCORED_FROM_RAW,
        SENTENCES_FROM_RAW,
    )
}
"""Name of the rows -> what is recommended for them and such a start."""
FROM_SIMILAR = {
    kind.name: kind
    for kind in (
        PAIRS_FROM_SIMILAR,
        TRIPLETS_FROM_SIMILAR,
        NLI_FROM_SIMILAR,
        LABELLED_FROM_SIMILAR,
        SCORED_FROM_SIMILAR,
        SENTENCES_FROM_SIMILAR,
    )
}
"""Name of the rows -> what is recommended for them and a sentence-transformers folder."""
RECIPE_LEARNING_RATE, RECIPE_WIDTH = 2e-4, 384
"""The learning rate of all recipes (docs/tables/recipes-*.md) for a plain transformers model, and the hidden size that
recipes were found for. Wider encoders, for which they are not measured, train with the method's default rate;
wider sentence-transformers folders have all defaults."""
KINDS = (PAIRS, NLI, LABELLED, SCORED, SENTENCES)
COLUMN_SETTINGS = tuple(dict.fromkeys(name for kind in KINDS for name in kind.settings))
"""Settings that name columns."""
