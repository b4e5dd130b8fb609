# Cokriging by gstat with a given linear model of coregionalization: cokriging.json.
#
#     Rscript tests/references/make_cokriging.R tests/references/cokriging.json
#
# Two variables, one at 40 places and one at 50, of which 25 are common; exponential structures with
# ranges 0.3 and 0.1 and sills l1 l1' and l2 l2', l1 = (1, 0.6), l2 = (0, 0.9); nuggets 0.1 and 0.2.
# In "correlated" the nuggets have the covariance 0.1. gstat's variances and covariances of predictions
# are those of observations: they have the nuggets.

suppressMessages({library(sp); library(gstat)})
set.seed(1)
places <- matrix(runif(130), ncol = 2)
first <- data.frame(x = places[1:40, 1], y = places[1:40, 2], z = rnorm(40))
second <- data.frame(x = places[16:65, 1], y = places[16:65, 2], z = 2 + rnorm(50))
new <- data.frame(x = runif(12), y = runif(12))
models <- list(
  first = vgm(0.1, "Nug", 0, add.to = vgm(1.0, "Exp", 0.3)),
  second = vgm(0.2, "Nug", 0, add.to = vgm(0.81, "Exp", 0.1, add.to = vgm(0.36, "Exp", 0.3))),
  cross = vgm(0.6, "Exp", 0.3),
  correlated = vgm(0.1, "Nug", 0, add.to = vgm(0.6, "Exp", 0.3))
)
numbers <- function(x) paste0("[", paste(sprintf("%.17g", x), collapse = ", "), "]")
parts <- c(
  sprintf('"made_with": "%s, gstat %s"', R.version.string, packageVersion("gstat")),
  sprintf('"first": {"x": %s, "y": %s, "z": %s}', numbers(first$x), numbers(first$y), numbers(first$z)),
  sprintf('"second": {"x": %s, "y": %s, "z": %s}', numbers(second$x), numbers(second$y), numbers(second$z)),
  sprintf('"new": {"x": %s, "y": %s}', numbers(new$x), numbers(new$y))
)
coordinates(first) <- ~x + y
coordinates(second) <- ~x + y
coordinates(new) <- ~x + y
for (kind in c("ordinary", "simple", "correlated")) {
  mean1 <- if (kind == "simple") 0.1 else numeric(0)
  mean2 <- if (kind == "simple") 2.0 else numeric(0)
  g <- gstat(NULL, "a", z ~ 1, first, model = models$first, beta = mean1)
  g <- gstat(g, "b", z ~ 1, second, model = models$second, beta = mean2)
  g <- gstat(g, c("a", "b"), model = if (kind == "correlated") models$correlated else models$cross)
  g$set <- list(nocheck = 1)
  found <- as.data.frame(predict(g, new, debug.level = 0))
  columns <- c("a.pred", "a.var", "b.pred", "b.var", "cov.a.b")
  values <- sapply(columns, function(name) sprintf('"%s": %s', name, numbers(found[[name]])))
  parts <- c(parts, sprintf('"%s": {%s}', kind, paste(values, collapse = ", ")))
}
writeLines(paste0("{\n", paste(parts, collapse = ",\n"), "\n}"), commandArgs(trailingOnly = TRUE)[1])
