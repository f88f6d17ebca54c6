"""Charts, tables and the report; everything offline."""
