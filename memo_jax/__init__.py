"""memo_jax: memory-efficient class-incremental learning in JAX.

A stream of tasks brings new classes; the learner sees only a task's own images and a few exemplars
of the past, and must tell all classes apart. MEMO (Zhou et al., ICLR 2023) grows the last stage of
its network with every task and shares the rest, so that at equal memory more room is left for
exemplars.

The map. `experiment.run` is the story: for every task it grows the network (`network`, made of
`backbones` and `heads`), trains it (`training`, with `augment`, `losses`, `optimizers` and the mask
of `freezing`), lets the method rectify it (`methods`), chooses exemplars (`exemplars`), evaluates
(`evaluation`, `metrics`) and saves (`checkpoints`). `planning` turns the config into a plan before
any work, `memory_plan` its budget into a number of exemplars, `problems` the plan into what is
compiled; `estimate` says beforehand what that will take and refuses what does not fit; `base_task`
borrows the base task of another run; `study` runs sets of runs. Images that do not fit on the
devices are fetched by `streaming`, in the form that `batches`, `order` and `crops` give them.
`run_folder`, `logging`, `results` and `report` write what people read, `paper` holds the paper's
numbers, `commands` what `python -m memo_jax` can do. `parallel` alone knows devices, `hosts` how
several processes meet and part, `huge_pages` and `host_memory` the host's memory. A module imports
only modules below it, in the order of
tests/test_architecture.py.

Axis letters in shapes: B batch, N examples, H W C image, D features, K classes, M exemplars,
T tasks, R prediction rules.
"""
