"""The p-values of a report again, from the values of every query and run: numpy and scipy alone.

    python docs/examples/recompute.py per_query.csv comparisons.csv nDCG@10

per_query.csv has a line `cell,seed,query_id,measure,value` for each system, run and query, as
`ranksweep.load(DIR).per_query.to_csv("per_query.csv")` writes it; comparisons.csv is that of a
report. For each pair of systems in both files it computes the difference, its standard error,
degrees of freedom and the uncorrected p over queries and training runs by the formulas of
docs/statistics.md ("One comparison"), and prints them beside the report's. Nothing of ranksweep is
imported."""

import csv
import sys

import numpy as np
from scipy import optimize, stats


def rows_of(path, measure):
    with open(path, newline="") as file:
        return [row for row in csv.DictReader(file) if row["measure"] == measure]


def tables(rows):
    """{system: values of runs (rows) and queries (columns)}, queries in one order."""
    cells = {}
    for row in rows:
        runs = cells.setdefault(row["cell"], {})
        runs.setdefault(int(row["seed"]), {})[row["query_id"]] = float(row["value"])
    queries = sorted({q for runs in cells.values() for run in runs.values() for q in run})
    return {
        cell: np.array([[runs[seed][q] for q in queries] for seed in sorted(runs)])
        for cell, runs in cells.items()
    }


def side(y):
    """V_s and V_e of the runs of one system, with their degrees of freedom."""
    S, Q = y.shape
    rest = y - y.mean(1, keepdims=True) - y.mean(0) + y.mean()
    V_s = y.mean(1).var(ddof=1) / S
    V_e = (rest**2).sum() / ((S - 1) * (Q - 1)) / (Q * S)
    return V_s, V_e, S - 1, (S - 1) * (Q - 1)


def compare(a, b, paired):
    """The difference of two systems, its standard error, degrees of freedom and p."""
    d = a.mean(0) - b.mean(0)
    Q, delta = len(d), d.mean()
    V, parts, smallest = d.var(ddof=1) / Q, [(d.var(ddof=1) / Q, Q - 1)], Q - 1
    for y in [a - b] if paired else [a, b]:
        if len(y) > 1:
            V_s, V_e, f_s, f_e = side(y)
            V += max(V_s - V_e, 0)
            parts += [(V_s, f_s), (-V_e, f_e)]
            smallest = min(smallest, f_s)
    w, f = np.array(parts).T / [[V], [1]]
    u, a_2, b_3 = (w**2 / f).sum(), (w**2 / f**2).sum(), (w**3 / f**2).sum()

    def df(z):
        bend = 4 / 3 * (z**2 - 1 / (1 + z**2)) * max(b_3 - u**2, 0)
        inverse = u - 2 * a_2 + 16 / 3 * b_3 - 10 / 3 * u**2 + bend
        return 1 / min(max(inverse, u), max(u, 1 / smallest))

    T = abs(delta) / V**0.5
    most = stats.norm.isf(stats.t.sf(T, 1 / u)) + 1e-9  # that of Satterthwaite's degrees of freedom
    z = optimize.brentq(lambda z: stats.t.isf(stats.norm.sf(z), df(z)) - T, 0, most, xtol=1e-12)
    return delta, V**0.5, df(stats.norm.ppf(0.975)), 2 * stats.norm.sf(z)


def main(per_query, comparisons, measure):
    systems = tables(rows_of(per_query, measure))
    print("system, baseline: delta, standard error, degrees of freedom, p (and as reported)")
    for row in rows_of(comparisons, measure):
        pair = row["system"], row["baseline"]
        if not set(pair) <= systems.keys() or row["p_both"] in ("", "nan"):
            continue
        found = compare(*(systems[name] for name in pair), row["paired_runs"] == "True")
        named = [float(row[name]) for name in ("delta", "se_both", "df_both", "p_both")]
        texts = [f"{x:.6g} ({y:.6g})" for x, y in zip(found, named, strict=True)]
        print(", ".join(pair), ":", ", ".join(texts))
        yield np.abs(np.array(found) - named).max()


if __name__ == "__main__":
    print(f"largest difference: {max(main(*sys.argv[1:])):.1g}")
