"""What users add under a name of their own, checked before it counts: models, schedules, collectives."""

from typing import TYPE_CHECKING

from costmodel import door

if TYPE_CHECKING:
    from costmodel.register.collectives import register_collective as register_collective
    from costmodel.register.models import register_model as register_model
    from costmodel.register.schedules import register_schedule as register_schedule

door.hang(__name__)
