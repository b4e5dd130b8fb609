"""What the studies ask, what their tables and figures hold, and which papers they are after."""

GROUPS = {
    "Is it right?": {
        "recovery": "200 simulated fields: mean and spread of the estimates, beside theory.",
        "intervals": "500 simulated fields: Wald's and profile intervals, by ML and REML.",
        "kaust": "Eight fields of 90,000 places whose models are known: estimates and predictions.",
        "kaust_likelihood": "Log-likelihoods of those fields beside those of other programs.",
    },
    "Beside other packages": {
        "peers": "Seconds and memory of one likelihood and of whole fits, beside six packages.",
        "covariance": "How exact covariances of any smoothness are, and what they cost.",
    },
    "Large data": {
        "vecchia": "How near Vecchia's approximation comes, seconds up to 3·10⁶ places, peers.",
        "out_of_core": "A matrix that memory does not hold: rates, volumes, killed runs.",
        "cluster": "Worker processes of a Dask cluster: times, bytes that travel, killed workers.",
    },
    "Mixed precision": {
        "static_schedule_mxp": "What each ε costs in divergence, and saves in seconds and bytes.",
        "refinement": "Answers in FP64 from factors in FP16.",
        "nested_cholesky": "A Cholesky factorization by halves, in coarser formats outwards.",
        "trsm_trmm": "Triangular solves and products by halves.",
        "batched": "Thousands of small factorizations at once.",
    },
}
"""Heading: folder of experiments: what a study asks. Others stand below a heading of their own."""

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
"""The numbers by which the texts of the studies call papers."""

CAPTIONS = {
    "h200/counts.csv": "Launches, synchronizations and bytes of the GPU code, counted on a CUDA "
    "emulator.",
    "h200/counts_before.csv": "The same counts before the optimization of the GPU code.",
    "h200/model.csv": "Times that a roofline model predicts for an H200, what limits them, and the "
    "targets.",
    "h200/model_papers.csv": "Rates and ratios that papers 000 and 001 published, and the model's.",
    "batched/size.png": "Rate against the order of the matrices, beside NumPy and MKL.",
    "batched/solve.png": "What the parts of a solution take of its time.",
    "batched/variants.png": "Rates of all variants, by order of looking and by tile.",
    "cluster/calibration.csv": "Rates of one machine, and what tasks, tiles and its link cost.",
    "cluster/faults.csv": "Runs in which two workers were killed at random moments.",
    "cluster/overhead.csv": "What scheduling takes of a run on one worker, by tile.",
    "cluster/scaling.csv": "The tile Cholesky on 1, 2, 4 workers: one n (strong), n³ in step with "
    "the workers (weak); bytes that travelled beside the formula's.",
    "cluster/scaling.png": "Scaling on the processes of one machine, measured, and simulated.",
    "cluster/simulation.csv": "The tile Cholesky played on described clusters: beside runs on one "
    "machine (validation), and on 4 to 64 nodes, of which nothing was run (prediction).",
    "cluster/vecchia.csv": "Vecchia's likelihood of up to 10⁷ places on two workers of 8 GB.",
    "intervals/coverage.csv": "How often intervals by maximum likelihood hold the truth: Wald's "
    "and the profile likelihood's.",
    "intervals/coverage_reml.csv": "The same by REML.",
    "intervals/reml.csv": "The mean of 2,000 estimates of the variance, by ML and by REML.",
    "intervals/replicates.csv": "Each interval behind coverage.csv.",
    "intervals/replicates_reml.csv": "Each interval behind coverage_reml.csv.",
    "kaust/fields.csv": "For each field and way to fit: estimates with standard errors beside the "
    "truth, scores of 10,000 predictions, MLOE and MMOM; the first row of a field is the true "
    "model.",
    "kaust_likelihood/likelihood.csv": "Log-likelihood, log-determinant and quadratic form at the "
    "true parameters, each with its relative difference from the reference.",
    "nested_cholesky/accuracy.csv": "Errors of the factor and KL divergence, by layers, on random "
    "matrices and on Matérn's.",
    "nested_cholesky/accuracy.png": "Error of the factor, by layers.",
    "nested_cholesky/depth.csv": "Speed of POTRF against the number of coarse layers.",
    "nested_cholesky/depth.png": "Speed of POTRF against the number of FP16 layers above FP32.",
    "nested_cholesky/speed.csv": "Seconds and speed of POTRF, SYRK and TRSM against n, by layers.",
    "out_of_core/timeline.json": "What happened when, without reuse and with V3; drawn above.",
    "peers/fits.csv": "Every fit of every method: seconds, memory, estimates, and how far its "
    "log-likelihood (geomxp's, of its estimates) is below the best.",
    "peers/likelihood.csv": "Seconds and memory of one log-likelihood, by method.",
    "recovery/estimates.csv": "Each fit: estimates and standard errors.",
    "recovery/summary.csv": "Mean, bias and spread of the estimates, beside the spread by the "
    "inverse Fisher information.",
    "refinement/iterations.csv": "Iterations of classic refinement (ir), CG and GMRES on five "
    "spectra, n = 4,096; FP16 factors with and without a shift c·u·I, FP32 factors.",
    "refinement/speed.png": "Speed of a solution beside FP64's.",
    "static_schedule_mxp/estimates.csv": "Estimates of simulated fields at each ε.",
    "static_schedule_mxp/kl.csv": "Backward error and divergence at each ε, n = 1,024 and 4,096.",
    "static_schedule_mxp/kl_16384.csv": "The same for n = 16,384: weak fields.",
    "static_schedule_mxp/kl_16384_more.csv": "The same for n = 16,384: medium and strong fields.",
    "static_schedule_mxp/plain.csv": "Seconds without MKL and matrix units, on one thread.",
    "static_schedule_mxp/rate.csv": "Seconds from locations to factor beside LAPACK's dpotrf.",
    "static_schedule_mxp/rate_16384.csv": "The first lines of rate.csv again, the machine quiet.",
    "static_schedule_mxp/target.csv": "What `for_divergence` promises, and what is measured.",
    "trsm_trmm/ratios.csv": "Times of SciPy's and MKL's triangular solve and product over ours.",
}
"""Of tables that their README does not describe in a row or an item, and of figures that it does
not show."""
