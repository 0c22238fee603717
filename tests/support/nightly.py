"""What runs in `.ci/nightly` alone, because it takes long, and what stands for it by day.

The beginnings of node ids.
"""

_SHADOW = "tests/hardware/test_hardware.py::test_shadow_prices_agree_with_solving_again"
_FAMILIES = "tests/formulas/test_families_form.py::test_"
_EDGES = "tests/formulas/test_gradients.py::test_float32_gradients_equal_float64_ones_at_the_edges"
_LEFT_OUT = "tests/measured/test_collective_fits.py::test_"
_ONLY = "tests/plans/test_only.py::test_the_best_of_what_can_be_told_is_that_of_all_plans_that_can"
_LAUNCH = "tests/plans/test_only.py::test_the_best_plan_as_a_launch_file_is_explained_alike"
_AGAIN = "tests/experiments/test_papers.py::test_a_second_run_gives_the_same_numbers"
_BESIDE = "tests/plans/test_beside.py::test_the_best_is_that_of_brute_force"
_LIMITS = ("money", "power")
_PLACES = ("experts-8 by 4 of 6", "dlrm", "dense-12 by 6")
_JOBS = ("ZeRO 3", "interleaved", "float8")
_ORDERS = ("objects first, then r", "objects first, then f", "objects first, then p", "classes first, then a w")
_USUAL = ("decoder", "encoder", "encoder-decoder", "dlrm", "evoformer", "swin")

