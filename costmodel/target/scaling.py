r"""Scaling laws: what loss so many parameters and tokens reach, and what a target loss needs.

$$L(N, D) = E + \frac{A}{N^\alpha} + \frac{B}{D^\beta}$$

in nats a token. At $C = 6ND$ FLOP the best allocation is $N = G\,(C/6)^{a}$, $D = G^{-1}(C/6)^{1-a}$ with
$a = \beta/(\alpha+\beta)$ and $G = (\alpha A/\beta B)^{1/(\alpha+\beta)}$ (Hoffmann et al. 2022, equation 4). $6ND$
leaves attention and embeddings out. Limits: one epoch of text like that of the fit, below 16 billion parameters; the
laws say nothing of a particular model's loss on other data.

Critical batch: $B_c = B_*/L^{1/\alpha_B}$ tokens; so many steps $S = S_{min}(1 + B_c/B)$ and tokens
$D = D_{min}(1 + B/B_c)$ reach the loss of $S_{min}$ steps of any size or $D_{min}$ tokens in small steps (Kaplan et al.
2020, section 5.1).
"""

from collections.abc import Iterator, Mapping

import numpy as np

from costmodel.semantics import Scalar

Law = Mapping[str, Scalar]
LAWS: Mapping[str, Law] = {
    "hoffmann-2022": {"floor": 1.6934, "a": 406.4, "b": 410.7, "alpha": 0.3392, "beta": 0.2849},
    "besiroglu-2024": {"floor": 1.8172, "a": 482.01, "b": 2085.43, "alpha": 0.3478, "beta": 0.3658},
}
"""Constants by publication: Hoffmann et al. 2022 (arXiv 2203.15556), approach 3, whose intervals are too narrow, and
Besiroglu et al. 2024 (arXiv 2404.10102), the refit of its figure, with standard errors below."""
LAW = "besiroglu-2024"
"""The one that is taken where none is named."""
STANDARD_ERRORS: Law = {"floor": 0.03, "alpha": 0.02, "beta": 0.02}
"""Of the refit, as published (A 124.6 and B 1293 besides, which are mostly those of the exponents again)."""
CRITICAL_BATCH = {"tokens": 2.1e8, "power": 0.21}
"""$B_*$ and $\alpha_B$ of Kaplan et al. 2020 (arXiv 2001.08361), figure 10; the text prints 2.0e8."""


def loss(law: Law, parameters: Scalar, tokens: Scalar) -> Scalar:
    """Nats a token after `tokens`, of a model of so many parameters."""
    return law["floor"] + law["a"] / parameters ** law["alpha"] + law["b"] / tokens ** law["beta"]


def floor_of(law: Law, parameters: Scalar) -> Scalar:
    """The loss that a model of this size comes down to with any number of tokens."""
    return law["floor"] + law["a"] / parameters ** law["alpha"]


def tokens_for(law: Law, parameters: Scalar, target: Scalar) -> Scalar:
    """Tokens after which the loss is `target`, for targets above `floor_of`."""
    return (law["b"] / (target - floor_of(law, parameters))) ** (1.0 / law["beta"])


def best_parameters(law: Law, flop: Scalar) -> Scalar:
    r"""The size that loses least at $C = 6ND$ FLOP; the tokens are C over six times it."""
    alpha, beta = law["alpha"], law["beta"]
    spread = (alpha * law["a"] / (beta * law["b"])) ** (1.0 / (alpha + beta))
    return spread * (flop / 6.0) ** (beta / (alpha + beta))


def least_flop(law: Law, target: Scalar) -> Scalar:
    r"""The least $6ND$ that reaches a loss above the law's floor: there the terms are as $\beta$ to $\alpha$."""
    alpha, beta = law["alpha"], law["beta"]
    above = target - law["floor"]
    size = (law["a"] * (alpha + beta) / (beta * above)) ** (1.0 / alpha)
    return 6.0 * size * tokens_for(law, size, target)


def critical_batch(target: Scalar) -> Scalar:
    """Tokens of a step beyond which larger steps save less than half of the steps that they cost in tokens."""
    return CRITICAL_BATCH["tokens"] / target ** (1.0 / CRITICAL_BATCH["power"])


def tokens_at_batch(tokens: Scalar, batch_tokens: Scalar, target: Scalar) -> Scalar:
    r"""Tokens in steps of so many, where `tokens` in small steps reach the target: $D(1 + B/B_c)$."""
    return tokens * (1.0 + batch_tokens / critical_batch(target))


def sampled(law: str, samples: int, seed: int = 0) -> Iterator[Law]:
    r"""Draws of the constants, jointly: never A and B apart from their exponents, with which they are fitted.

    Published are standard errors, not how they correlate. Assumed is that each term keeps its value where the data
    were, at $10^9$ parameters and $2\cdot10^{10}$ tokens, whatever its exponent. Only the refit has such errors; the
    other law takes them too.
    """
    draw, center = np.random.default_rng(seed), LAWS[law]
    for _ in range(samples):
        moved = {name: STANDARD_ERRORS[name] * float(draw.standard_normal()) for name in ("floor", "alpha", "beta")}
        own = {name: center[name] + move for name, move in moved.items()}
        yield own | {"a": center["a"] * 1e9 ** moved["alpha"], "b": center["b"] * 2e10 ** moved["beta"]}
