r"""Rounds to a target: rates of distributed methods on strongly convex quadratics, as functions of plain numbers.

A rate is a dict of `step`, `rate`, `floor` and `start`: after $k$ rounds
$E\|x_k-x^*\|^2 \le (\text{start}\,(1-\text{rate})^k + \text{floor})\,\|x_0-x^*\|^2$. It is an upper bound, never
violated; exact are the errors of `moments` and `subnetworks`. Arguments are `constants` of a problem: $\mu$
(`mu`), $L$ (`smooth`) of the mean, $L_{max}$ (`smooth_max`) of the workers, their number $n$, `spread` (0 under
interpolation), and $\omega$ of the compressor, $E\|C(v)-v\|^2 \le \omega\|v\|^2$: $d/K - 1$ for K random of d
coordinates. All are differentiable in all of them; a float, NumPy and JAX will do.

The derivations are short, and stand with each function; they use that the Hessians of a quadratic obey
$\frac1n\sum\|\nabla f_i(x)-\nabla f_i(x^*)\|^2 \le L_{max} e^\top\bar L e$ with $e = x - x^*$. Orders of growth as
published: Shulgin and Richtarik, arXiv 2306.16484; EF21 with bells and whistles, arXiv 2110.03294, table 1.
"""

from collections.abc import Callable, Mapping

from costmodel.semantics import Scalar, Semantics, Verdict

Rate = Mapping[str, Scalar]


def gradient_descent(mu: Scalar, smooth: Scalar, **others: Scalar) -> Rate:
    r"""Step $1/L$: every mode shrinks by at most $1-\mu/L$. The published $\kappa$ of theorem 1 with $C = I$."""
    del others
    step = 1.0 / smooth
    return _rate(step, 1 - (1 - step * mu) ** 2)


def local_steps(mu_least: Scalar, smooth_max: Scalar, local: Scalar, **others: Scalar) -> Rate:
    r"""$\tau$ steps of $1/L_{max}$ a round: the mean of $(I-\gamma L_i)^\tau$ is at most $(1-\gamma\mu_{least})^\tau$.

    The floor is 0 under interpolation alone; else the bias that `moments.local_map` gives exactly.
    """
    del others
    step = 1.0 / smooth_max
    return _rate(step, 1 - (1 - step * mu_least) ** (2 * local))


def dcgd(
    mu: Scalar,
    smooth: Scalar,
    smooth_max: Scalar,
    workers: Scalar,
    spread: Scalar,
    omega: Scalar,
    shrink: Scalar = 1.0,
    **_: Scalar,
) -> Rate:
    r"""Compressed gradients, step $1/(L+2\omega L_{max}/n)$ times `shrink`, at most 1.

    To a floor of $2\gamma\omega/(\mu n)$ times the spread:
    $E\|g\|^2 \le e^\top\bar L e\,(L+2\omega L_{max}/n) + \frac{2\omega}{n}s$ with
    $s = \frac1n\sum\|\nabla f_i(x^*)\|^2$, so at this step
    $E\|e^+\|^2 \le (1-\gamma\mu)\|e\|^2 + \gamma^2\frac{2\omega}{n}s$.
    """
    step = shrink / (smooth + 2 * omega * smooth_max / workers)
    return _rate(step, step * mu, floor=2 * step * omega / (mu * workers) * spread)


def diana(mu: Scalar, smooth: Scalar, smooth_max: Scalar, workers: Scalar, spread: Scalar, omega: Scalar, **_) -> Rate:
    r"""Compressed differences, step $1/(L+6\omega L_{max}/n)$, shifts that start at 0 and learn with
    $\alpha = 1/(1+\omega)$: to the exact optimum.

    $V = \|e\|^2 + \gamma^2\frac{4\omega}{n\alpha}\frac1n\sum\|h_i-\nabla f_i(x^*)\|^2$ shrinks by
    $1-\min(\gamma\mu, \alpha/2)$; for the minimum stands the reciprocal of the sum of reciprocals, which is below it.
    """
    learn, step = 1.0 / (1 + omega), 1.0 / (smooth + 6 * omega * smooth_max / workers)
    slower = 1.0 / (1.0 / (step * mu) + 2.0 / learn)
    return _rate(step, slower, start=1 + step**2 * 4 * omega / (workers * learn) * spread)


