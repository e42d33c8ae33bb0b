"""Tables in text files: numbers in, labels out."""

import csv
import io
import os
import re
import sys
from array import array
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import numpy as np

# In the order in which they are tried: a comma may also be a decimal comma.
DELIMITERS = ("\t", ";", ",")

# Characters of text in memory at once.
HEAD_SIZE = 2**16
BLOCK_SIZE = 2**22

MISSING = {"", "-", "?", "na", "n/a", "#n/a", "none", "null"}

DECIMAL_COMMA = re.compile(r"[+-]?[\d.]*,\d+([eE][+-]?\d+)?")


class InputError(ValueError):
    """What the user gave cannot be used; the message is a sentence that says why."""


@dataclass(frozen=True)
class Table:
    """Numbers read from text.

    Attributes
    ----------
    values : ndarray of shape (n_rows, n_columns), float64

    names : list of str, or None
        Names of the columns, if the text has a header.
    """

    values: np.ndarray
    names: list[str] | None


def read_table(path, delimiter=None):
    """Read a table of finite numbers.

    The first line is a header if some cell of it is text. Every other line is a row:
    empty lines are accepted at the end only.

    Parameters
    ----------
    path : str
        File in UTF-8, with or without a byte order mark; ``"-"`` is standard input.

    delimiter : str, default=None
        One character between cells. By default a tab, a semicolon or a comma,
        whichever the first two lines use.

    Returns
    -------
    table : Table

    Raises
    ------
    InputError
        If the text cannot be read, holds no rows, rows of different lengths, or a
        cell that is not a finite number.
    """
    name = "standard input" if path == "-" else path
    try:
        with _text(path) as stream:
            return _read(stream, name, delimiter)
    except OSError as error:
        raise InputError(f"Cannot read {name}: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise InputError(f"{name} is not text in UTF-8.") from None


@contextmanager
def _text(path):
    """Open a file or standard input as text."""
    if path != "-":
        with open(path, encoding="utf-8-sig") as stream:
            yield stream
        return
    if sys.stdin is None:
        raise InputError("Cannot read standard input: it is closed.")
    stream = io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8-sig")
    try:
        yield stream
    finally:
        # Otherwise standard input would be closed together with the wrapper.
        stream.detach()


def _read(stream, name, delimiter):
    """Read a table from an open text, block by block."""
    head = stream.readlines(HEAD_SIZE)
    if not any(map(_has_cells, head)):
        raise InputError(f"{name} is empty.")
    try:
        delimiter = delimiter or detect_delimiter(head)
        # The only row that may go over several lines, in quotes.
        reader = _rows(head, delimiter, strict=True)
        first = next(reader)
    except csv.Error as error:
        raise _quoting_error(f"{name}, line 1", error) from None
    has_header = any(map(is_text, first))
    rows = RowReader(name, delimiter, first, has_header)

    # An array of the standard library grows in place, where concatenating blocks of
    # NumPy would hold every number twice.
    numbers = array("d")
    skipped = reader.line_num if has_header else 0
    line_number, lines = 1 + skipped, head[skipped:]
    empty_line = None
    while True:
        n_rows = len(lines)
        while n_rows and not _has_cells(lines[n_rows - 1]):
            n_rows -= 1
        if n_rows:
            if empty_line is not None:
                raise InputError(f"{name}, line {empty_line} is empty.")
            numbers.frombytes(rows.parse(lines[:n_rows], line_number).tobytes())
        if n_rows < len(lines) and empty_line is None:
            empty_line = line_number + n_rows
        line_number += len(lines)
        lines = stream.readlines(BLOCK_SIZE)
        if not lines:
            break
    if not numbers:
        raise InputError(f"{name} has a header but no rows below it.")
    return Table(np.frombuffer(numbers).reshape(-1, len(first)), rows.names)


def detect_delimiter(lines):
    """Find the character between cells from the first two lines.

    Parameters
    ----------
    lines : list of str
        At least one.

    Returns
    -------
    delimiter : str
        That one of `DELIMITERS` which splits both lines into the same number of
        cells, more than one; else that which splits the second into most; a comma if
        none occurs.

    Examples
    --------
    >>> detect_delimiter(["a;b", "1,5;2"])
    ';'
    """
    second = lines[1] if len(lines) > 1 and _has_cells(lines[1]) else lines[0]
    counts = {}
    for delimiter in DELIMITERS:
        first_row, second_row = (
            next(_rows([line], delimiter), []) for line in (lines[0], second)
        )
        if len(second_row) > 1 and len(first_row) == len(second_row):
            return delimiter
        counts[delimiter] = len(second_row)
    best = max(counts, key=counts.get)
    return best if counts[best] > 1 else ","


class RowReader:
    """Turns lines below the header into numbers.

    Parameters
    ----------
    name : str
        What the text is called in messages.

    delimiter : str

    first : list of str
        The cells of the first line.

    has_header : bool
        Whether they are names.
    """

    def __init__(self, name, delimiter, first, has_header):
        self.name, self.delimiter, self.width = name, delimiter, len(first)
        self.names = [cell.strip() for cell in first] if has_header else None

    def parse(self, lines, line_number):
        """Turn lines into numbers.

        Parameters
        ----------
        lines : list of str
            At least one.

        line_number : int
            Of the first of them, from 1.

        Returns
        -------
        values : ndarray of shape (len(lines), n_columns)
        """
        try:
            values = np.loadtxt(
                lines,
                delimiter=self.delimiter,
                comments=None,
                quotechar='"',
                ndmin=2,
            )
        except ValueError:
            return self._parse_slowly(lines, line_number)
        # loadtxt skips empty lines and joins lines within quotes.
        if values.shape == (len(lines), self.width) and np.isfinite(values).all():
            return values
        return self._parse_slowly(lines, line_number)

    def _parse_slowly(self, lines, line_number):
        """Parse cell by cell, which finds the first fault."""
        return np.array(
            [self._row(line, line_number + i) for i, line in enumerate(lines)],
            dtype=np.float64,
        )

    def _row(self, line, line_number):
        """Turn one line into numbers."""
        place = f"{self.name}, line {line_number}"
        if not _has_cells(line):
            raise InputError(f"{place} is empty.")
        try:
            row = next(_rows([line], self.delimiter, strict=True))
        except csv.Error as error:
            raise _quoting_error(place, error) from None
        if len(row) != self.width:
            raise InputError(
                f"{place} has {_count(len(row), 'cell')} where line 1 has "
                f"{self.width}{self._hint()}."
            )
        for i, cell in enumerate(row):
            fault = fault_of(cell)
            if fault:
                raise InputError(f"{place}, {self._column(i)}: {fault}{self._hint()}.")
        return [float(cell) for cell in row]

    def _column(self, index):
        """Say which column, for a message."""
        title = self.names[index] if self.names else ""
        return f"column {index + 1}" + (f" ({_quoted(title)})" if title else "")

    def _hint(self):
        """Say what may have gone wrong if the table has a single column."""
        if self.width > 1:
            return ""
        return f" (cells are separated by {self.delimiter!r}; see --delimiter)"


def is_number(cell):
    """Whether a cell holds a number, possibly not a finite one."""
    text = cell.strip()
    # Python's own notation is wider: 1_000, and digits of other scripts.
    if "_" in text or not text.isascii():
        return False
    try:
        float(text)
    except ValueError:
        return False
    return True


def is_text(cell):
    """Whether a cell holds neither a number nor a sign for a missing one.

    Examples
    --------
    >>> [is_text(cell) for cell in ["width", "-1e3", "nan", "", "NA", "1,5"]]
    [True, False, False, False, False, False]
    """
    text = cell.strip()
    return not (
        is_number(text) or text.lower() in MISSING or DECIMAL_COMMA.fullmatch(text)
    )


def fault_of(cell):
    """Say why a cell is not a finite number.

    Parameters
    ----------
    cell : str

    Returns
    -------
    fault : str or None
        None if it is one.

    Examples
    --------
    >>> fault_of("1,5")
    "'1,5' has a decimal comma, where a decimal point is needed"
    >>> fault_of(" 1.5 ")
    """
    text = cell.strip()
    if is_number(text):
        if np.isfinite(float(text)):
            return None
        return f"{_quoted(text)} is not a finite number"
    if not text:
        return "the cell is empty"
    if text.lower() in MISSING:
        return f"{_quoted(text)} stands for a missing number"
    if DECIMAL_COMMA.fullmatch(text):
        return f"{_quoted(text)} has a decimal comma, where a decimal point is needed"
    return f"{_quoted(text)} is not a number"


def _rows(lines, delimiter, strict=False):
    """Split lines into cells."""
    return csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=strict)


