"""The training of an encoder, as a run: what it evaluates, saves and records.

Vectors of teachers are computed before the first step, by the pipeline of :mod:`nearfar.commands.encode.vectors`, in
the folder ``teachers`` of the run folder, which is there while the run is unfinished: a run that is stopped continues
after the blocks that are finished. They take 4 * dim bytes for each text.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from nearfar.commands.encode.vectors import OpenEncoder, read_vectors_file
from nearfar.commands.train import inputs
from nearfar.commands.train.dev import DevSet, finds
from nearfar.commands.train.guard import Guard, keep_guarded, open_guard
from nearfar.commands.train.prepare import PreparedRun, open_start, prepare
from nearfar.config.training import TrainConfig
from nearfar.data.hold_out import FOLDS
from nearfar.encoder.classifier import EmbeddingClassifier
from nearfar.encoder.encoder import Encoder
from nearfar.encoder.frozen import TeacherVectors
from nearfar.encoder.static import is_static, merge_square_layers
from nearfar.encoder.token_batches import NotFiniteError
from nearfar.evaluation.geometry_measures import collapse_warning, geometry, kept_neighbours
from nearfar.evaluation.results import ComparisonResult
from nearfar.evaluation.tables import save_with_tables
from nearfar.methods.gunel import SupconTextConfig
from nearfar.runs.fingerprints import fingerprint_model, fingerprint_rows
from nearfar.runs.folder import TEACHERS, RunFolder, read_run_info
from nearfar.runs.held_out import GUARD, held_out_files
from nearfar.runs.run import ProcessContext, Run, join_processes
from nearfar.runtime.progress import draws_bars, progress_bar
from nearfar.training import Evaluation, Interrupted
from nearfar.training.processes import Processes
from nearfar.types import NearfarError

GRID = tuple(2.0**power for power in range(-2, 9, 2))
"""The values of C from which cross-validation chooses: scikit-learn's inverse penalty."""
MOST_TEXTS = 500
"""Number of the user's texts whose neighbours before and after training are compared."""
MOST_ROWS = 20_000
"""Number of rows that the classifier is fitted to, about; of more, every n-th and the first of each label."""


def train_run(
    config: TrainConfig, *, resume: bool, console: Console | None, in_folds: bool = False, leave_out: Sequence[str] = ()
) -> None:
    """Train one run, without the comparison after training.

    With ``in_folds``, a small file is trained on as a whole, to be tested in folds; without it, rows of it are held
    out. ``leave_out`` are texts of a fold: no row with one of them is trained on, and no step is chosen.

    Raises:
        NearfarError: as :func:`nearfar.train`.
        nearfar.training.Interrupted: as :func:`nearfar.train`.
    """
    context = join_processes(config, console)
    processes = context.processes
    with processes.joint_errors():
        sets = inputs.resolve_sets(config)
    config = replace(config, sets=tuple(training_set.table for training_set in sets[1:]))
    with RunFolder(config, processes) as folder:
        if folder.acquire(resume=resume) == "finished":
            processes.broadcast_from_first(partial(read_run_info, folder.path))  # which may be damaged
            context.say(f"{folder.path}: this run is already finished; nothing to do.")
            return
        config = replace(config, precision=folder.resolve_precision(config.precision, context.device))
        with processes.joint_errors():
            sets, dev = inputs.load_inputs(sets, folder.verify_input, in_folds=in_folds, leave_out=leave_out)
            if dev.held_out is not None:
                folder.files |= held_out_files(dev.held_out)
            if (guard := open_guard(config)) is not None:
                folder.verify_input("the sets of --guard", partial(fingerprint_rows, guard.rows))
            for training_set in sets:
                for what, model in training_set.named_models.items():
                    folder.verify_input(what, partial(fingerprint_model, model))
        prepared = prepare(config, sets, processes=processes.size, device=context.device, console=context.console)
        if config.document_vectors is not None:
            known = (bytes(each.vectors[row]) for each in prepared.teachers for _, row in sorted(each.known.items()))
            folder.verify_input(f"--document-vectors {config.document_vectors}", partial(fingerprint_rows, known))
        EncoderRun(config, prepared, sets, dev, guard=guard, folder=folder, context=context).execute()


