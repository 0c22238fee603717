"""The columns of rows: what stands in them, and the names that people give them."""

from typing import TYPE_CHECKING

from costmodel import door

if TYPE_CHECKING:
    from costmodel.measured.rows.headers.column_words import COLUMN_WORDS as COLUMN_WORDS
    from costmodel.measured.rows.headers.own_columns import column_readings as column_readings
    from costmodel.measured.rows.headers.own_columns import unread as unread
    from costmodel.measured.rows.headers.own_rows import translated as translated
    from costmodel.measured.rows.headers.quantities import COUNTED as COUNTED
    from costmodel.measured.rows.headers.quantities import measured as measured
    from costmodel.measured.rows.headers.quantities import tokens_told as tokens_told

door.hang(__name__)
