"""Parts that can be bought or rented, one TOML file each, and in `links/` what joins them; in SI units, each figure with its source."""
