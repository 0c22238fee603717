"""The Stack's parameters from measured rows: a hierarchy of constants, fitted by gradient, with their uncertainty."""
