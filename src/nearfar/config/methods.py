"""What each method adds to a training run: one class a method, whose defaults are its paper's."""

from dataclasses import dataclass
from typing import Literal

from nearfar.config.training import TrainConfig

Cap = int | Literal["all"]


@dataclass(frozen=True, kw_only=True)
class SbertConfig(TrainConfig):
    """sbert: softmax cross-entropy over (u, v, |u - v|) on NLI rows (Reimers & Gurevych 2019, as run by Liao 2021)."""

    data: tuple[str, ...] = ("snli",)
    """NLI rows: snli, mnli, snli+mnli, snli:dev+test, microworld, or files; several are joined."""
    premise_column: str = "premise"
    """Column of the premise, in files."""
    hypothesis_column: str = "hypothesis"
    """Column of the hypothesis, in files."""
    label_column: str = "label"
    """Column of the label, in files: entailment, neutral, contradiction, or 0, 1, 2."""
    pooling: str | None = "mean_without_cls"
    """cls, mean, mean_without_cls (Liao 2021, section 3), max, first_last, layer:K; 'own' for the model's own."""
    order: Literal["premise", "file", "rows"] = "premise"
    """premise: shuffled, all rows of a premise in one batch; file: as they come (the authors' code); rows: shuffled."""
    head_layers: Literal[1, 2] = 2
    """Linear layers of the classifier: 2 in Liao 2021 (3h, 3h/2, 3; none between), 1 in SBERT."""


@dataclass(frozen=True, kw_only=True)
class SclConfig(SbertConfig):
    """scl: (1 - lambda) cross-entropy + lambda premise-anchored supervised contrastive loss (Liao 2021, eq. 2, 3)."""

    scl_weight: float = 0.3
    """Lambda, the weight of the contrastive loss: best on STS 0.3, on transfer tasks 0.1 (Liao 2021, tables 2, 3)."""
    temperature: float = 1.0
    """Divides the similarities (Liao 2021, section 4.4); with cosine, 0.05 is usual."""
    similarity: Literal["dot", "cosine"] = "dot"
    """dot, as the authors' code has it, or cosine."""
    hard_negatives: Literal["all", "contradiction", "none"] = "all"
    """Negatives of an anchor's own premise: all that it does not entail (the paper), contradicted ones, or none."""
    false_negative_margin: float | None = None
    """Leave out negatives more similar to the anchor than its nearest positive by more than this; by default none."""
    max_positives: Cap = "all"
    """Entailed hypotheses of an anchor's premise to use, or all."""
    max_negatives: Cap = "all"
    """Other hypotheses of the batch to use, or all."""


@dataclass(frozen=True, kw_only=True)
class AugmentConfig(SbertConfig):
    """augment: scl's pairs as extra labelled rows for cross-entropy alone (the 3p3n and allpalln rows of Liao 2021)."""

    max_positives: Cap = 3
    """Entailed hypotheses of an anchor's premise to use, or all (allpalln)."""
    max_negatives: Cap = 3
    """Other hypotheses of the batch to use, or all (allpalln)."""


@dataclass(frozen=True, kw_only=True)
class SimcseConfig(TrainConfig):
    """What both methods of Gao et al. 2021 have."""

    data: tuple[str, ...] = ()
    """What is read."""
    pooling: str | None = "cls"
    """cls, mean, mean_without_cls, max, first_last, layer:K or layer:K:max; 'own' for the model's own."""
    mlp: Literal["train_only", "kept", "none"] = "train_only"
    """A tanh layer on the embedding: in training only (best in Gao et al. 2021), also after, or not at all."""
    temperature: float = 0.05
    """Divides the cosines (Gao et al. 2021, table D.1)."""
    false_negative_margin: float | None = None
    """Leave out negatives more similar to the anchor than its positive by more than this; by default none."""
    mlm_weight: float = 0.0
    """Weight of a masked-language-model loss on the same sentences; 0.1 in the paper's ablation."""
    mlm_probability: float = 0.15
    """Share of the tokens that it masks."""
    learning_rate: float = 3e-5
    """Peak of the learning rate (BERT-base; Gao et al. 2021, appendix A)."""
    warmup: float = 0.0
    """Share of the steps over which the learning rate rises."""
    train_max_length: int | None = 32
    """Tokens kept of a sentence in training only (the authors' script)."""
    evaluate_every: int = 250
    """Steps between evaluations (the paper; its script has 125); the last step is always evaluated."""


@dataclass(frozen=True, kw_only=True)
class SimcseUnsupConfig(SimcseConfig):
    """simcse-unsup: a sentence's positive is itself under other dropout, the batch its negatives (Gao et al. 2021)."""

    data: tuple[str, ...] = ("wiki1m",)
    """Sentences: text files with one a line, tables, or wiki1m, wiki, sentences, stsb-text, microworld."""
    text_column: str = "text"
    """Column of the sentences, in tables."""


