"""Oracles: each algorithm once more, in plain NumPy, as its textbook states it.

One call is one iteration from samples X (n, d) and centers C (k, d). It returns
the new centers and what the iteration decided on the way. Ties go to the lowest
index; a cluster without (kept) samples keeps its center.
"""

import math

import numpy as np


def squared_distances(X, C):
    return ((X[:, None, :] - C[None, :, :]) ** 2).sum(axis=2)


def unit(X):
    largest = np.abs(X).max(axis=1, keepdims=True)
    X = X / np.where(largest == 0, 1, largest)
    length = np.sqrt((X**2).sum(axis=1, keepdims=True))
    return X / np.where(length == 0, 1, length)


def weighted_means(X, C, labels, weights):
    """Weighted mean of each label's samples; the old center without weight."""
    members = weights[:, None] * (labels[:, None] == np.arange(len(C)))
    mass = members.sum(axis=0)[:, None]
    return np.where(mass > 0, members.T @ X / np.where(mass > 0, mass, 1), C)


def lloyd(X, C):
    labels = squared_distances(X, C).argmin(axis=1)
    return weighted_means(X, C, labels, np.ones(len(X))), labels


def soft(X, C, gamma):
    D = squared_distances(X, C)
    P = np.exp(-gamma * (D - D.min(axis=1, keepdims=True)))
    P /= P.sum(axis=1, keepdims=True)
    mass = P.sum(axis=0)[:, None]
    return np.where(mass > 0, P.T @ X / np.where(mass > 0, mass, 1), C), P


def spherical(X, C):
    X, C = unit(X), unit(C)
    labels = (X @ C.T).argmax(axis=1)
    sums = np.array([X[labels == j].sum(axis=0) for j in range(len(C))])
    size = np.bincount(labels, minlength=len(C))[:, None]
    short = np.linalg.norm(sums, axis=1, keepdims=True) <= 1e-12 * size
    return np.where(short, C, unit(sums)), labels


def trimmed(X, C, trim_fraction):
    D = squared_distances(X, C)
    labels, nearest = D.argmin(axis=1), D.min(axis=1)
    n_trimmed = math.ceil(trim_fraction * len(X) - 1e-9)
    kept = np.zeros(len(X))
    kept[np.argsort(nearest, kind="stable")[: len(X) - n_trimmed]] = 1
    return weighted_means(X, C, labels, kept), np.where(kept == 1, labels, -1)


def robust(X, C, radius):
    D = squared_distances(X, C)
    weights = np.maximum(1 - D.min(axis=1) / radius**2, 0)
    labels = D.argmin(axis=1)
    return weighted_means(X, C, labels, weights), weights


def medoid_proposal(X, C, noise, gamma=3.0):
    """Row of X that each center proposes; -1 for an empty cluster."""
    d = np.sqrt(squared_distances(X, C))
    labels, nearest, rows = d.argmin(axis=1), d.min(axis=1), []
    for j in range(len(C)):
        own = np.flatnonzero(labels == j)
        mean = nearest[own].mean() if len(own) else 0
        logits = -gamma * nearest[own] / mean if mean > 0 else 0 * nearest[own]
        rows.append(own[np.argmax(logits + noise[own])] if len(own) else -1)
    rows = np.array(rows)
    return np.where(rows[:, None] >= 0, X[rows], C), rows
