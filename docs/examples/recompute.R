# The p-values of a report again, in R without packages: what docs/examples/recompute.py computes.
#
#   Rscript docs/examples/recompute.R per_query.csv comparisons.csv nDCG@10

table_of <- function(rows) {  # runs in rows, queries in columns
  tapply(rows$value, list(rows$seed, rows$query_id), mean)
}

side <- function(y) {
  S <- nrow(y); Q <- ncol(y)
  rest <- y - outer(rowMeans(y), colMeans(y), "+") + mean(y)
  V_e <- sum(rest^2) / ((S - 1) * (Q - 1)) / (Q * S)
  list(V_s = var(rowMeans(y)) / S, V_e = V_e, f_s = S - 1, f_e = (S - 1) * (Q - 1))
}

compare <- function(a, b, paired) {
  d <- colMeans(a) - colMeans(b)
  Q <- length(d); V <- var(d) / Q; x <- V; f <- Q - 1; smallest <- Q - 1
  for (y in if (paired) list(a - b) else list(a, b)) if (nrow(y) > 1) {
    own <- side(y)
    V <- V + max(own$V_s - own$V_e, 0)
    x <- c(x, own$V_s, -own$V_e); f <- c(f, own$f_s, own$f_e)
    smallest <- min(smallest, own$f_s)
  }
  w <- x / V
  u <- sum(w^2 / f); a2 <- sum(w^2 / f^2); b3 <- sum(w^3 / f^2)
  df <- function(z) {
    bend <- 4 / 3 * (z^2 - 1 / (1 + z^2)) * max(b3 - u^2, 0)
    inverse <- u - 2 * a2 + 16 / 3 * b3 - 10 / 3 * u^2 + bend
    1 / min(max(inverse, u), max(u, 1 / smallest))
  }
  T <- abs(mean(d)) / sqrt(V)
  most <- qnorm(pt(T, 1 / u, lower.tail = FALSE), lower.tail = FALSE) + 1e-9
  gap <- function(z) qt(pnorm(z, lower.tail = FALSE), df(z), lower.tail = FALSE) - T
  z <- uniroot(gap, c(0, most), tol = 1e-13)$root
  c(mean(d), sqrt(V), df(qnorm(.975)), 2 * pnorm(z, lower.tail = FALSE))
}

files <- commandArgs(trailingOnly = TRUE)
rows <- read.csv(files[1], colClasses = c(query_id = "character"))
rows <- rows[rows$measure == files[3], ]
reported <- read.csv(files[2])
reported <- reported[reported$measure == files[3], ]
systems <- lapply(split(rows, rows$cell), table_of)
worst <- 0
for (row in split(reported, seq_len(nrow(reported)))) {
  if (is.na(row$p_both) || !all(c(row$system, row$baseline) %in% names(systems))) next
  found <- compare(systems[[row$system]], systems[[row$baseline]], row$paired_runs == "True")
  named <- c(row$delta, row$se_both, row$df_both, row$p_both)
  worst <- max(worst, abs(found - named))
  cat(sprintf("%s, %s: p %.6g (%.6g)\n", row$system, row$baseline, found[4], named[4]))
}
cat(sprintf("largest difference: %.1g\n", worst))
