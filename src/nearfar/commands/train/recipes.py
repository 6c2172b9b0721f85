"""The kinds of rows, and the measured settings for each of them by start; each names the page with its results."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from nearfar.data.named_sets import OWN, VOCABULARY
from nearfar.methods.kim import SgOpt1Config
from nearfar.methods.regression import RegressionConfig


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


PAIRS = RowKind(
    "pairs",
    ("anchor", "positive"),
    ("anchor_column", "positive_column", "negative_column"),
    "info-nce",
    "the other rows of a batch are negatives",
)


NLI = RowKind(
    "NLI rows",
    ("premise", "hypothesis", "label"),
    ("premise_column", "hypothesis_column", "label_column"),
    "scl",
    "with --hard-negatives contradiction, as in docs/measured/nli.md for a start that was trained on similarity",
    {"hard_negatives": "contradiction", "pooling": "own"},
)


LABELLED = RowKind(
    "labelled texts",
    ("text", "label"),
    ("text_column", "label_column"),
    "supcon-text",
    "texts of one label are positives of each other",
)


SCORED = RowKind(
    "scored pairs",
    ("sentence1", "sentence2", "score"),
    ("first_column", "second_column", "score_column"),
    "regression",
    "cosines are fitted to the scores",
)


SENTENCES = RowKind(
    "sentences",
    ("text",),
    ("text_column",),
    "sg-opt1",
    "the best method for sentences alone in docs/measured/baselines.md, from an encoder that was not yet trained "
    "on similarity; one that was, such as all-MiniLM-L6-v2, often gets worse by it",
)


KINDS = (PAIRS, NLI, LABELLED, SCORED, SENTENCES)


COLUMN_SETTINGS = tuple(dict.fromkeys(name for kind in KINDS for name in kind.settings))
"""Settings that name columns."""


FEW_LABELLED_TEXTS = "few labelled texts"


FEW_LABELLED = 1000
"""Number of labelled rows below which none is held out: they are tested fold by fold (``commands/train/after.py``)."""


FEWEST_ROWS = 4
"""Two texts of two labels, the fewest rows that can be contrasted."""


LABELLED_TEXTS, FEWEST_EPOCHS, MOST_EPOCHS = 8000, 3, 20
"""Number of labelled texts to train on, in more epochs than a recipe has if they are few, but at most 20."""


class Recipe(NamedTuple):
    """The measured settings for a kind of rows and of start."""

    page: str
    """The page with its results, below docs."""
    method: str
    why: str
    values: Mapping[str, Any]
    """Settings of the method that are not its defaults."""
    with_sentences: Mapping[str, Any] = {}
    """Further ones if the user names sentences (``--sentences``)."""


RECIPE_LEARNING_RATE, RECIPE_WIDTH = 2e-4, 384
"""The learning rate of all recipes (docs/measured) for a plain transformers model, and the hidden size that
recipes were found for. Wider encoders, for which they are not measured, train with the method's default rate;
wider sentence-transformers folders have all defaults."""


_PLAIN: dict[str, Any] = {"pooling": "cls", "dropout": 0.0}


_LABELS: dict[str, Any] = {"temperature": 0.1, "epochs": 3, "sentences": (OWN,), "second_weight": 0.1}


_COSENT: dict[str, Any] = {
    "objective": "cosent",
    "batch_size": RegressionConfig.recipe_batch_size,
    "epochs": 4,
    "warmup": 0.1,
}


_GUIDED: dict[str, Any] = {"views": "0-0", "dropout": 0.0, "batch_size": SgOpt1Config.recipe_batch_size}


FROM_RAW = {
    "pairs": Recipe(
        "measured/pairs",
        PAIRS.method,
        "the other rows of a batch are negatives, and texts of random words train beside them",
        {"distinct_texts": True, "directions": "both", **_PLAIN, "sentences": (VOCABULARY,), "second_weight": 0.3},
    ),
    "triplets": Recipe(
        "measured/nli",
        PAIRS.method,
        "the other rows of a batch and all hard negatives are negatives",
        {"distinct_texts": True, **_PLAIN},
    ),
    "NLI rows": Recipe(
        "measured/nli",
        "nli-order",
        "entailed hypotheses are positives, and the labels are ranked",
        {"order_pairs": "batch", "order_weight": 0.1, **_PLAIN},
        with_sentences={"second_weight": 0.3},
    ),
    "labelled texts": Recipe(
        "measured/labels",
        LABELLED.method,
        "texts of one label are positives of each other; the texts also train as sentences, which keeps the "
        "similarity of other texts, as an average with the start does at the recipe's learning rate",
        {**_LABELS, "pooling": "cls", "start_weight": 0.3},
    ),
    "scored pairs": Recipe(
        "measured/labels",
        SCORED.method,
        "cosines are ranked as the scores, and the texts also train as sentences",
        {**_COSENT, **_PLAIN, "sentences": (OWN,), "second_weight": 0.3},
    ),
    "sentences": Recipe(
        "measured/sentences",
        SENTENCES.method,
        "the best that was measured for sentences alone",
        {**_GUIDED, "pooling": "cls"},
    ),
}
"""Name of the rows -> what is recommended for them and a plain transformers model, such as a masked language model."""


FROM_SIMILAR = {
    "pairs": Recipe(
        "measured/pairs",
        PAIRS.method,
        "the other rows of a batch are negatives, and the trained weights are averaged with those of the start",
        {"distinct_texts": True, "learning_rate": 4e-4, "start_weight": 0.7},
        with_sentences={"second_weight": 0.3},  # docs/measured/pairs.md
    ),
    "triplets": Recipe(
        "measured/nli",
        PAIRS.method,
        "the other rows of a batch and all hard negatives are negatives",
        {"distinct_texts": True, "learning_rate": 5e-5},
    ),
    "NLI rows": Recipe(
        "measured/nli",
        NLI.method,
        "with --hard-negatives contradiction, and the trained weights averaged with those of the start",
        {**NLI.values, "learning_rate": 1e-4, "start_weight": 0.5},
    ),
    "labelled texts": Recipe(
        "measured/labels",
        LABELLED.method,
        "texts of one label are positives of each other; the texts also train as sentences, and trained weights are "
        "averaged with those of the start, which keeps the similarity of other texts",
        {**_LABELS, "learning_rate": 2e-4, "start_weight": 0.3},
    ),
    FEW_LABELLED_TEXTS: Recipe(
        "guides/classify",
        LABELLED.method,
        "texts of one label are positives of each other, in many passes over few texts",
        {"temperature": 0.1, "epochs": MOST_EPOCHS, "learning_rate": 1e-4},
    ),
    "scored pairs": Recipe(
        "measured/labels",
        SCORED.method,
        "cosines are ranked as the scores, and the trained weights averaged with those of the start",
        {**_COSENT, "learning_rate": 5e-5, "start_weight": 0.3},
    ),
    "sentences": Recipe(
        "measured/sentences",
        SENTENCES.method,
        "the token embeddings guide it, and the trained weights are averaged with those of the start",
        {**_GUIDED, "pooling": "own", "learning_rate": 1e-4, "start_weight": 0.85},
    ),
}
"""Name of the rows -> what is recommended for them and a sentence-transformers folder."""
