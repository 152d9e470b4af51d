"""Every setting once: default, unit, and where it comes from. Experiment files are deltas.

"paper" is "A Model or 603 Exemplars" (ICLR 2023), "published" the code its authors released.
A setting with a placeholder (None) follows from the others; what it became is in config.json.
"""

from ml_collections import ConfigDict, config_dict


def get_config(method: str | None = "memo") -> ConfigDict:
    """The defaults; `method` is what follows the colon in `--config FILE.py:METHOD`."""
    return ConfigDict(
        {
            # Seed of initial weights, order of images and augmentation (published: always 1).
            "seed": 1,
            # Folder of a run that has learned the very same base task, to start from its result
            # instead of learning it again (the published tables were made so).
            "base_from": config_dict.placeholder(str),
            # In what convolutions are computed: "float32" or "bfloat16" (faster on accelerators).
            # Parameters, BatchNorm statistics, heads and losses are float32 in both.
            "precision": "float32",
            # Writes a trace of the second epoch of every task to profile/ (look at it with
            # TensorBoard's profiler or Perfetto).
            "profile": False,
            "dataset": {
                # A file in memo_jax/datasets.
                "name": "cifar100",
                # Folder that holds the data or receives the download. Images in files: train/CLASS/
                # and val/CLASS/ (or test/); decoded once, which is kept in its .memo_jax/.
                "path": "data",
                # "auto" tries "local" (a directory in path), "tfds" (prepared by
                # tensorflow-datasets), "download"; or one of them. Image folders are "local".
                "source": "auto",
                # Training augmentation (memo_jax/augment.py): "cifar", "imagenet" (ImageNet-100),
                # "imagenet_brightness" (ImageNet-1000), "shift", "none".
                "augment": "cifar",
                # Side in pixels to which images in files are brought (paper: 224 on ImageNet);
                # unset, the dataset's own. CIFAR and digits are not resized.
                "image_size": config_dict.placeholder(int),
                # What to do if image files cannot be read: "error" names one and stops before
                # training, "skip" leaves them out with a warning.
                "on_bad_image": "error",
                # Where a task's new images are while it is learned: "always" on the host, from
                # which every batch is fetched ahead of its step; "never", so on the devices;
                # "auto", which leaves on the host what does not fit into half of a device's free
                # memory. Images in files that "always" or too little memory keep encoded are
                # decoded for every batch, and random crops are cut out of whole images, as
                # published; else their centres are decoded once.
                "streaming": "auto",
                # Processes per host that decode for the batches; 0 does it in the program itself,
                # unset one per core.
                "workers": config_dict.placeholder(int),
            },
            "protocol": {
                # Classes of the first task; 0 means as many as every other (paper: B0, B50).
                "base": 0,
                # Classes of each later task; a remainder makes a smaller last task.
                "increment": 10,
                # Learns only so many tasks of the stream; budgets still count all of them.
                "stop_after": config_dict.placeholder(int),
                # Seed of the order in which classes arrive (paper: 1993; its study of five
                # orders: 10, 20, 30, 40, 50).
                "class_order_seed": 1993,
            },
            "backbone": {
                # A name in memo_jax/backbones (paper: resnet32 on CIFAR, resnet18 on ImageNet).
                "name": "resnet32",
                # Where trunk ends and block begins: "memo" is before the last stage (paper).
                "cut": "memo",
            },
            "method": {
                # A file in memo_jax/methods.
                "name": method or "memo",
                # Weight of the auxiliary loss (published: 1).
                "alpha_aux": 1.0,
                # Whether the trunk learns after the base task: "true", "false" or "auto", which
                # is true if the base task has at most 20 classes (paper).
                "train_trunk": "auto",
                # Whether the blocks of old tasks go on learning (paper: no).
                "train_old_blocks": False,
                # How a new block starts: "previous" copies the newest one (published), "fresh".
                "block_init": "previous",
                # Softmax temperature of distillation (published: 2).
                "temperature": 2.0,
                # How distillation joins cross-entropy: "sum" (published for iCaRL), "convex"
                # (WA, the paper's Eq. 1), or "auto", each method's own.
                "distill_weight": "auto",
            },
            "memory": {
                # The budget: exemplars if set, else total_mb if set, else align_to.
                # Number of exemplars in all; 0 counts as not set.
                "exemplars": config_dict.placeholder(int),
                # Megabytes (2**20 bytes) for all blocks at the end and exemplars together: filled
                # up with exemplars, or a limit that their given number must keep to.
                "total_mb": config_dict.placeholder(float),
                # The method whose memory at the end is matched: the parameters spared against
                # it become exemplars on top of its own. METHOD, with the same backbone (paper:
                # DER), or METHOD:BACKBONE.
                "align_to": "der",
                # Exemplars of the method aligned to (paper: 2000; ImageNet-1000: 20000).
                "base_exemplars": 2000,
                # "herding" (published) or "nearest" to the class mean (the paper's wording).
                "selection": "herding",
                # Slots per class: "equal" = floor(budget / classes) (published), or "fill", which
                # also hands out the remainder.
                "allocation": "equal",
                # What each of several devices holds of the exemplars, of all images of a task and
                # of the test images: "replicated", all of them, or "sharded", its part of them, so
                # that N devices have room for N times as many (docs/pods.md). The results are the
                # same; a run that was stopped may go on with the other.
                "placement": "replicated",
            },
            "schedule": {
                # "paper": 170 epochs, x0.1 after 80 and 150; "published": the milestones of the
                # released code; "cosine": as "paper", but falling along half a cosine.
                "name": "paper",
                # Images per step, over all devices (paper: 128).
                "batch_size": 128,
                # Initial learning rate (paper: 0.1).
                "learning_rate": config_dict.placeholder(float),
                # Epochs, the epochs after which the rate falls, and L2 decay, in the base task
                # and in later ones.
                "base_epochs": config_dict.placeholder(int),
                "base_milestones": config_dict.placeholder(tuple),
                "base_weight_decay": config_dict.placeholder(float),
                "later_epochs": config_dict.placeholder(int),
                "later_milestones": config_dict.placeholder(tuple),
                "later_weight_decay": config_dict.placeholder(float),
            },
            "train": {
                # How steps are driven: "python", "scan" (one dispatch per epoch), or "auto":
                # python on CPU, scan elsewhere.
                "loop": "auto",
                # Images per batch in evaluation and herding.
                "eval_batch_size": 500,
            },
            "checkpoints": {
                # Epochs between two saves inside a task; one is always saved after each task.
                "every_epochs": 10,
            },
        }
    ).lock()
