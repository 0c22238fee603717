"""Parts of the `speed` experiment: what is evaluated, how it is timed, what the machine could do, and the figures."""
