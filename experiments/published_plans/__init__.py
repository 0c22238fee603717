"""Plans that large runs published."""
