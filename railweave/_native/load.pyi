"""Load on a switch that runs the aggregation program"""

from collections.abc import Sequence


def drive(fds: Sequence[int], lanes: int, segments: int, slots: int, first_round: int, warm_up_s: float, seconds: float) -> dict:
    """
    Contribute to group 1 over these connected UDP sockets (one per worker) in a closed loop of `slots` chunks, sent as super-packets of `segments`; counts of right, wrong and repeated contributions
    """
