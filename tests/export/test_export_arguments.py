"""`sil export`, without the packages that it needs."""

import sys

import pytest

from self_imitation.cli.main import main


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("run policy.pb", "out: 'policy.pb' is not allowed; allowed: a file name that ends in .onnx"),
        ("run no/where.onnx", "out: 'no/where.onnx' can't be written: No such file or directory"),
        ("run", "ONNX models need a package: pip install 'self-imitation[onnx]'"),
    ],
)
def test_bad_input_is_one_line(arguments, message, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert main(["export", *arguments.split()]) == 2
    assert capsys.readouterr().err == f"sil: {message}\n"
