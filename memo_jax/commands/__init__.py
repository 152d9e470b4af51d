"""Commands of `python -m memo_jax NAME`: one file each, exporting HELP, add_arguments and run."""
