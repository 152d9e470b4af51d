"""CIFAR-10 (Krizhevsky, 2009): 50,000 training and 10,000 test images of 10 classes, 32x32."""

from memo_jax.datasets import AS_THEY_ARE, Dataset, Reading, _cifar

SPEC = _cifar.Cifar(
    name="cifar10",
    num_classes=10,
    directory="cifar-10-batches-py",
    train_files=tuple(f"data_batch_{number}" for number in range(1, 6)),
    test_files=("test_batch",),
    meta_file="batches.meta",
    labels_key="labels",
    names_key="label_names",
    sizes=(50_000, 10_000),
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2023, 0.1994, 0.2010),
    url="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
    md5="c58f30108f718f92721af3b95e74349a",
)


def load(path: str, source: str, reading: Reading = AS_THEY_ARE) -> Dataset:
    """Places, sources and errors as in `_cifar.load`; `reading` has no say."""
    return _cifar.load(SPEC, path, source)
