"""Topics of the studies, captions of their tables and figures, and the papers they follow."""

GROUPS = {
    "Correctness": {
        "recovery": "200 simulated fields: mean and spread of the estimates, compared with theory.",
        "intervals": "500 simulated fields: coverage of Wald and profile intervals, ML and REML.",
        "calibration": "Sizes of likelihood-ratio tests, coverage of trend and Vecchia intervals.",
        "maxima": "Thousands of simulated fits compared with an exhaustive search.",
        "kaust": "Eight fields of 90,000 locations with known models: estimates and predictions.",
        "kaust_likelihood": "Log-likelihoods of these fields compared with other programs.",
    },
    "Comparison with other packages": {
        "peers": "Time and memory of one likelihood and of whole fits, compared with six packages.",
        "covariance": "Accuracy and speed of covariances of any smoothness.",
    },
    "Large data": {
        "vecchia": "Vecchia's approximation: accuracy, time up to 3·10⁶ locations, other packages.",
        "out_of_core": "Matrices larger than memory: rates, volumes, killed runs.",
        "cluster": "Worker processes of a Dask cluster: time, traffic, killed workers.",
    },
    "Mixed precision": {
        "static_schedule_mxp": "Divergence, time and memory for each ε.",
        "refinement": "FP64 solutions from FP16 factors.",
        "nested_cholesky": "Recursive Cholesky factorization with layered formats.",
        "trsm_trmm": "Recursive triangular solves and products.",
        "batched": "Thousands of small factorizations at once.",
    },
}
"""Heading: {folder of a study: its topic}. Other studies are listed under a separate heading."""

PAPERS = {
    "000": "V. Carrica, R. Alomairy, E. Ringoot, A. Edelman: *Hierarchical precision and recursion "
    "for accelerating symmetric linear solves on MXUs*",
    "001": "J. Ren, H. Ltaief, S. Abdulah, D. Keyes: *Accelerating mixed-precision out-of-core "
    "Cholesky factorization with static task scheduling*",
    "002": "A. Abdelfattah, S. Tomov, J. Dongarra: *Investigating the benefit of FP16-enabled "
    "mixed-precision solvers for symmetric positive definite matrices using GPUs*",
    "003": "V. Carrica and others: *Toward portable GPU performance: Julia recursive "
    "implementation of TRMM and TRSM*",
    "004": "J. Dongarra and others: *Autotuning numerical dense linear algebra for batched "
    "computation with GPU hardware accelerators*",
}
"""Papers by the numbers that the studies use."""

