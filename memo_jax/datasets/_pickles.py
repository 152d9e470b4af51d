"""Pickled dictionaries of arrays and lists, read without running code that they might hold."""

import _codecs
import pickle
from pathlib import Path
from typing import Any

import numpy as np
from numpy._core import multiarray, numeric


def _dtype(name: Any, align: Any = False, copy: Any = False) -> np.dtype:
    # Files of Python 2 pass align=0, copy=1, about which numpy 2.4.0 to 2.4.4 warn.
    return np.dtype(name, align=bool(align), copy=bool(copy))


# All that pickled arrays and byte strings refer to, whatever Python and numpy wrote them.
_ALLOWED = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): _dtype,
    ("numpy._core.multiarray", "_reconstruct"): multiarray._reconstruct,
    ("numpy._core.numeric", "_frombuffer"): numeric._frombuffer,
    ("_codecs", "encode"): _codecs.encode,
}


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        module = module.replace("numpy.core", "numpy._core")  # its name before numpy 2
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}") from None


def read_dict(file: Path) -> dict[str, Any]:
    """The pickled dictionary in `file`; its keys as text, byte strings within it as bytes.

    Raises ValueError if the file is missing, damaged or holds something else: the text of the
    error, one line, is what was found instead.
    """
    try:
        with file.open("rb") as stream:
            content = _PlainUnpickler(stream, encoding="bytes").load()
    except FileNotFoundError:
        raise ValueError("no such file") from None
    except Exception as error:  # a damaged pickle can fail in any way
        reason = " ".join(str(error).split())
        raise ValueError(f"a file that cannot be read ({type(error).__name__}: {reason})") from None
    if not isinstance(content, dict):
        raise ValueError(f"a pickled {type(content).__name__}")
    return {key.decode() if isinstance(key, bytes) else key: content[key] for key in content}