LONG = (
    # by day: every operation beside JAX's, and gradients of batches between one-sided differences
    "tests/evaluators/test_loops.py::test_gradients_are_those_of_dual_numbers",
    # by day: the README's example
    *(
        f"tests/whole/test_notebooks.py::test_runs[{name}]"
        for name in ("design_a_cluster", "choose_a_plan", "time_to_target")
    ),
    *(f"tests/whole/test_notebooks.py::test_runs[{name}]" for name in ("first_steps", "loss_in_your_code")),
    "tests/whole/test_notebooks.py::test_runs[flexible_plans]",
    # by day: the parts of the experiments, and one design from end to end
    "tests/experiments/test_search_quality.py::test_a_quick_run_reports_and_is_taken_up_again",
    "tests/experiments/test_search_quality.py::test_strong_baselines_reach_the_certified_optimum",
    "tests/experiments/test_codesign.py",
    # by day: one case
    *(
        f"tests/plans/test_beside.py::test_the_best_is_that_of_brute_force[{name}]"
        for name in ("dense", "energy", "experts")
    ),
    *(f"tests/plans/test_beside.py::test_what_deepspeed_keeps_in_the_second_memory[{size}" for size in ("46", "64")),
    "tests/experiments/test_experiments.py::test_speed_runs_and_says_where_its_figures_come_from",
    "tests/experiments/test_real_steps.py::test_a_quick_run_writes_what_the_readme_needs",
    "tests/experiments/test_papers.py::test_whole_run_with_figures",
    *(f"{_AGAIN}[{name}]" for name in ("cluster_design", "flexible_plans")),  # by day: three others
    "tests/clusters/test_design_cli.py::test_several_jobs_and_the_screen",
    "tests/clusters/test_time_is_kept.py::test_a_little_time_is_kept",  # by day: what reading takes
    "tests/clusters/test_design_cli.py::test_a_limit_of_co2_and_spares",  # by day: brute force of two seeds
    "tests/targets/test_target_loss.py::test_from_a_loss_to_a_cluster",
    "tests/targets/test_target_loss.py::test_plan_tells_what_explain",
    "tests/targets/test_joint_targets.py::test_the_best_pair_is_that_of_brute_force",  # by day: its bounds alone
    "tests/experiments/test_time_to_target.py::test_together_is_sooner",
    "tests/launch/test_real_parsers.py",
    # by day: the best plan of Megatron, and what is read back of random plans
    "tests/launch/test_explain_scripts.py::test_what_is_written_is_explained_as_the_plan",
    # by day: signals of design and plan at some moments
    "tests/cli/test_signals.py::test_a_signal_at_any_moment",
    "tests/clusters/test_design_cli.py::test_rent_from_end_to_end",
    "tests/measured/test_compiled.py::test_gradients_are_reduced",  # by day: whose class it is
    "tests/experiments/test_real_steps.py::test_the_compiled_step",
    "tests/experiments/test_real_steps.py::test_divided_programs",
    # by day: the schemas of what answers in a second
    "tests/cli/test_schemas.py::test_slow_answers_are_as_documented",
    # by day: eighteen of the twenty
    "tests/cli/test_everyday.py::test_a_task[which cluster should I buy",
    "tests/cli/test_everyday.py::test_a_task[one cluster for two jobs]",
    "tests/cli/test_everyday_engineers.py::test_a_task[rent or buy]",
    "tests/cli/test_everyday_engineers.py::test_a_task[the fewest accelerators that do it in time]",
    "tests/cli/test_everyday_engineers.py::test_a_task[a page of plans for my colleagues]",
    "tests/clusters/test_parts_of_jobs.py::test_the_deadline_of_one_of_two_jobs_is_kept[0.95]",
    "tests/clusters/test_parts_of_jobs.py::test_the_deadline_of_one_of_two_jobs_is_kept[0.3]",
    "tests/clusters/test_parts_of_jobs.py::test_the_deadline_of_one_of_two_jobs_is_kept[0.01]",
    "tests/clusters/test_parts_of_jobs.py::test_the_deadline_of_two_jobs_together_is_kept[0.6]",
    "tests/clusters/test_parts_of_jobs.py::test_the_deadline_of_two_jobs_together_is_kept[0.01]",
    "tests/clusters/test_same_joules.py::test_real_parts_within_a_limit",
    # by day: one of several objectives, seeds, counts or limits
    "tests/clusters/test_rows_of_counts.py::test_rows_hold_the_plans_of_every_count[experts]",
    "tests/clusters/test_joint.py::test_the_same_seed_gives_the_same_answer",
    "tests/clusters/test_joint.py::test_more_money_is_never_worse",
    "tests/clusters/test_joint.py::test_other_objectives_are_certified",
    "tests/hardware/test_hardware.py::test_a_residual_of_ones_own",
    "tests/clusters/test_joint.py::test_a_mix_is_bounded_by_its_jobs_alone",
    # by day: three seeds of a hundred and twenty-three
    "tests/clusters/test_mix_bound.py::test_nothing_is_below_the_bound_of_a_search_by_night",
    "tests/clusters/test_mix_bound.py::test_a_bound_holds_whatever_it_starts_from_by_night",
    "tests/clusters/test_every_count.py::test_a_bound_that_says_nothing_dismisses_nothing[-inf]",
    "tests/clusters/test_mix_bound.py::test_a_limit_of_co2_gives_no_price_to_seconds[0]",
    "tests/clusters/test_mix_bound.py::test_a_limit_of_co2_gives_no_price_to_seconds[3]",
    # by day: two processes of which the first is killed when it has the answer, and two different questions
    "tests/plans/test_sharding.py::test_ten_deaths_at_random_moments_leave_the_answer",
    "tests/plans/test_sharding.py::test_a_killed_process_is_reported",
    *(f"tests/plans/test_sharding.py::test_who_has_the_answer_needs_nobody_any_more[{ids}" for ids in ("15", "9-2")),
    "tests/plans/test_sharding.py::test_one_that_ends_before_all_is_looked_at",
    "tests/plans/test_sharding.py::test_two_with_one_number",
    "tests/evaluators/test_pytree.py::test_differentiable_with_respect_to_whole_trees",
    "tests/inputs/test_workload.py::test_jax_rebuilds_workloads_of_placeholders_and_tracers",
    "tests/measured/test_calibrate.py::test_intervals_narrow_where_rows_were_given",
    "tests/measured/test_rows_malformed.py::test_ten_thousand_rows_take_seconds",
    "tests/report/test_report.py::test_figures[pipeline]",
    *(f"{_SHADOW}[{name}" for name in ("time for", "cost within", "tokens per", "time within both", "energy")),
    "tests/hardware/test_hardware.py::test_the_price_of_memory_agrees_with_solving_again",
    "tests/plans/test_exhaustive.py::test_real_models_against_evaluate[mixtral",
    "tests/plans/test_exhaustive.py::test_errors_of_float32_stay_far_within_the_margin[deepseek",
    "tests/plans/test_row_bounds.py::test_the_order_of_bounds_gives_the_same_answer_sooner[experts]",
    # by day: Megatron's files
    *(f"{_ONLY}[True-{name}" for name in ("megatron", "megatron-bridge", "maxtext", "deepspeed", "torchtitan")),
    *(f"{_ONLY}[False-{name}" for name in ("megatron-bridge", "maxtext", "deepspeed", "torchtitan")),
    *(f"{_LAUNCH}[{name}]" for name in ("maxtext", "megatron-bridge", "deepspeed", "torchtitan")),
    # by day: gradients of experts, which hold what the others do; a job in 32 bits; two of the edges
    *(f"{_FAMILIES}gradients_equal_central_differences[{name}]" for name in _USUAL),
    *(f"{_FAMILIES}float32_gradients_are_finite_at_every_degree_1[{name}]" for name in _USUAL),
    f"{_FAMILIES}many_kinds_of_layer_are_evaluated_apart",
    "tests/formulas/test_moe.py::test_gradients_equal_finite_differences_and_float32_equals_float64",
    "tests/formulas/test_moe.py::test_every_degree_one_has_finite_gradients",
    "tests/formulas/test_gradients.py::test_gradients_equal_central_differences[job-float64]",
    *(
        f"{_EDGES}[{name}]"
        for name in (
            "every degree 1, one microbatch",
            "no latency",
            "131,072 accelerators",
            "no latency, every degree 1",
        )
    ),
    "tests/formulas/test_gradients.py::test_gradients_equal_central_differences[report-float64]",
    "tests/experiments/test_experiments.py::test_gradients_of_batches_lie_between_one_sided_differences",
    # by day: the same by dual numbers
    "tests/target/test_campaign.py::test_jax_gives_the_same_gradients",
    # by day: the shipped fits
    f"{_LEFT_OUT}all_measured_operations_with_each_size_left_out",
    f"{_LEFT_OUT}one_stack_for_all_operations_of_a_fabric_with_each_size_left_out",
    f"{_LEFT_OUT}each_published_fabric_with_each_size_left_out[HGX",
    f"{_LEFT_OUT}each_published_fabric_with_each_size_left_out[AWS",
    # by day: the same of all plans, and the parts it is made of
    "tests/plans/test_over_counts.py::test_the_best_that_some_framework_can_launch",
    "tests/plans/test_over_counts.py::test_the_best_pair_that_a_framework_can_launch",
    "tests/plans/test_over_counts.py::test_the_screen_of_a_range[120]",
    # by day: one tournament less, and times, which say little on a busy machine
    "tests/plans/test_plan_command.py::test_it_answers_within_times_of_import_jax",
    "tests/cli/test_cli.py::test_start_up_time",
    "tests/measured/test_node.py::test_an_interrupted_run_leaves_nothing",
    # by day: smaller questions of the same kind in the same files, gradients of experts and at one of the edges
    "tests/clusters/test_joint.py::test_the_answer_is_the_best_of_a_fine_grid",
    "tests/hardware/test_bounds_of_planes.py::test_bounds_are_never_above_the_optimum_of_a_fine_grid",
    "tests/hardware/test_hardware.py::test_a_second_memory_as_large_as_the_plan_needs",
    "tests/hardware/test_hardware.py::test_two_jobs_on_one_cluster_are_one_problem",
    "tests/formulas/test_gradients.py::test_gradients_equal_central_differences[job-float32]",
    "tests/formulas/test_gradients.py::test_values_equal_numpy[job-float64]",
    f"{_EDGES}[131,072 accelerators, 1e26",
    f"{_EDGES}[every degree 1, 1e26",
    f"{_FAMILIES}float32_gradients_are_finite_at_every_degree_1[moe]",
    *(f"{_FAMILIES}one_trace_serves_all_plans_and_sizes[{name}]" for name in ("evoformer", "swin", "dlrm", "encoder")),
    *(
        f"tests/formulas/test_economics.py::test_gradients_under_jit_are_those_of_differences[{width}-listed]"
        for width in ("float32", "float64")
    ),
    "tests/evaluators/test_every_plan.py::test_floats_arrays_and_compiled_batches_agree",
    "tests/evaluators/test_pytree.py::test_import_order[costmodel first]",
    "tests/evaluators/test_dual.py::test_equals_jax_in_float64[dense]",
    "tests/diagnosis/test_sensitivity.py::test_against_automatic_differentiation[one accelerator]",
    "tests/lattice/test_lattice.py::test_the_lattice_is_brute_force[dlrm]",
    "tests/lattice/test_lattice.py::test_the_lattice_is_brute_force[domains of 72]",
    "tests/plans/test_exhaustive.py::test_errors_of_float32_stay_far_within_the_margin[gpt3",
    "tests/plans/test_sharding.py::test_two_processes_return_the_list_of_one",
    "tests/plans/test_over_counts.py::test_the_screen_of_a_range[80]",
    "tests/launch/test_export.py::test_plans_that_can_be_told_read_back_as_they_were[True-",
    # by day: reading and scoring rows, the tables of the experiments
    "tests/measured/test_one_physics.py::test_rows_are_evaluated_as_they_are_predicted[calibration]",
    "tests/measured/test_node.py::test_a_real_run_of_a_second",
    "tests/experiments/test_accuracy.py::test_a_run_writes_scores_tables_and_figures",
    "tests/experiments/test_budget.py::test_a_quick_run",
    "tests/experiments/test_experiments.py::test_speed_tells_and_draws_what_its_processes_measured",
    "tests/experiments/test_independent_subnets.py::test_a_quick_run",
    *(
        f"tests/experiments/test_papers.py::test_nothing_lies_outside_its_tolerance[{name}]"
        for name in ("cluster_design", "flexible_plans")
    ),
    "tests/targets/test_target_loss.py::test_no_cluster_is_below_the_bound_of_a_pair",
    "tests/clusters/test_joint.py::test_an_interruption_leaves_the_best_so_far",
    "tests/formulas/test_gradients.py::test_values_equal_numpy[job-float32]",
    f"{_FAMILIES}gradients_equal_central_differences[moe]",
    "tests/formulas/test_schedule.py::test_zb_v_with_both_ends_on_its_first_stage",
    "tests/hardware/test_hardware.py::test_shadow_prices_agree_with_solving_again[time within a budget]",
    "tests/evaluators/test_pytree.py::test_import_order[jax first]",
    "tests/diagnosis/test_predict.py::test_a_calibration_set_is_predicted",
    "tests/specs/test_rules.py::test_every_plan_of_a_small_cluster[dense-12 by 3, three tiers]",
    "tests/plans/test_over_counts.py::test_fewer_accelerators_and_other_batches_are_told_where_they_are_better",
    "tests/measured/test_collective_fits.py::test_each_published_fabric_with_each_size_left_out[DGX H100",
    "tests/measured/test_one_physics.py::test_a_named_cluster_has_the_constants_of_a_row_of_its_software",
    "tests/measured/test_fit.py::test_a_source_left_out_near_the_whole_fit_is_the_refit",
    "tests/experiments/test_experiments.py::test_one_trace_serves",
    "tests/experiments/test_papers.py::test_answers_in_three_sentences_and_tables[cluster_design]",
    "tests/experiments/test_papers.py::test_answers_in_three_sentences_and_tables[flexible_plans]",
    # by day: that it is stored with its outputs
    "tests/whole/test_notebooks.py::test_runs[calibrate_to_your_machines]",
    # by day: one or two of several of the same kind
    "tests/clusters/test_joint.py::test_real_parts_agree_with_the_search_for_a_plan",
    *(
        f"tests/clusters/test_joint.py::test_infeasible_says_which_limit_and_what_would_help[{name}]"
        for name in _LIMITS
    ),
    "tests/clusters/test_joint.py::test_gradients_of_the_descent[Objective.cost]",
    "tests/clusters/test_evolution.py::test_what_evolves_is_legal_and_worth_what_it_says[Objective.cost]",
    "tests/clusters/test_every_count.py::test_nothing_on_any_count_is_below_the_bound[1]",
    *(f"tests/specs/test_rules.py::test_every_plan_of_a_small_cluster[{name}" for name in _PLACES),
    *(f"tests/diagnosis/test_sensitivity.py::test_against_automatic_differentiation[{name}" for name in _JOBS),
    *(f"tests/evaluators/test_pytree.py::test_import_order[{name}" for name in _ORDERS),
    "tests/formulas/test_schedule.py::test_interleaved_is_exact_whatever_its_transfers_take[0.0]",
    "tests/formulas/test_schedule.py::test_gpipe_and_1f1b_are_exact[gpipe",
    "tests/formulas/test_gradients.py::test_utilisation_falls_with_the_peak[no latency",
    "tests/formulas/test_gradients.py::test_utilisation_falls_with_the_peak[every degree 1,",
    "tests/formulas/test_gradients.py::test_values_equal_numpy_at_the_edges[no latency",
    "tests/formulas/test_gradients.py::test_values_equal_numpy_at_the_edges[every degree 1,",
)