class EncoderRun(Run):
    """Trains an encoder on one or several sets of rows, and saves it as a sentence-transformers folder."""

    config: TrainConfig

    def __init__(
        self,
        config: TrainConfig,
        prepared: PreparedRun,
        sets: Sequence[inputs.TrainingSet],
        dev: DevSet,
        *,
        guard: Guard | None = None,
        folder: RunFolder,
        context: ProcessContext,
    ) -> None:
        super().__init__(config, prepared, folder=folder, context=context)
        self.metric, self.evaluated_on = dev.metric, dev.name
        self.prepared, self.encoder, self.sets, self.dev = prepared, prepared.encoder, sets, dev
        self.guard = guard
        self.guarded: ComparisonResult | None = None
        """The encoder against its start on the guard sets."""
        self.facts = [*prepared.facts, *dev.facts, *([guard.describe()] if guard else [])]
        self.warned_of_collapse = False

    def evaluate(self) -> Evaluation:
        """Score the encoder on the dev set, and measure the geometry of its embeddings.

        Warns once if the embeddings have collapsed.
        """
        console = self.context.console
        try:
            measured = self.dev.measure(self.encoder, self.config.precision)
            measures = geometry(measured.vectors, measured.positives)
        except NearfarError as error:
            if self.progress.step == 0:
                raise
            raise NearfarError(f"training diverged or collapsed; choose a lower --learning-rate. {error}") from error
        warning = collapse_warning(measures)
        if warning and not self.warned_of_collapse:
            console.print(f"warning: {warning}", highlight=False, style="yellow")
            self.warned_of_collapse = True
        if self.dev.held_out is not None and self.progress.step == 0:
            console.print(finds(self.dev.held_out, measured.spread), highlight=False)
        return Evaluation(measured.score, measures)

    def before_training(self) -> None:
        """Give each teacher the vectors of its texts, from the run folder; what is missing there is computed first.

        The first process computes and writes. A process that cannot read its file, because it is on another machine,
        computes the vectors itself. Ctrl-C ends the run as it does during training.
        """
        folder, processes = self.folder.path / TEACHERS, self.processes
        shown = draws_bars(self.context.console) and processes.is_main
        try:
            for teacher in (each for each in self.prepared.teachers if each.texts):
                with progress_bar("teacher", len(teacher.texts), shown=shown) as advance:
                    compute = partial(_vectors_file, teacher, folder, processes, advance)
                    while not (file := processes.broadcast_from_first(compute)):
                        continue  # the first process is still computing
                vectors = read_vectors_file(folder / file, (len(teacher.texts), teacher.dim))
                if vectors is None:
                    with TemporaryDirectory() as temporary:
                        vectors = np.array(_encode(teacher, Path(temporary), lambda _: None))
                teacher.attach(vectors)
        except KeyboardInterrupt:
            raise Interrupted from None

    def save_model(self, folder: Path) -> None:
        """Write the encoder, its adapters merged or apart, without heads, with the hashes of the texts it has seen.

        If no step was better than the start, this is the start as it is. If it was trained on labelled texts, a
        classifier of its embeddings is written too.
        """
        if self.prepared.merge is not None:
            self.prepared.merge()
        encoder, config, first = self.encoder, self.config, self.sets[0]
        start_is_kept = config.keep == "best" and self.progress.best_step == 0
        if self.guard is not None and not start_is_kept:
            start_is_kept = not self._keep_guarded(self.guard)
        if start_is_kept and config.pooling not in (None, "own"):
            encoder = open_start(replace(config, pooling="own"), self.context.device)
        trained = [training_set.texts for training_set in self.sets]
        chosen_by = [*self.dev.rows, *(self.guard.rows if self.guard else ())]
        encoder.seen = self.seen = self.seen_with(self.encoder.seen, trained, chosen_by)
        encoder.save_pretrained(folder)
        if isinstance(first.config, SupconTextConfig):
            texts = [text for (text,) in first.rows.rows]
            vectors = encoder.encode(texts, normalize=True, precision=config.precision)
            weights = fit_weights(vectors, np.array(first.rows.targets, dtype=np.intp))
            EmbeddingClassifier(encoder, first.rows.label_names, weights).save_head(folder)
        Encoder.from_pretrained(folder, device="cpu")  # a finished run has a model that opens

    def _keep_guarded(self, guard: Guard) -> bool:
        """Give the encoder the weights that the guard sets allow; False if these are the start's."""
        config, scored = self.config, self.dev.metric is not None
        start = open_start(config, self.context.device)
        if is_static(start.backbone):
            merge_square_layers(start.backbone, start.tail)

        def dev_score(encoder: Encoder) -> float | None:
            return self.dev.measure(encoder, config.precision).score if scored else None

        how: dict[str, Any] = {"above": self.progress.start_score, "ranked": config.keep == "best"}
        tried, self.guarded = keep_guarded(guard, self.encoder, start, config.model, dev_score=dev_score, **how)
        self.outcome["guard"] = [one.to_dict() for one in tried]
        return tried[-1].kept

    def conclude(self) -> None:
        """Write the comparison on the guard sets, and measure how far the neighbours of the user's texts have moved."""
        if self.guarded is not None:
            save_with_tables(self.guarded, self.folder.path / GUARD)
        rows = self.dev.rows or self.sets[0].texts
        distinct = dict.fromkeys(text for row in rows[:MOST_TEXTS] for text in row if isinstance(text, str))
        texts = list(distinct)[:MOST_TEXTS]
        start = Encoder.from_pretrained(self.config.model, device=self.context.device)
        precision = self.config.precision
        vectors = (one.encode(texts, precision=precision, check_finite=False) for one in (start, self.encoder))
        self.outcome["kept_neighbours"] = kept_neighbours(*vectors)


