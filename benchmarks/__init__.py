"""The same program in JAX and in PyTorch, side by side.

`compare` is the command, with its `settings`, the `processes` it starts, one per framework
(`worker`, and in it `jax_side` or `torch_side`), and its `report`. `job` is what both sides are
given. The PyTorch twin is `torch_twin` (the story: every task in order), made of `torch_network`
and `torch_backbones`, `torch_training`, `torch_data` and `torch_exemplars`; `weights` carries
variables between the two.
`scaling` is a second command, of JAX alone: `scaling_settings` and `scaling_points` say what is
measured, `scaling_side` measures it, `scaling_estimate` adds it up, `scaling_report` and
`scaling_plots` show it. `gpu` does all of it on a machine without a network, with `gpu_pack`,
`gpu_parts` and `gpu_report`.
Only modules named torch_* and `weights` import PyTorch, and none of them imports JAX.
"""
