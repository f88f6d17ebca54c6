"""The campaign's config: one truth for validation, schema, documentation and expansion to runs."""
