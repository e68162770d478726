"""The report's figures; each module draws one."""
