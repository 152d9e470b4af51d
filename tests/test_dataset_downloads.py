"""CIFAR downloads, from a real server: kept, checked, and nothing half done left behind."""

import contextlib
import dataclasses
import functools
import hashlib
import http.server
import io
import shutil
import tarfile
import threading
from pathlib import Path

import dataset_files
import pytest
from dataset_files import TINY100, assert_reads, write_official

from memo_jax.datasets import _cifar
from memo_jax.errors import UserError


@pytest.fixture(autouse=True)
def no_prepared_data(tmp_path, monkeypatch):
    return dataset_files.hide_prepared(monkeypatch, tmp_path)


@contextlib.contextmanager
def serving(directory: Path, cut: int = 0):
    """A web server for `directory`; with `cut`, it hangs up that many bytes before the end."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def copyfile(self, source, outputfile):
            data = source.read()
            outputfile.write(data[: len(data) - cut])

        def log_message(self, *args):
            pass

    handler = functools.partial(Handler, directory=directory)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def archive(tmp_path):
    """An official archive in a folder of its own: the file, its content, the spec but its URL."""
    served = tmp_path / "served"
    written = write_official(TINY100, served)
    with tarfile.open(served / "tiny.tar.gz", "w:gz") as tar:
        tar.add(served / TINY100.directory, TINY100.directory)
    md5 = hashlib.md5((served / "tiny.tar.gz").read_bytes()).hexdigest()
    return served / "tiny.tar.gz", written, dataclasses.replace(TINY100, md5=md5)


def at(spec, url):
    return dataclasses.replace(spec, url=f"{url}/tiny.tar.gz")


def test_download_is_kept_and_needs_no_network_later(archive, tmp_path):
    file, written, spec = archive
    data = tmp_path / "data"
    with serving(file.parent) as url:
        assert_reads(_cifar.load(at(spec, url), str(data), "auto"), written)
    assert sorted(p.name for p in data.iterdir()) == ["cifar-100-python", "tiny.tar.gz"]
    assert_reads(_cifar.load(spec, str(data), "local"), written)
    assert_reads(_cifar.load(spec, str(data), "download"), written)
    shutil.rmtree(data / spec.directory)
    assert_reads(_cifar.load(spec, str(data), "auto"), written)
    (data / "tiny.tar.gz").unlink()
    assert_reads(_cifar.load(spec, str(data), "download"), written)


def test_a_damaged_archive_is_replaced_or_told(archive, tmp_path):
    file, written, spec = archive
    data = tmp_path / "data"
    data.mkdir()
    (data / "tiny.tar.gz").write_bytes(file.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"data/tiny.tar.gz is damaged \(md5 .*refused"):
        _cifar.load(spec, str(data), "download")
    assert (data / "tiny.tar.gz").read_bytes() == file.read_bytes()[:-1]
    with serving(file.parent) as url:
        assert_reads(_cifar.load(at(spec, url), str(data), "download"), written)
    assert (data / "tiny.tar.gz").read_bytes() == file.read_bytes()


@pytest.mark.parametrize(
    ("url_end", "cut", "md5", "told"),
    [
        ("", 0, "0" * 32, "md5 .* instead of 00000000"),
        ("", 100, None, "md5 .* instead of|IncompleteRead|retrieval incomplete"),
        ("/nothing", 0, None, "HTTP Error 404"),
    ],
    ids=["other content", "hangs up", "not found"],
)
def test_a_failed_download_leaves_nothing(url_end, cut, md5, told, archive, tmp_path):
    file, _, spec = archive
    data = tmp_path / "data"
    spec = dataclasses.replace(spec, md5=md5 or spec.md5)
    with serving(file.parent, cut) as url, pytest.raises(UserError, match=told):
        _cifar.load(at(spec, url + url_end), str(data), "auto")
    assert list(data.iterdir()) == []


def test_an_archive_cannot_write_elsewhere_and_half_of_it_is_not_kept(archive, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    with tarfile.open(data / "tiny.tar.gz", "w:gz") as tar:
        tar.add(archive[0].with_name(TINY100.directory), TINY100.directory)
        tar.addfile(tarfile.TarInfo("../../harm"), io.BytesIO())
    md5 = hashlib.md5((data / "tiny.tar.gz").read_bytes()).hexdigest()
    with pytest.raises(UserError, match="outside the destination"):
        _cifar.load(dataclasses.replace(TINY100, md5=md5), str(data), "download")
    assert not list(tmp_path.rglob("harm"))
    assert [p.name for p in data.iterdir()] == ["tiny.tar.gz"]