@dataclass(frozen=True, kw_only=True)
class SimcseSupConfig(SimcseConfig):
    """simcse-sup: entailment pulled near, its contradiction a hard negative for the whole batch (Gao et al. 2021)."""

    data: tuple[str, ...] = ("snli+mnli",)
    """NLI rows, to build triplets of, or files of triplets (anchor, positive, negative or sent0, sent1, hard_neg)."""
    mlp: Literal["train_only", "kept", "none"] = "kept"
    """A tanh layer on the embedding: also after training, in training only, or not at all."""
    hard_negative_weight: float = 0.0
    """Added to the logit of each anchor's own hard negative: log alpha (Gao et al. 2021, equation 8)."""
    batch_size: int = 512
    """Rows in a batch, of each process where there are several; the default shrinks to the rows there are."""
    epochs: int = 3
    """Passes over the rows."""
    learning_rate: float = 5e-5
    """Peak of the learning rate (BERT-base; Gao et al. 2021, appendix A)."""


@dataclass(frozen=True, kw_only=True)
class InfoNceConfig(TrainConfig):
    """info-nce: pairs or triplets of your own, with the rest of the batch as negatives."""

    data: tuple[str, ...] = ()
    """Files with the columns below, or flickr8k (captions of one photo), microworld."""
    anchor_column: str = "anchor"
    """Column of the anchors."""
    positive_column: str = "positive"
    """Column of what each is pulled towards."""
    negative_column: str | None = None
    """Column of what each is pushed away from, a hard negative for the whole batch; by default there is none."""
    temperature: float = 0.05
    """Divides the similarities."""
    similarity: Literal["cosine", "dot"] = "cosine"
    """cosine, or dot."""
    hard_negative_weight: float = 0.0
    """Added to the logit of each anchor's own hard negative."""
    false_negative_margin: float | None = None
    """Leave out negatives more similar to the anchor than its positive by more than this; by default none."""


@dataclass(frozen=True, kw_only=True)
class GuidedConfig(TrainConfig):
    """What every method has that a frozen copy of the encoder guides (Kim et al. 2021)."""

    data: tuple[str, ...] = ()
    """What is read."""
    pooling: str | None = "cls"
    """cls, mean, mean_without_cls, max, first_last, layer:K or layer:K:max; 'own' for the model's own."""
    views: str = "all"
    """Layers of the frozen copy that guide: all, or first-last such as 6-12, 0 being the embedding layer."""
    view_pooling: Literal["max", "mean"] = "max"
    """How a layer becomes a vector: max over tokens (Kim et al. 2021, section 3), or mean (the authors' code)."""
    guide_dropout: bool = False
    """Leave the frozen copy's dropout on, as the authors' code does."""
    keep_views: bool = False
    """Compute the frozen copy's views once and reuse them in later epochs; costs memory."""
    freeze_embeddings: bool = True
    """Keep the embedding layer of the trained copy (Kim et al. 2021, section 3); --no-freeze-embeddings trains it."""
    temperature: float = 0.01
    """Divides the cosines (Kim et al. 2021, appendix)."""
    drift_weight: float = 0.1
    """Lambda: weight of the squared distance between the weights of the two copies."""
    projection: int = 4096
    """Width of the projection head, which is dropped after training."""
    false_negative_margin: float | None = None
    """Leave out negatives more similar to the anchor than its positive by more than this; by default none."""
    batch_size: int = 16
    """Rows in a batch, of each process where there are several; the default shrinks to the rows there are."""
    learning_rate: float = 5e-5
    """Peak of the learning rate."""
    beta2: float = 0.9
    """AdamW's second beta; the first is 0.9 (Kim et al. 2021, appendix)."""
    train_max_length: int | None = 128
    """Tokens kept of a sentence in training only."""
    evaluate_every: int = 50
    """Steps between evaluations; the last step is always evaluated."""
    patience: int | None = 10
    """Stop after so many evaluations in a row without a new best."""


@dataclass(frozen=True, kw_only=True)
class SgConfig(GuidedConfig):
    """sg: [CLS] is pulled towards a frozen copy's layers, one drawn a sentence, by NT-Xent (Kim et al. 2021)."""

    data: tuple[str, ...] = ("stsb-text",)
    """Sentences: text files with one a line, tables, or stsb-text (the paper's), wiki1m, wiki, microworld."""
    text_column: str = "text"
    """Column of the sentences, in tables."""


@dataclass(frozen=True, kw_only=True)
class SgOpt1Config(SgConfig):
    """sg-opt1: sg with [CLS] vectors as the only anchors (Kim et al. 2021, first refinement)."""


