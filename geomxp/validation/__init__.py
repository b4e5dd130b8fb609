"""How well a fitted model predicts what it has not seen: folds, scores, misspecification."""
