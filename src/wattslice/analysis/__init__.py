"""From raw files to figures, tables and ratios; knows neither torch nor a board."""
