"""scikit-learn's own checks of the estimator interface."""

import pytest
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks

from sklearn_kmtrf import (
    RobustTransformerKMeans,
    SphericalTransformerKMeans,
    TransformerKMeans,
    TrimmedTransformerKMeans,
)

# Some checks cluster fewer distinct rows than there are clusters.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Number of distinct clusters:sklearn.exceptions.ConvergenceWarning"
)

# As for scikit-learn's KMeans: the draws of the seeding depend on the number of rows,
# so repeated rows and weighted rows start elsewhere.
SAME_LAW_ONLY = {
    f"check_sample_weight_equivalence_on_{kind}_data": (
        "sample_weight is not equivalent to removing/repeating samples."
    )
    for kind in ("dense", "sparse")
}


ESTIMATORS = [
    TransformerKMeans(),
    SphericalTransformerKMeans(),
    TrimmedTransformerKMeans(),
    RobustTransformerKMeans(),
]


@parametrize_with_checks(
    ESTIMATORS, expected_failed_checks=lambda estimator: SAME_LAW_ONLY
)
def test_estimator_checks(estimator, check):
    check(estimator)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_only_the_expected_checks_fail(estimator):
    results = check_estimator(
        estimator, expected_failed_checks=SAME_LAW_ONLY, on_fail=None
    )
    failed = {r["check_name"] for r in results if r["status"] in ("failed", "xfail")}
    assert failed == set(SAME_LAW_ONLY)
