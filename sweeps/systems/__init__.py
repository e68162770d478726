"""Systems and their scores: from the folder of a sweep, a pile of runs or kept chunk scores."""
