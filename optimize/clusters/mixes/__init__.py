"""Several jobs, one after another on one cluster: answers by exact steps in NumPy, bounds by boxes of hardware."""

from typing import TYPE_CHECKING

from costmodel import door

if TYPE_CHECKING:
    from optimize.clusters.mixes.progress import Mixed as Mixed
    from optimize.clusters.mixes.progress import MixProgress as MixProgress
    from optimize.clusters.mixes.search import search_mix as search_mix

door.hang(__name__)
