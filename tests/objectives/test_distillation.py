"""Distillation: reference loops, equal students and teachers, extreme inputs."""

import pytest
import torch

from nearfar.objectives import _contrast, list_distillation, vector_distillation
from tests import reference_objectives as references
from tests.objectives.checks import LargestTensor, assert_same, vectors


@pytest.mark.parametrize("count", [2, 3, 7])
@pytest.mark.parametrize(("temperature", "teacher_temperature"), [(0.05, 0.05), (0.3, 0.1), (1.0, None)])
def test_lists_match_the_reference(count, temperature, teacher_temperature):
    teachers = vectors(count, 4, seed=1)
    assert_same(
        lambda x: list_distillation(x, teachers, temperature=temperature, teacher_temperature=teacher_temperature),
        lambda x: references.list_distillation(x, teachers, temperature, teacher_temperature or temperature),
        vectors(count, 5),
        trivial=count == 2,  # a list of one other row
    )


@pytest.mark.parametrize("count", [1, 2, 7])
def test_vectors_match_the_reference(count):
    teachers = vectors(count, 5, seed=1)
    assert_same(
        lambda x: vector_distillation(x, teachers),
        lambda x: references.vector_distillation(x, teachers),
        vectors(count, 5),
    )


def test_an_equal_student_has_no_loss_and_no_gradient():
    teachers = vectors(7, 5)
    rotation = torch.linalg.qr(vectors(5, 5, seed=2)).Q
    scales = torch.linspace(0.1, 10, 7, dtype=torch.float64)[:, None]
    for students in (teachers.clone(), scales * teachers @ rotation):  # lists know neither rotation nor length
        students.requires_grad_()
        losses = list_distillation(students, teachers, temperature=0.05)
        losses.sum().backward()
        assert losses.abs().max() < 1e-12
        assert students.grad.abs().max() < 1e-9
    same = teachers.clone().requires_grad_()
    vector_distillation(same, teachers).sum().backward()
    assert same.grad.abs().max() == 0
    assert list_distillation(teachers.flip(0), teachers, temperature=0.05).min() > 1e-3


def test_a_batch_of_one_has_an_empty_list():
    student = vectors(1, 3).requires_grad_()
    losses = list_distillation(student, vectors(1, 4), temperature=0.05)
    losses.sum().backward()
    assert losses.tolist() == [0]
    assert student.grad.abs().max() == 0


def test_blocks_give_the_same_values_and_gradients_with_less_memory(monkeypatch):
    students, teachers = vectors(40, 4), vectors(40, 6, seed=1)
    found = []
    for limit in (2**22, 40 * 7):  # all rows at once, or 7 rows at a time
        monkeypatch.setattr(_contrast, "BLOCK", limit)
        own = students.clone().requires_grad_()
        with LargestTensor() as largest:
            losses = list_distillation(own, teachers, temperature=0.1)
            (losses * torch.arange(40)).sum().backward()
        found.append((losses.detach(), own.grad, largest.elements))
    assert found[1][2] <= 40 * 7 < found[0][2]
    torch.testing.assert_close(found[0][0], found[1][0])
    torch.testing.assert_close(found[0][1], found[1][1])
    assert found[0][1].norm() > 1e-3


def test_teachers_get_no_gradient_and_low_precision_is_compared_in_float32():
    students, teachers = (vectors(4, 3, seed=seed).requires_grad_() for seed in (0, 1))
    (list_distillation(students, teachers, temperature=0.1) + vector_distillation(students, teachers)).sum().backward()
    assert teachers.grad is None
    half = students.detach().bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert list_distillation(half, half, temperature=0.1).dtype == torch.float32
        exact = list_distillation(half.float(), teachers.detach().float(), temperature=0.1)
    torch.testing.assert_close(exact, list_distillation(half.float(), teachers.detach().float(), temperature=0.1))
    assert vector_distillation(half, half).dtype == torch.float32
