"""How an agent worked: findings by fixed rules, and optional judgements by a model."""
