"""Black boxes of others, on the same vectors and the same vectorised evaluator."""

from collections.abc import Callable

import numpy as np

from experiments.search_quality.recorder import OverTimeError

Values = Callable[[np.ndarray], np.ndarray]
Go = Callable[[], bool]


def scipy_differential(values: Values, genes: int, seed: int, go: Go) -> None:
    """SciPy's own, vectorised, until the time is up; restarted where it has converged."""
    from scipy.optimize import differential_evolution

    def objective(columns: np.ndarray) -> np.ndarray:
        if not go():
            raise OverTimeError
        return values(columns.T)

    settings = {"vectorized": True, "updating": "deferred", "polish": False, "popsize": 10, "maxiter": 10**6}
    try:
        while go():
            differential_evolution(objective, [(0.0, 1.0)] * genes, rng=np.random.default_rng(seed), **settings)
            seed += 1
    except OverTimeError:
        return


def cma_es(values: Values, genes: int, seed: int, go: Go) -> None:
    """CMA-ES with restarts of growing populations (IPOP), bounded to the cube."""
    import cma  # pyright: ignore[reportMissingImports]

    generator, size = np.random.default_rng(seed), 4 + int(3 * np.log(genes))
    while go():
        options = {"bounds": [0.0, 1.0], "verbose": -9, "popsize": size, "seed": int(generator.integers(1, 2**31))}
        strategy = cma.CMAEvolutionStrategy(generator.random(genes), 0.3, options)
        while go() and not strategy.stop():
            asked = strategy.ask()
            strategy.tell(asked, values(np.array(asked)).tolist())
        size = min(2 * size, 512)


def optuna_tpe(values: Values, genes: int, seed: int, go: Go, batch: int = 16) -> None:
    """Optuna's TPE, multivariate, asked for batches."""
    import optuna  # pyright: ignore[reportMissingImports]

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.TPESampler(
        seed=seed, multivariate=True, constant_liar=True, warn_independent_sampling=False
    )
    study = optuna.create_study(sampler=sampler)
    space = {f"x{i}": optuna.distributions.FloatDistribution(0.0, 1.0) for i in range(genes)}
    while go():
        trials = [study.ask(space) for _ in range(batch)]
        scores = values(np.array([[trial.params[name] for name in space] for trial in trials]))
        for trial, value in zip(trials, scores.tolist(), strict=True):
            study.tell(trial, value)
