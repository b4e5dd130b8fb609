"""Dense linear algebra: number formats, mixed products, recursive and batched factorizations."""