def ef21(mu: Scalar, smooth: Scalar, smooth_rms: Scalar, alpha: Scalar, **_: Scalar) -> Rate:
    r"""Top-k of differences, a contraction by $1-\alpha$ ($\alpha \ge K/d$), estimates that start exact.

    $\gamma = 1/(L+\tilde L\sqrt{2\beta/\theta})$ with $\theta = 1-\sqrt{1-\alpha}$, $\beta = (1-\alpha)/\theta$:
    $\Psi = f-f^* + \frac{\gamma}{\theta}\frac1n\sum\|g_i-\nabla f_i\|^2$ shrinks by $1-\gamma\mu$ where
    $\gamma\mu \le \theta/2$, and $\|e\|^2 \le 2\Psi/\mu$.
    """
    theta = 1 - (1 - alpha) ** 0.5
    step = 1.0 / (smooth + smooth_rms * (2 * (1 - alpha)) ** 0.5 / theta)
    return _rate(step, step * mu, start=smooth / mu)


def plain_subnetworks(
    slowest: Scalar,
    smooth_max: Scalar,
    bias: Scalar = 0.0,
    noise: Scalar = 0.0,
    shrink: Scalar = 1.0,
    **_: Scalar,
) -> Rate:
    r"""IST with plain masks, step $1/L_{max}$ times `shrink`, at most 1.

    The rate is $\gamma(2-\gamma L_{max})\lambda_{min}(M)$, the floor that of `subnetworks.plain_floor`; `bias` and
    `noise` are over the first distance, 0 under interpolation. Proved for every round under interpolation, and else for
    the floor alone, after many rounds.
    """
    step = shrink / smooth_max
    slope = (2 - shrink) * slowest
    return _rate(step, step * slope, floor=bias + step * noise / slope)


def scaled_subnetworks(step: Scalar, bias: Scalar, noise: Scalar, **_: Scalar) -> Rate:
    r"""IST with scaled permutations: rate $1-(1-\gamma)^2$, whatever the condition, to a floor that only its noise part
    lets the step lower: `bias` $\|h\|^2$ and `noise` $\mathrm{tr}\,\mathrm{Cov}$ over the first distance.

    $\|E e_k\|^2 \le ((1-\gamma)^k\|x_0-x_\infty\| + \|h\|)^2 \le 2(1-\gamma)^{2k}\|x_0-x_\infty\|^2 + 2\|h\|^2$.
    """
    near = 2 * (1 + bias**0.5) ** 2
    return _rate(step, 1 - (1 - step) ** 2, floor=2 * bias + step * noise / (2 - step), start=near)


RATES: Mapping[str, Callable[..., Rate]] = {
    "gradient_descent": gradient_descent,
    "local_steps": local_steps,
    "dcgd": dcgd,
    "diana": diana,
    "ef21": ef21,
    "plain_subnetworks": plain_subnetworks,
    "scaled_subnetworks": scaled_subnetworks,
}
"""Every method by name; each takes what it reads of one set of numbers and leaves the rest."""


def _rate(step: Scalar, rate: Scalar, floor: Scalar = 0.0, start: Scalar = 1.0) -> Rate:
    return {"step": step, "rate": rate, "floor": floor, "start": start}


def reaches(rate: Rate, target: Scalar) -> Verdict:
    """Whether a relative squared error is above the floor: below it no number of rounds is enough."""
    return target > rate["floor"]


def rounds(rate: Rate, target: Scalar, sem: Semantics) -> Scalar:
    r"""Rounds until the relative squared error is `target`: $\log\frac{\text{start}}{\text{target}-\text{floor}} /
    \log\frac1{1-\text{rate}}$. For targets above the floor (`reaches`)."""
    return sem.log2(rate["start"] / (target - rate["floor"])) / -sem.log2(1 - rate["rate"])