@dataclass(frozen=True, kw_only=True)
class SgOpt2Config(SgConfig):
    """sg-opt2: sg-opt1 without [CLS] vectors as each other's negatives (Kim et al. 2021, second refinement)."""


@dataclass(frozen=True, kw_only=True)
class SgOptConfig(SgConfig):
    """sg-opt: sg-opt2 with every layer of the frozen copy as a positive, none drawn (Kim et al. 2021, SG-OPT)."""


@dataclass(frozen=True, kw_only=True)
class BtConfig(TrainConfig):
    """bt: NT-Xent between a sentence and its back-translation (a baseline of Kim et al. 2021)."""

    data: tuple[str, ...] = ()
    """Files with a sentence and its back-translation, as nearfar back-translate makes them; or flickr8k, microworld."""
    sentence_column: str = "sentence"
    """Column of the sentences."""
    translation_column: str = "translation"
    """Column of their back-translations."""
    pooling: str | None = "cls"
    """cls, mean, mean_without_cls, max, first_last, layer:K or layer:K:max; 'own' for the model's own."""
    freeze_embeddings: bool = True
    """Keep the embedding layer as it is; --no-freeze-embeddings trains it."""
    temperature: float = 0.01
    """Divides the cosines."""
    drift_weight: float = 0.1
    """Lambda: weight of the squared distance to the weights that the run starts from."""
    projection: int = 4096
    """Width of the projection head, which is dropped after training."""
    false_negative_margin: float | None = None
    """Leave out negatives more similar to the anchor than its positive by more than this; by default none."""
    batch_size: int = 16
    """Rows in a batch, of each process where there are several; the default shrinks to the rows there are."""
    learning_rate: float = 5e-5
    """Peak of the learning rate."""
    beta2: float = 0.9
    """AdamW's second beta; the first is 0.9."""
    train_max_length: int | None = 128
    """Tokens kept of a sentence in training only."""
    evaluate_every: int = 50
    """Steps between evaluations; the last step is always evaluated."""
    patience: int | None = 10
    """Stop after so many evaluations in a row without a new best."""


@dataclass(frozen=True, kw_only=True)
class BtSgOptConfig(GuidedConfig):
    """bt+sg-opt: SG-OPT with the sentence in the trained copy, its back-translation in the frozen (Kim et al. 2021)."""

    data: tuple[str, ...] = ()
    """Files with a sentence and its back-translation, as nearfar back-translate makes them; or flickr8k, microworld."""
    sentence_column: str = "sentence"
    """Column of the sentences."""
    translation_column: str = "translation"
    """Column of their back-translations."""


@dataclass(frozen=True, kw_only=True)
class SupconTextConfig(TrainConfig):
    """supcon-text: texts of one label are near, others far (the loss of Gunel et al. 2021, for sentence encoders)."""

    data: tuple[str, ...] = ()
    """Labelled texts: files with the columns below, or trec, sst2, sst5, mr, cr, subj, mpqa."""
    text_column: str = "text"
    """Column of the texts."""
    label_column: str = "label"
    """Column of the labels."""
    temperature: float = 0.3
    """Divides the cosines (best almost everywhere in Gunel et al. 2021)."""


@dataclass(frozen=True, kw_only=True)
class RegressionConfig(TrainConfig):
    """regression: the cosine of two texts, or a head on both, is fitted to a score."""

    data: tuple[str, ...] = ("stsb:train",)
    """Scored pairs: stsb:train, sickr:train, or files with the columns below."""
    first_column: str = "sentence1"
    """Column of the first texts."""
    second_column: str = "sentence2"
    """Column of the second texts."""
    score_column: str = "score"
    """Column of the scores."""
    head: Literal["cosine", "linear"] = "cosine"
    """cosine, or a linear head on (|u - v|, u * v), which is dropped after training."""
    batch_size: int = 16
    """Rows in a batch (the STS-B setting of the SimCSE review); the default shrinks to the rows there are."""
    epochs: int = 10
    """Passes over the rows."""
    warmup: float = 0.06
    """Share of the steps over which the learning rate rises: 214 of 3,590 steps."""


METHODS: dict[str, type[TrainConfig]] = {
    "sbert": SbertConfig,
    "scl": SclConfig,
    "augment": AugmentConfig,
    "simcse-unsup": SimcseUnsupConfig,
    "simcse-sup": SimcseSupConfig,
    "sg": SgConfig,
    "sg-opt1": SgOpt1Config,
    "sg-opt2": SgOpt2Config,
    "sg-opt": SgOptConfig,
    "bt": BtConfig,
    "bt+sg-opt": BtSgOptConfig,
    "supcon-text": SupconTextConfig,
    "regression": RegressionConfig,
    "info-nce": InfoNceConfig,
}
