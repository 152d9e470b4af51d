"""Runs beside one another and beside the paper: figures, tables and one page.

`load` (with `files`) reads runs and studies, `compare` groups them and knows what may be compared,
`tables` (of `table`) and `drawings` (with `figures` and `style`) show them, `studies` shows what a
study of its kind is about, `page` puts all on one page, `markdown` in a README. `words` names
things.
"""
