"""Golden values: the results of the papers' formulas, or of the authors' code, on stored inputs."""

import json

import pytest
import torch

from nearfar.objectives import _contrast, info_nce, premise_scl, self_guided, supcon

pytestmark = pytest.mark.realdata


@pytest.fixture(scope="module")
def golden(nearfar_data):
    """Values stored next to the data folder: inputs, and the expected loss of each objective."""
    path = nearfar_data.resolve().parent / "golden" / "objectives.json"
    if not path.exists():
        pytest.skip(f"no golden values at {path}")
    return json.loads(path.read_text())


@pytest.fixture(autouse=True, params=[2**22, 3], ids=["whole", "in blocks"])
def block(request, monkeypatch):
    """Compute the objectives from full matrices and in blocks."""
    monkeypatch.setattr(_contrast, "BLOCK", request.param)


def tensor(numbers):
    return torch.tensor(numbers, dtype=torch.float64)


@pytest.mark.parametrize("key", ["simcse_unsup", "simcse_sup"])
def test_simcse(golden, key):
    assert len(golden[key]) >= 2
    for case in golden[key]:
        vectors = [tensor(case[name]) for name in ("anchor", "positive", "negative") if case[name] is not None]
        assert len(vectors) == (2 if key == "simcse_unsup" else 3)
        weight = case["hard_negative_weight"] or 0.0
        value = info_nce(*vectors, temperature=case["temperature"], hard_negative_weight=weight)
        assert value.mean().item() == pytest.approx(case["official"], rel=0, abs=1e-9)


@pytest.mark.parametrize(("variant", "key"), [("sg", "nt_xent"), ("opt1", "opt1"), ("opt2", "opt2"), ("opt3", "opt3")])
def test_self_guided(golden, variant, key):
    assert len(golden["self_guided"]) >= 3
    for case in golden["self_guided"]:
        cls, views = tensor(case["c"]), tensor(case["h"])
        views = views if variant == "opt3" else views[:, 0]
        value = self_guided(cls, views, temperature=case["temperature"], variant=variant)
        assert value.mean().item() == pytest.approx(case["official"][key], rel=0, abs=1e-9)


def test_supcon(golden):
    assert len(golden["supcon"]) >= 3
    for case in golden["supcon"]:
        labels = torch.tensor(case["label"])
        value = supcon(tensor(case["embeddings"]), labels, temperature=case["temperature"])
        assert len(value) == case["anchors_with_positives"]
        assert value.sum().item() == pytest.approx(case["sum_over_anchors"], rel=0, abs=1e-9)


def test_premise_scl(golden):
    assert len(golden["nli_scl"]) >= 3
    for case in golden["nli_scl"]:
        premises, hypotheses = tensor(case["premise"]), tensor(case["hypothesis"])
        ids, labels = torch.tensor(case["premise_id"]), torch.tensor(case["label"])
        value = premise_scl(premises, hypotheses, ids, labels, temperature=case["temperature"])
        assert value.mean().item() == pytest.approx(case["official"], rel=0, abs=1e-9)
