"""The columns of rows: what stands in them, and the names that people give them."""

from typing import TYPE_CHECKING

from costmodel import door

if TYPE_CHECKING:
    from costmodel.measured.rows.headers.column_words import COLUMN_WORDS as COLUMN_WORDS

door.hang(__name__)
