"""The records that the stages of a campaign hand to each other, as Pydantic models."""