def _quoting_error(place, error):
    """Make the error of a line that the csv module cannot split."""
    return InputError(f"{place}: the quotes do not match ({error}).")


def _has_cells(line):
    """Whether a line is not empty; a tab is two cells."""
    return bool(line.strip(" \n"))


def _quoted(text):
    """Shorten and quote a cell for a message."""
    return repr(text if len(text) <= 40 else text[:37] + "...")


def _count(number, noun):
    """Join a number and its noun."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def write_labels(file, labels):
    """Write a table of one column: the header ``label``, then the label of each row.

    Parameters
    ----------
    file : binary file

    labels : ndarray of shape (n_rows,), int
    """
    file.write(b"label\n")
    for start in range(0, len(labels), 65_536):
        block = labels[start : start + 65_536].tolist()
        file.write("".join(f"{label}\n" for label in block).encode())


def write_all(writers):
    """Write several files: all of them, or none.

    Parameters
    ----------
    writers : dict of str to callable
        For each path a function that writes to a binary file.

    Raises
    ------
    InputError
        If the system refuses.
    """
    targets = [os.path.realpath(path) for path in writers]
    temporary = [f"{target}.{os.getpid()}.tmp" for target in targets]
    written = []
    try:
        for path, write in zip(temporary, writers.values(), strict=True):
            with open(path, "xb") as file:
                written.append(path)
                write(file)
        for path, target in zip(temporary, targets, strict=True):
            os.replace(path, target)
            written.append(target)
    except BaseException as error:
        for path in written:
            with suppress(FileNotFoundError):
                os.remove(path)
        if isinstance(error, OSError):
            raise InputError(
                f"Cannot write {error.filename or 'the output'}: {error.strerror}."
            ) from None
        raise
