"""Distillation: a student's similarity lists, or its vectors, fitted to those of a teacher."""

import torch
from jaxtyping import Float
from torch import Tensor

from nearfar.objectives._contrast import by_rows
from nearfar.objectives._similarity import check_same_shape, check_temperature, compute_dtype, l2_normalize
from nearfar.types import NearfarError


def list_distillation(
    students: Float[Tensor, "anchors dim"],
    teachers: Float[Tensor, "anchors teacher_dim"],
    *,
    temperature: float,
    teacher_temperature: float | None = None,
) -> Float[Tensor, " anchors"]:
    """KL divergence between the similarity lists of teacher and student: l_i = sum_{j != i} p_ij log(p_ij / q_ij).

    p_i is the softmax over j != i of cos(t_i, t_j) / t_T, and q_i that of cos(s_i, s_j) / t_S. Row i of both arguments
    belongs to the same text; the two may have different widths. Teachers get no gradient. Without other rows, the list
    is empty and the loss 0. Values are in nats; 0 if and only if the lists are equal.

    Up to a constant, which is the entropy of p_i, this is ListNet's top-one cross-entropy. Computed in float32 or
    better, also under autocast. Memory is linear in the number of rows.

    Args:
        students: embeddings of the student.
        teachers: embeddings of the teacher.
        temperature: t_S, divides the student's cosines.
        teacher_temperature: t_T, divides the teacher's cosines; by default ``temperature``.

    Raises NearfarError for different numbers of rows, and for a temperature that is not a positive number.

    Source: Liu et al. 2023, "RankCSE", ranking distillation (ListNet: Cao et al. 2007).

    >>> students, teachers = torch.eye(3), torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> list_distillation(students, students, temperature=0.1)
    tensor([0., 0., 0.])
    >>> list_distillation(students, teachers, temperature=0.01)  # q = 1/2 each; p_1 = p_2 = (1, 0), p_3 = (1/2, 1/2)
    tensor([0.6931, 0.6931, 0.0000])
    """
    if students.ndim != 2 or teachers.ndim != 2 or len(students) != len(teachers):
        raise NearfarError(
            f"students {tuple(students.shape)} and teachers {tuple(teachers.shape)} must be [anchors, width] with the "
            "same number of rows"
        )
    given = temperature if teacher_temperature is None else teacher_temperature
    for value in (temperature, given):
        check_temperature(value)
    exact = compute_dtype(students, teachers)
    with torch.autocast(students.device.type, enabled=False):
        own, target = l2_normalize(students.to(exact)), l2_normalize(teachers.detach().to(exact))

        def divergence(rows: slice) -> Float[Tensor, " anchors"]:
            others = index[rows, None] != index
            log_q, log_p = (
                # Not -inf: a list without other rows would have a NaN gradient.
                (x[rows] @ x.T / tau).masked_fill(~others, torch.finfo(exact).min).log_softmax(dim=1)
                for x, tau in ((own, temperature), (target, given))
            )
            return torch.where(others, log_p.exp() * (log_p - log_q), 0.0).sum(dim=1)

        index = torch.arange(len(own), device=own.device)
        return by_rows(divergence, len(own), len(own), recompute=True)


def vector_distillation(
    students: Float[Tensor, "anchors dim"], teachers: Float[Tensor, "anchors dim"]
) -> Float[Tensor, " anchors"]:
    """Mean squared error between each vector of the student and the teacher's: l_i = 1/d sum_k (s_ik - t_ik)^2.

    d is the width, which must be the same; a projection of the students can make it so. Teachers get no gradient.
    Computed in float32 or better.

    Raises NearfarError if the two do not have the same shape.

    Source: Reimers & Gurevych 2020, "Making Monolingual Sentence Embeddings Multilingual using Knowledge Distillation",
    section 2.

    >>> vector_distillation(torch.tensor([[1.0, 2.0], [0.0, 0.0]]), torch.tensor([[1.0, 0.0], [1.0, 1.0]]))
    tensor([2., 1.])
    """
    check_same_shape("students teachers", students, teachers)
    exact = compute_dtype(students, teachers)
    return (students.to(exact) - teachers.detach().to(exact)).square().mean(dim=1)
