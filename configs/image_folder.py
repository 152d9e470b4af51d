"""Images of your own, ResNet18, ten classes at a time:

    python launch.py --config configs/image_folder.py --config.dataset.path=DIR

DIR holds train/CLASS/FILE and val/CLASS/FILE (JPEG, PNG or WebP); classes, their number and the
size of images are found. Fewer classes: --config.protocol.increment=2, small images:
--config.dataset.image_size=64.
"""

from configs import base


def get_config(method="memo"):
    config = base.get_config(method)
    config.dataset.name = "image_folder"
    config.dataset.augment = "imagenet"
    config.backbone.name = "resnet18"
    return config
