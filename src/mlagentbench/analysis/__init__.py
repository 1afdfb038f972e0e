"""Analysis of runs: metrics, statistics, comparisons, leaderboards. Reads run folders only."""
