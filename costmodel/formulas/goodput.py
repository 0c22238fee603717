r"""Goodput: seconds of the clock for a second of training, with failures, checkpoints, restarts and lost work.

$$\lambda = \frac{n}{t_a} + \frac1{t_j},\quad \delta = s\,\frac{B}{n\,r},\quad
x(\tau) = \frac\delta\tau + \lambda\Big(R + \delta + \frac\tau2\Big) + s_l\,\frac{n\,d}{t_s},\quad
\text{elapsed} = e^{x}$$

$n$ accelerators, one of which fails every $t_a$ in the mean, a job that is interrupted every $t_j$ for other reasons
(one rate per accelerator alone misses small jobs by 3.7 times), $B$ bytes of state written at $r$ by each accelerator,
training waiting for the share $s$; $R$ from a failure until training goes on. Half an interval
$\tau$ is lost in the mean; $x$ is least at $\tau = \sqrt{2\delta/\lambda}$ (Young 1974), where it is
$\sqrt{2\delta\lambda} + \lambda(R+\delta)$.

Exactly, with failures at random (Daly 2006), elapsed is $e^{\lambda R}(e^{\lambda(\tau+\delta)}-1)/(\lambda\tau)$: the
same to second order in $\lambda\tau$ and $\delta/\tau$ (a test: within a tenth of what is lost, up to 0.3). A product
stands for the exponential, so that all is a posynomial and never below one: it falls short by $x^2/32$.

Stragglers: a step waits for the slowest, so that one accelerator of $n$ that turns slow, every $t_s$ in the mean, makes
all steps longer by the share $s_l$ until it is found or recovers, $d$ later. At one time $n d / t_s$ are slow; as two
at once take no longer than one, the term is above the truth, $s_l(1 - e^{-nd/t_s})$, by at most half of $n d / t_s$ of
it (a test plays it out). Shipped is $s_l = 0$: measured steps, and what was fitted to them (`Stack.jitter_s`,
`congestion`), hold the usual ones already, and nothing is counted twice. Published: 16 of 27 large jobs of a shared
cluster were slowed, all together delayed by 34.6 %; networks were slow for 24 minutes in the mean, processors for 10
(Wu et al. 2024, Falcon, arXiv 2410.12588).

Spares: a restart $R$ finds one ready, of $k\,n\,r/t_a$ that are bought and powered idle: $n r/t_a$ failures are under
repair in the mean, for $r$ each (Little 1961), and take a server each with them. $k$ is that server and what bunches
of failures need beside; at fewer than 16 under repair it takes more (a test draws them). Shipped is $r = 0$: they are
another's, and whoever has none adds the wait for a repair to `restart_s`. Failures of the job alone need none.
"""

from costmodel.inputs import Prices
from costmodel.semantics import Scalar

STATE_BYTES = 14.0
"""Bytes of a checkpoint for each parameter: weights in 16 bits, their 32-bit copy and two states of Adam."""
_FACTORS = 16
_NOTHING = 1e-36  # lost in float32 too: where nothing fails, the root has a slope


def failures_per_s(prices: Prices, accelerators: Scalar) -> Scalar:
    r"""Interruptions of a job on so many accelerators, $\lambda$, per second."""
    return accelerators / prices.accelerator_failure_s + 1.0 / prices.job_failure_s


def checkpoint_s(prices: Prices, accelerators: Scalar, state_bytes: Scalar) -> Scalar:
    r"""Seconds for which training waits at a checkpoint, $\delta$: every accelerator writes its share."""
    return prices.checkpoint_stall * state_bytes / (accelerators * prices.checkpoint_bytes_per_s)


def interval_s(rate_per_s: Scalar, wait_s: Scalar) -> Scalar:
    r"""The best seconds between checkpoints, $\sqrt{2\delta/\lambda}$ (Young 1974)."""
    return (2.0 * wait_s / rate_per_s) ** 0.5


def slow_share(prices: Prices, accelerators: Scalar) -> Scalar:
    r"""What slow accelerators add to a second of training, $s_l n d / t_s$."""
    return prices.slow_by * prices.slow_for_s * accelerators / prices.slow_accelerator_s


def spare_share(prices: Prices) -> Scalar:
    r"""Spare accelerators for each that trains, $k\,r/t_a$."""
    return prices.spares_per_repair * prices.server_repair_s / prices.accelerator_failure_s


def lost_share(rate_per_s: Scalar, wait_s: Scalar, restart_s: Scalar, every_s: Scalar) -> Scalar:
    r"""What checkpoints, restarts and lost work add to a second of training: $x(\tau)$ without stragglers."""
    return wait_s / every_s + rate_per_s * (restart_s + wait_s + 0.5 * every_s)


def elapsed(prices: Prices, accelerators: Scalar, state_bytes: Scalar) -> Scalar:
    """Seconds of the clock for one of training, at the best interval; 1 where nothing fails. Goodput: 1 over it."""
    rate_per_s, wait_s = failures_per_s(prices, accelerators), checkpoint_s(prices, accelerators, state_bytes)
    share = (2.0 * wait_s * rate_per_s + _NOTHING) ** 0.5 + rate_per_s * (prices.restart_s + wait_s)
    share = share + slow_share(prices, accelerators)
    return (1.0 + share / _FACTORS) ** _FACTORS
