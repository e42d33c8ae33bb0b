"""What may import what, and what importing the package loads."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import sklearn_kmtrf

PACKAGE = Path(sklearn_kmtrf.__file__).parent
# A part may import itself, torch and the standard library, and these.
ALLOWED = {
    "circuits": {"safetensors"},
    "kernels": {"numpy", "scipy", "sklearn_kmtrf.circuits"},
}
STANDARD = set(sys.stdlib_module_names) | {"torch"}


def imported_modules(path):
    """Names of the modules that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module


@pytest.mark.parametrize("part", ALLOWED)
def test_imports_flow_one_way(part):
    own = f"sklearn_kmtrf.{part}"
    for path in (PACKAGE / part).glob("*.py"):
        for name in imported_modules(path):
            allowed = (
                name.split(".")[0] in STANDARD
                or name.startswith(own)
                or any(name.startswith(other) for other in ALLOWED[part])
            )
            assert allowed, f"{path.name} of {part} imports {name}"


def test_imports_are_absolute():
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            assert not (isinstance(node, ast.ImportFrom) and node.level), path


def loaded_by(statement):
    """Top-level names of the modules that a statement loads in a new process."""
    code = f"import sys; {statement}; print(*{{m.split('.')[0] for m in sys.modules}})"
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return set(out.stdout.split())


def test_importing_the_package_loads_nothing_heavy():
    heavy = {"matplotlib", "pandas", "torch", "sklearn", "scipy", "dask"}
    assert not heavy & loaded_by("import sklearn_kmtrf")


def test_estimators_load_no_optional_package():
    optional = {"matplotlib", "pandas", "dask", "tqdm", "pyarrow"}
    ours = loaded_by("from sklearn_kmtrf import TransformerKMeans")
    # scikit-learn itself loads pandas where it is installed.
    theirs = loaded_by("import sklearn.base")
    assert not optional & (ours - theirs)


def test_public_names():
    assert set(dir(sklearn_kmtrf)) == set(sklearn_kmtrf.__all__)
    for name in sklearn_kmtrf.__all__:
        assert getattr(sklearn_kmtrf, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'KMeans'"):
        sklearn_kmtrf.KMeans  # noqa: B018
