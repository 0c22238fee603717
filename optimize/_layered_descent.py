"""stub"""
import dataclasses
@dataclasses.dataclass
class Descended:
    rounded_s: float
    trajectory_s: tuple
    evaluations: int
def descend(*a):
    return None
