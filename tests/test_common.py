"""scikit-learn's own checks of the estimator interface."""

import pytest
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks

from sklearn_kmtrf import (
    RobustTransformerKMeans,
    SoftTransformerKMeans,
    SphericalTransformerKMeans,
    TransformerKMeans,
    TrimmedTransformerKMeans,
)

# Some checks cluster fewer distinct rows than there are clusters.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Number of distinct c:sklearn.exceptions.ConvergenceWarning"
)

# As for scikit-learn's KMeans: the draws of the seeding depend on the number of rows,
# so repeated rows and weighted rows start elsewhere.
SAME_LAW_ONLY = {
    f"check_sample_weight_equivalence_on_{kind}_data": (
        "sample_weight is not equivalent to removing/repeating samples."
    )
    for kind in ("dense", "sparse")
}

# The checks of sparse input take whatever has predict_proba for a classifier.
CLASSIFIERS_ONLY = {
    f"check_estimator_sparse_{kind}": (
        "reads the classifier tags of a clusterer with predict_proba"
    )
    for kind in ("array", "matrix")
}

ESTIMATORS = [
    TransformerKMeans(),
    SoftTransformerKMeans(),
    SphericalTransformerKMeans(),
    TrimmedTransformerKMeans(),
    RobustTransformerKMeans(),
]


def expected_failures(estimator):
    """Names of the checks that an estimator need not pass, and why."""
    if hasattr(estimator, "predict_proba"):
        return SAME_LAW_ONLY | CLASSIFIERS_ONLY
    return SAME_LAW_ONLY


@parametrize_with_checks(ESTIMATORS, expected_failed_checks=expected_failures)
def test_estimator_checks(estimator, check):
    check(estimator)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_only_the_expected_checks_fail(estimator):
    expected = expected_failures(estimator)
    results = check_estimator(estimator, expected_failed_checks=expected, on_fail=None)
    failed = {r["check_name"] for r in results if r["status"] in ("failed", "xfail")}
    assert failed == set(expected)
