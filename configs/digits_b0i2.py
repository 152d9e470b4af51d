"""Real handwritten digits (8x8), five tasks of two classes, MEMO: a minute on a laptop."""

from configs import base


def get_config(method="memo"):
    config = base.get_config(method)
    config.dataset.name = "digits"
    config.dataset.augment = "shift"
    config.protocol.increment = 2
    config.backbone.name = "resnet8"
    config.memory.exemplars = 200
    config.schedule.batch_size = 64
    config.schedule.base_epochs = 12
    config.schedule.base_milestones = (6, 10)
    config.schedule.later_epochs = 12
    config.schedule.later_milestones = (6, 10)
    return config
