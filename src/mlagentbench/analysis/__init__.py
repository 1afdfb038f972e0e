"""What runs mean: metrics, statistics, comparisons. Reads run folders only."""
