"""The console command `equipoise`: one module for each command."""

from typing import TYPE_CHECKING

from costmodel import door

if TYPE_CHECKING:
    from optimize.cli.design import answer_json as answer_json
    from optimize.cli.design import resolve_design as resolve_design
    from optimize.cli.main import as_process as as_process
    from optimize.cli.main import main as main
    from optimize.cli.run import run as run

door.hang(__name__)
