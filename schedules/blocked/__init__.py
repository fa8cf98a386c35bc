"""The register-blocked reduction that convolution and matmul share: problem, cost, loops, prefetch, Winograd."""
