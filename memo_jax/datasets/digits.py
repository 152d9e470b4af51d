"""Handwritten digits that come with scikit-learn: 1,797 real images, nothing to download.

E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI repository, 1998.
"""

import numpy as np

from memo_jax.datasets import AS_THEY_ARE, Dataset, Reading, Split
from memo_jax.errors import UserError

_MAX_PIXEL = 16
_TEST_EVERY = 5


def load(path: str, source: str, reading: Reading = AS_THEY_ARE) -> Dataset:
    """Images `[N, 8, 8, 1]` of 10 classes; every fifth image of a class is for testing.

    `path` and `reading` are ignored, as the images come with the package. mean and std are those
    of the training images, all pixels together.
    Raises UserError for a source other than "auto".
    """
    if source != "auto":
        raise UserError(
            f"dataset.source: digits come with scikit-learn and know only 'auto', found {source!r}"
        )
    # Imported here, as it takes a second that no other dataset should cost.
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = np.rint(digits.images * (255 / _MAX_PIXEL)).astype(np.uint8)[..., None]
    labels = digits.target.astype(np.int32)
    for_test = _rank_in_class(labels) % _TEST_EVERY == _TEST_EVERY - 1
    return Dataset(
        name="digits",
        train=Split(images[~for_test], labels[~for_test]),
        test=Split(images[for_test], labels[for_test]),
        class_names=tuple(str(digit) for digit in digits.target_names),
        mean=(0.3052,),
        std=(0.3760,),
    )


def _rank_in_class(labels: np.ndarray) -> np.ndarray:
    """For each of `[N]` labels, how many equal ones come before it."""
    ranks = np.empty_like(labels)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        ranks[members] = np.arange(len(members))
    return ranks
