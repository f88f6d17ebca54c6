"""Which layout is best for given jobs, predicted from measurements; runs nothing itself."""
