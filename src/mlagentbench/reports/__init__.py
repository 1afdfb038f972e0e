"""What runs mean: reads run folders only."""
