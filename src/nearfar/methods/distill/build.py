"""distill: from rows and settings to the method; opens the teacher and checks it against the student."""

from pathlib import Path

import torch

from nearfar.data.rows import TextData, load_sentences
from nearfar.encoder.encoder import Encoder
from nearfar.encoder.finite import NotFiniteError
from nearfar.encoder.heads import LinearHead, add_projection, main_directions, start_at_rotation
from nearfar.encoder.teacher import TeacherVectors
from nearfar.encoder.weights import locate
from nearfar.methods.build import BuildContext, BuiltMethod, require_data, text_facts
from nearfar.methods.distill import DistillConfig
from nearfar.methods.distill.method import distill
from nearfar.types import NearfarError


def read_rows(config: DistillConfig) -> TextData:
    """Read single sentences."""
    data = require_data(config)
    if config.teacher is None:
        raise NearfarError(
            "distill needs a teacher: name an encoder with --teacher MODEL, or, for a second objective, as teacher in "
            "its TOML file."
        )
    return load_sentences(data, column=config.text_column, limit=config.limit)


def build_distill(config: DistillConfig, context: BuildContext, rows: TextData) -> BuiltMethod:
    """Build distill."""
    assert config.teacher is not None
    student = context.encoder.encoder
    teacher = _open_teacher(config.teacher, student)
    if teacher.seen is not None:  # what the teacher has seen, the student learns from it
        student.seen = teacher.seen if student.seen is None else student.seen.union(teacher.seen)
    texts = (text for row in rows.rows[: config.limit] for text in row)
    vectors = TeacherVectors(teacher, texts, name=config.teacher, bf16=context.encoder.bf16)
    head = basis = None
    projected = ""
    if config.vector_weight and teacher.dim != student.dim:
        own = torch.from_numpy(student.encode(vectors.sample, precision="bf16" if context.encoder.bf16 else "fp32"))
        try:
            targets = vectors(vectors.sample).cpu()
        except NotFiniteError as error:
            raise NearfarError(f"--teacher {config.teacher}: {error}") from None
        if config.vector_projection == "kept":
            layer = add_projection(student, teacher.dim)
        elif config.vector_projection == "same_width" and student.dim < teacher.dim:
            layer, basis = add_projection(student, student.dim), main_directions(targets, student.dim)
        else:
            head = LinearHead(student.dim, teacher.dim)
            layer = head.linear
        where = "for the vectors" if head is not None else "by a layer that is kept"
        projected = f", the student {own.shape[1]}, projected {where}"
        start_at_rotation(layer, own, targets if basis is None else targets @ basis)
    batches = context.batches(config, rows)
    method = distill(
        config, context.encoder.embed, vectors, batches, normalize=student.normalizes, head=head, basis=basis
    )
    prompt = f", prompt {teacher.resolve_prompt()!r}" if teacher.resolve_prompt() else ""
    facts = [f"teacher {config.teacher}: {teacher.dim} dimensions, pooling {teacher.pooling}{prompt}{projected}"]
    return BuiltMethod(method, [*text_facts(rows), *facts], teachers=(vectors,))


def _open_teacher(name: str, student: Encoder) -> Encoder:
    try:
        teacher = Encoder.from_pretrained(name, device=student.device)
    except NearfarError as error:
        raise NearfarError(f"--teacher: {error}") from error
    same = student.source is not None and Path(locate(name)).resolve() == student.source.resolve()
    layers = (one.backbone.config.num_hidden_layers for one in (teacher, student))
    if same and len(set(layers)) == 1 and teacher.pooling == student.pooling and teacher.dim == student.dim:
        raise NearfarError(
            f"--teacher {name}: is the start model itself, so there is nothing to learn. Choose another --model, or "
            "fewer of its layers with --keep-layers."
        )
    return teacher
