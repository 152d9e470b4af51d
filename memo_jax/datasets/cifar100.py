"""CIFAR-100 (Krizhevsky, 2009): 50,000 training and 10,000 test images of 100 classes, 32x32."""

from memo_jax.datasets import AS_THEY_ARE, Dataset, Reading, _cifar

SPEC = _cifar.Cifar(
    name="cifar100",
    num_classes=100,
    directory="cifar-100-python",
    train_files=("train",),
    test_files=("test",),
    meta_file="meta",
    labels_key="fine_labels",
    names_key="fine_label_names",
    sizes=(50_000, 10_000),
    mean=(0.5071, 0.4867, 0.4408),
    std=(0.2675, 0.2565, 0.2761),
    url="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
    md5="eb9058c3a382ffc7106e4002c42a8d85",
)


def load(path: str, source: str, reading: Reading = AS_THEY_ARE) -> Dataset:
    """The 100 fine classes; all as in `_cifar.load`, and `reading` has no say."""
    return _cifar.load(SPEC, path, source)