CAPTIONS = {
    "h200/a_ceilings.csv": "Rates of matrix products and copies on an H200.",
    "h200/c_tests.csv": "Tests of the GPU code that passed and failed on an H200, by file.",
    "h200/c_tests_again.csv": "The same in the second session, by file.",
    "h200/c_tests_fourth.csv": "Tests of the GPU code in the fourth session on an H200.",
    "h200/c_tests_fifth.csv": "Tests of the GPU code in the fifth session on an H200.",
    "h200/d_generation.csv": "Entries of covariance matrices per second on an H200.",
    "h200/e_recursions.csv": "Recursive POTRF, TRSM, TRMM, SYRK on an H200, beside cuSOLVER.",
    "h200/e_recursions_third.csv": "Recursive POTRF at n = 65,536, third session.",
    "h200/e_recursions_large.csv": "The same at n = 65,536, second session.",
    "h200/f_by_norm.csv": "Tile Cholesky factorizations with formats by norm on an H200.",
    "h200/f_by_norm_large.csv": "The same at n = 65,536, second session.",
    "h200/f_by_norm_fourth.csv": "Tile Cholesky factorizations with formats by norm on an H200, "
    "n = 65,536, FP32 tiles in FP16 planes where ε allows it.",
    "h200/g_out_of_core.csv": "FP64 factorizations in little device memory of an H200, by policy.",
    "h200/g_out_of_core_third.csv": "The same at n = 65,536, host memory already pinned.",
    "h200/g_out_of_core_fourth.csv": "FP64 factorizations in 8 GB of an H200's memory, by policy, "
    "n = 65,536.",
    "h200/g_timeline_32768_v3.json": "Timeline of one out-of-core factorization on an H200, "
    "n = 32,768, policy v3.",
    "h200/h_refinement.csv": "Refined solutions on an H200, beside FP64.",
    "h200/h_refinement_large.csv": "The same at n = 65,536.",
    "h200/h_refinement_third.csv": "The same, with solves by inverses.",
    "h200/h_refinement_fourth.csv": "Refined solutions on an H200, `refine.solve` included, "
    "n = 32,768 and 65,536.",
    "h200/i_batches_fourth.csv": "Batched factorizations of orders 5 to 64 on an H200, with rows "
    "in registers.",
    "h200/m_products.csv": "Errors and rates of products of FP32 matrices of order 2,048 in "
    "several formats on an H200.",
    "h200/j_peers_fourth.csv": "How peers failed at n = 65,536 on an H200.",
    "h200/i_batches_third.csv": "Batched factorizations of order 16 on an H200.",
    "h200/i_batches.csv": "Batched factorizations on an H200, beside cuBLAS.",
    "h200/j_exact.csv": "Exact likelihoods and fits on an H200, beside PyTorch, JAX and GPyTorch.",
    "h200/j_exact_large.csv": "Exact likelihoods on an H200, n = 65,536.",
    "h200/j_exact_third.csv": "The same, with FP32 tiles in two FP16 planes.",
    "h200/planes.csv": "Errors and seconds of products of FP32 matrices in two FP16 planes on an "
    "H200.",
    "h200/by_norm_planes.csv": "Factorizations by norm on an H200, n = 65,536, by the number of "
    "columns that the matrix units sum at once.",
    "h200/by_norm_runs.csv": "Seconds of a factorization by norm in 22 runs on an H200, "
    "n = 65,536, weak correlation, ε = 1e-5.",
    "h200/f_by_norm_fifth.csv": "Divergences of formats by norm from FP64 on an H200, n = 65,536.",
    "h200/h_refinement_fifth.csv": "Refined FP64 solutions on an H200, n = 16,384: seconds, "
    "residuals and iterations.",
    "h200/j_peers_fifth.csv": "Messages of PyTorch, JAX and GPyTorch at n = 65,536 on an H200.",
    "h200/l_satellite_fifth.csv": "Seconds of one log-likelihood and one score of 105,569 "
    "locations on an H200.",
    "h200/n_profiles.csv": "Profiles of factorizations on an H200: seconds, launches, kernels and "
    "CUDA calls.",
    "h200/fits.csv": "Seconds of exact fits on an H200.",
    "h200/k_vecchia.csv": "Vecchia's likelihood on an H200 and on 16 cores.",
    "h200/k_vecchia_large.csv": "Vecchia's likelihood of 10⁷ locations on an H200.",
    "h200/l_satellite.csv": "An exact fit of 105,569 locations on an H200, predictions, and "
    "published scores.",
    "h200/leaves.csv": "Seconds of recursive factorizations on an H200, by leaf size.",
    "h200/routines.csv": "Seconds of cuSOLVER's and cuBLAS's routines for small orders on an H200.",
    "h200/profiles.csv": "Launches, seconds and busy seconds of operations on an H200.",
    "h200/profiles_third.csv": "The same in the third session, before and after its changes.",
    "h200/counts.csv": "Launches, synchronizations and bytes of the GPU code, counted on a CUDA "
    "emulator.",
    "h200/counts_before.csv": "The same counts before the optimization of the GPU code.",
    "h200/model.csv": "Times that a roofline model predicts for an H200, what limits them, and the "
    "targets.",
    "h200/model_papers.csv": "Rates and ratios that papers 000 and 001 published, and the model's.",
    "batched/ratio.png": "Speed of factorizations relative to the faster of NumPy and MKL.",
    "batched/rates.png": "Rates of factorizations, substitutions and complete solutions by layout.",
    "batched/size.png": "Rate against the order of the matrices, with NumPy and MKL.",
    "batched/solve.png": "Shares of factorization and substitutions in the time of a solution.",
    "batched/variants.png": "The best rate of all variants with one parameter fixed: tile, looking "
    "order, chunk, unrolling.",
    "cluster/calibration.csv": "Rates of one machine, and costs of tasks, tiles and its link.",
    "cluster/faults.csv": "Runs in which two workers were killed at random times.",
    "cluster/overhead.csv": "Share of scheduling in a run on one worker, by tile.",
    "cluster/scaling.csv": "The tile Cholesky on 1, 2 and 4 workers: one n (strong scaling), n³ "
    "proportional to the workers (weak scaling); bytes sent, and bytes by the formula.",
    "cluster/scaling.png": "Scaling on the processes of one machine, measured and simulated.",
    "cluster/simulation.csv": "The tile Cholesky simulated on described clusters: compared with "
    "runs on one machine (validation), and on 4 to 64 nodes, without runs (prediction).",
    "cluster/vecchia.csv": "Vecchia's likelihood of up to 10⁷ locations on two workers of 8 GB.",
    "intervals/coverage.csv": "Coverage of Wald and profile intervals by maximum likelihood.",
    "intervals/coverage_reml.csv": "Coverage of Wald and profile intervals by REML.",
    "intervals/reml.csv": "The mean of 2,000 estimates of the variance, by ML and by REML.",
    "intervals/replicates.csv": "Each interval behind coverage.csv.",
    "intervals/replicates_reml.csv": "Each interval behind coverage_reml.csv.",
    "kaust/fields.csv": "For each field and method: estimates with standard errors and the truth, "
    "scores of 10,000 predictions, MLOE and MMOM; the first row of a field is the true model.",
    "kaust_likelihood/likelihood.csv": "Log-likelihood, log-determinant and quadratic form at the "
    "true parameters, each with its relative difference from the reference.",
    "nested_cholesky/accuracy.csv": "Errors of the factor and KL divergence, by layers, on random "
    "matrices and on Matérn's.",
    "nested_cholesky/accuracy.png": "Backward error of the factor, by layers.",
    "nested_cholesky/depth.csv": "Speed of POTRF against the number of coarse layers.",
    "nested_cholesky/depth.png": "Speed of POTRF against the number of FP16 layers above FP32.",
    "nested_cholesky/divergence.png": "Divergence at n = 16,384 against bytes and seconds, by "
    "rule, for six models.",
    "nested_cholesky/digits.png": "Correct digits of the factor against n, by layers.",
    "nested_cholesky/tree.csv": "Seconds and bytes of POTRF on dense matrices and on trees.",
    "nested_cholesky/throughput.png": "Rate of POTRF against n, and its share of the rate of a "
    "large product in the first layer's format.",
    "nested_cholesky/speed.csv": "Seconds and speed of POTRF, SYRK and TRSM against n, by layers.",
    "nested_cholesky/speed_amx.csv": "The same on a Xeon with AMX for BF16, beside MKL.",
    "nested_cholesky/speed_zen4.csv": "Seconds and speed of POTRF, SYRK and TRSM on an older AMD "
    "EPYC, with BF16 in AVX-512.",
    "nested_cholesky/depth_avx512.csv": "Speed of POTRF against the number of BF16 layers, in "
    "AVX-512.",
    "nested_cholesky/depth_amx.csv": "Speed of POTRF against the number of BF16 layers, on a "
    "Xeon with AMX.",
    "nested_cholesky/digits.csv": "Correct digits of the factor against n, by layers.",
    "out_of_core/correlations.png": "Copies and kernels by `async` and `v3` with formats by norm, "
    "ε = 1e-5, weak, medium and strong correlation.",
    "out_of_core/mixed.png": "Bytes that `v3` moves with formats by norm, by correlation and ε.",
    "out_of_core/mixed.csv": "Planned bytes by policy with formats by norm, by correlation, ε, and "
    "the measured ones of `v3`.",
    "out_of_core/correlations.json": "Events of runs with formats by norm; drawn above.",
    "out_of_core/timeline.json": "Events of one run by each of some policies; drawn above.",
    "peers/fits.csv": "Every fit of every method: seconds, memory, estimates, and the difference "
    "of its log-likelihood (computed by geomxp) from the best.",
    "peers/likelihood.csv": "Seconds and memory of one log-likelihood, by method.",
    "recovery/estimates.csv": "Each fit: estimates and standard errors.",
    "recovery/summary.csv": "Mean, bias and standard deviation of the estimates, and the standard "
    "deviation by the inverse Fisher information.",
    "refinement/definiteness.csv": "Smallest eigenvalue, rounding errors in units of u = 2⁻¹¹, and "
    "the shifts c with which an FP16 factor exists.",
    "refinement/iterations.csv": "Iterations of classic refinement (ir), CG and GMRES on five "
    "spectra, n = 2,048; FP16 factors with and without a shift c·u·I, the paper's factor, FP32.",
    "refinement/tiles.csv": "GMRES's iterations for the custom-clustered spectrum, by the order of "
    "the tiles and the shift.",
    "refinement/speed.png": "Speed of a solution relative to the run's fastest solver in FP64.",
    "refinement/factor.png": "Rates of factorizations, by format and library.",
    "refinement/factor.csv": "Seconds and rates of factorizations, by format and library.",
    "refinement/factor_amx.csv": "The same on a Xeon with AMX for BF16, beside MKL.",
    "refinement/speed_amx.csv": "Time to solution by factor and method, on a Xeon with AMX for "
    "BF16, beside MKL.",
    "multivariate/neighbours.csv": "KL divergence by kind and number of neighbours, two variables.",
    "multivariate/jura.csv": "Errors of four metals of the Jura by kriging and cokriging.",
    "multivariate/validity.csv": "Smallest eigenvalues of random models of several variables.",
    "multivariate/time.csv": "Seconds of Vecchia's approximation of two variables, and of one.",
    "multivariate/fit.csv": "Fits of 2 × 250,000 values by Vecchia's approximation.",
    "multivariate/mixed.csv": "Exact log-likelihoods of two variables in FP64 and mixed precision.",
    "multivariate/parsimonious.csv": "Estimates and intervals of simulated fields, parsimonious.",
    "multivariate/flexible.csv": "Estimates and intervals of simulated fields, flexible.",
    "space_time/fit.csv": "Whole fits of 10⁶ simulated space-time values.",
    "space_time/subsets.csv": "Gneiting's model by geomxp and GPBoost, 5,000 values of each set.",
    "space_time/neighbours.csv": "KL divergence by kind and number of space-time neighbours.",
    "space_time/estimates.csv": "Estimates and intervals for 400 fields of Gneiting's model.",
    "space_time/separability.csv": "Tests of no interaction for 1,000 separable fields.",
    "space_time/shares.csv": "Coverage of intervals and sizes of tests, with 99 % bands.",
    "space_time/kaust.csv": "Fits and predictions of 90,000 space-time values, six data sets.",
    "space_time/validity.csv": "Smallest eigenvalues of correlation matrices of random models.",
    "space_time/time.csv": "Seconds of Vecchia's likelihood, gradient and information, by family.",
    "space_time/generation.csv": "Seconds of a covariance matrix, by family and type of numbers.",
    "static_schedule_mxp/estimates_3600.csv": "Fits of fields of 3,600 locations, in FP64 and at "
    "each ε.",
    "static_schedule_mxp/estimates_3600.png": "Estimates of fields of 3,600 locations, in FP64 and "
    "at each ε.",
    "static_schedule_mxp/estimates_6400.csv": "The same for 6,400 locations.",
    "static_schedule_mxp/estimates_6400.png": "The same for 6,400 locations.",
    "static_schedule_mxp/kl.csv": "Backward error and divergence at each ε, n = 1,024 and 4,096.",
    "static_schedule_mxp/kl_16384.csv": "The same for n = 16,384: weak fields.",
    "static_schedule_mxp/kl_16384_more.csv": "The same for n = 16,384: medium and strong fields.",
    "static_schedule_mxp/kl_32768.csv": "The same for n = 32,768, ν = ½, no nugget.",
    "static_schedule_mxp/kl_8192.csv": "The same for n = 2,048 and 8,192, ν = ½, no nugget.",
    "static_schedule_mxp/maps.csv": "Formats of 8 × 8 tiles, chosen by one rule among one to four.",
    "static_schedule_mxp/maps.png": "Formats of 8 × 8 tiles, chosen by one rule among one to four.",
    "static_schedule_mxp/avx512.csv": "Seconds where tiles in FP8 are multiplied as BF16 in "
    "AVX-512, on two threads.",
    "static_schedule_mxp/plain.csv": "Seconds with all coarse formats multiplied in FP32, on one "
    "thread.",
    "static_schedule_mxp/plain_two.csv": "The same on two threads.",
    "static_schedule_mxp/rate.csv": "Seconds from locations to factor, and of LAPACK's dpotrf.",
    "static_schedule_mxp/target.csv": "Predicted and measured divergence of `for_divergence`.",
    "trsm_trmm/cases.png": "Time of the faster library over ours, by side and transposition.",
    "trsm_trmm/leaves.png": "Time of the faster library over ours, by the size of the leaves.",
    "trsm_trmm/ratios.csv": "Time of SciPy's and MKL's triangular solve and product over ours.",
    "trsm_trmm/ratios.png": "Time of the faster library over ours against n.",
    "trsm_trmm/seconds.png": "Seconds of triangular solves and products against n.",
}
"""Captions of tables that the README does not describe in a row or an item, and of figures that it
does not show."""
