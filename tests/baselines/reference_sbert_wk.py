"""Reference SBERT-WK: token by token and layer by layer, with a QR decomposition each, as its authors compute it."""

import numpy as np


def neighbours_by_hand(layer, layers, window):
    """Return left and right neighbours; the first ``window`` layers have none on their left."""
    left = list(range(layer - window, layer)) if layer >= window else []
    return left + [right for right in range(layer + 1, layer + window + 1) if right < layers]


def cosine(x, y):
    return float(x @ y / np.sqrt((x @ x) * (y @ y)))


def layer_weights(token, window):
    """Return the mean of normalised novelty and alignment of each layer of one token [layers, dim]."""
    novelty, alignment = [], []
    for layer in range(len(token)):
        near = neighbours_by_hand(layer, len(token), window)
        _, r = np.linalg.qr(np.stack([*(token[other] for other in near), token[layer]], axis=1))
        last = r[:, -1]
        novelty.append(abs(last[-1]) / np.sqrt(sum(last**2)))
        directions = [r[:-1, column] / np.sqrt(sum(r[:-1, column] ** 2)) for column in range(len(near))]
        mean_direction = sum(directions) / len(near)
        projections = mean_direction @ last[:-1] / np.sqrt(sum(last[:-1] ** 2))
        alignment.append(1 / (projections * (len(near) + 1) * 2))
    shares = np.array(novelty) / sum(novelty) + np.array(alignment) / sum(alignment)
    return shares / sum(shares)


def sentence_vector(states, *, layer_start, window):
    """Return the vector of one text from its hidden states [layers, tokens, dim]; the last token is [SEP]."""
    used = np.asarray(states, dtype=np.float64)[layer_start:, :-1]
    vectors, changes = [], []
    for position in range(used.shape[1]):
        token = used[:, position]
        weights = layer_weights(token, window)
        vectors.append(sum(weight * layer for weight, layer in zip(weights, token, strict=True)))
        changes.append(np.var([cosine(token[layer], token[layer + 1]) for layer in range(len(token) - 1)]))
    return sum(change * vector for change, vector in zip(changes, vectors, strict=True)) / sum(changes)
