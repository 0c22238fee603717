"""Independent answers that the tests compare the formulas with. Nothing here imports a formula."""
