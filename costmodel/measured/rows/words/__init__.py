"""Words of rows: phrases of meanings, whether a text says or denies them, and links in any unit."""

from typing import TYPE_CHECKING

from costmodel import door

if TYPE_CHECKING:
    from costmodel.measured.rows.words import kinds as kinds
    from costmodel.measured.rows.words import meanings as meanings
    from costmodel.measured.rows.words.grammar import Table as Table
    from costmodel.measured.rows.words.grammar import absent as absent
    from costmodel.measured.rows.words.grammar import chosen as chosen
    from costmodel.measured.rows.words.grammar import named as named
    from costmodel.measured.rows.words.grammar import number as number
    from costmodel.measured.rows.words.grammar import said as said
    from costmodel.measured.rows.words.links import between_nodes as between_nodes
    from costmodel.measured.rows.words.links import inside as inside
    from costmodel.measured.rows.words.own_words import clauses as clauses
    from costmodel.measured.rows.words.refusals import other_than_pretraining as other_than_pretraining
    from costmodel.measured.rows.words.spelling import numbered as numbered

door.hang(__name__)
