"""The report's sections below the table; each module is one."""
