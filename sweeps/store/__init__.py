"""The files of a storage, on disk or at a URI: trials with their attempts, a sweep's own file."""
