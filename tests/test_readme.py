"""The code of the README runs."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), flags=re.S)


@pytest.mark.parametrize("code", BLOCKS, ids=range(len(BLOCKS)))
def test_code_block_runs(code, capsys):
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out


def test_six_lines_open_the_readme():
    assert len(BLOCKS[0].split("\n\n")[1].splitlines()) <= 6