def fit_weights(vectors: NDArray[np.float32], labels: NDArray[np.intp]) -> NDArray[np.float32]:
    """The weights [classes, dim + 1] of logistic regression, the bias last. Labels are 0 to classes - 1.

    C has the lowest -log p(label | text) by cross-validation over up to five folds that are stratified by label; it is
    1 if a label has a single row. Two classes have the logits -z/2 and z/2.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV, StratifiedKFold

    every = -(-len(labels) // MOST_ROWS)
    rows = np.union1d(np.arange(0, len(labels), every), np.unique(labels, return_index=True)[1])
    vectors, labels = vectors[rows].astype(np.float64), labels[rows]
    folds = min(FOLDS, int(np.bincount(labels).min()))
    model = LogisticRegression(max_iter=5000)
    if folds > 1:
        parts = StratifiedKFold(folds, shuffle=True, random_state=0)
        search = GridSearchCV(model, {"C": GRID}, scoring="neg_log_loss", cv=parts, refit=False).fit(vectors, labels)
        model.set_params(**search.best_params_)
    model.fit(vectors, labels)
    weights = np.column_stack([model.coef_, model.intercept_]).astype(np.float32)
    return np.concatenate([-weights / 2, weights / 2]) if len(weights) == 1 else weights


def _vectors_file(teacher: TeacherVectors, folder: Path, processes: Processes, advance: Callable[[int], None]) -> str:
    """Compute the vectors of a teacher that are not there yet; the name of the file with all of them.

    The other processes get a sign of life, an empty name, for each batch: they would not wait for all vectors.
    """

    def tell(texts: int) -> None:
        advance(texts)
        processes.broadcast_from_first(str)

    folder.mkdir(exist_ok=True)
    return Path(_encode(teacher, folder, tell).filename).name  # type: ignore[attr-defined]


def _encode(teacher: TeacherVectors, folder: Path, on_texts: Callable[[int], None]) -> NDArray[np.float32]:
    what = f"{'teacher' if teacher.role is None else 'freeze documents by'} {teacher.name}: "
    try:
        opened = OpenEncoder(teacher.encoder, fingerprint_model(teacher.name), teacher.bf16)
        how: dict[str, Any] = {"role": teacher.role, "normalize": False, "on_texts": on_texts, "what": what}
        return opened.encode_texts(folder, teacher.texts, **how)
    except NotFiniteError as error:
        raise NearfarError(f"--{what}{error}") from error
