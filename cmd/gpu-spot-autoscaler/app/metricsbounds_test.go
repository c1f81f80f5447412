package app

import (
	"strconv"

	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
)

// factors are what bounds are made of, beside numbers, in the order in which the page explains them. One of the sources is
// notice.SourceUnknown.
var factors = []struct{ name, meaning string }{
	{"pools", "scaling groups under management; counters keep those that were since the process began"},
	{"offerings", "instance types × zones × purchase options of all pools"},
	{"reasons", "[problems of a pool](operations.md#problems-of-a-pool), about 30"},
	{"reason codes", "those of [why a pod is pending](operations.md#why-a-pod-is-pending), about 30"},
	{"job systems", "those of [jobs.md](jobs.md#what-becomes-of-the-job), and `pod` for pods of none, about 15"},
	{"sources", "[where notices come from](reclaim.md#where-notices-come-from), " + strconv.Itoa(len(notice.Sources)+1)},
	{"conditions", "those of [`--node-fault-conditions`](reclaim.md#faulty-nodes), 6 by default"},
	{"actions", "[calls to Alibaba Cloud](operations.md#calls-to-alibaba-cloud), about 15"},
	{"codes", "error codes that Alibaba Cloud documents for these calls, about 100; any other counts as `Other`, once for each class of errors, about 10"},
}

// bounds say how many time series a metric with labels has at most, as factors × factors. Labels that anybody could fill at will,
// such as the name of a pod, would have no bound and are not used.
var bounds = map[string]string{
	"gpu_spot_build_info": "1",

	"gpu_spot_cloud_request_duration_seconds": "actions × codes",
	"gpu_spot_cloud_throttle_wait_seconds":    "actions",

	"gpu_spot_cost_total":           "pools × 2",
	"gpu_spot_on_demand_cost_total": "pools × 2",
	"gpu_spot_gpu_hours_total":      "pools × 3",
	"gpu_spot_namespace_cost_total": "101",

	"gpu_spot_pool_instances":               "pools × 8",
	"gpu_spot_pool_targeting":               "pools",
	"gpu_spot_pool_problem":                 "pools × reasons",
	"gpu_spot_pool_problems_total":          "pools × reasons",
	"gpu_spot_pool_spend_cap_reached":       "pools",
	"gpu_spot_problems":                     "4 × reasons",
	"gpu_spot_pending_pods":                 "reason codes",
	"gpu_spot_leader_condition":             "2",
	"gpu_spot_purchased_instances_total":    "pools × 2",
	"gpu_spot_purchase_queue_length":        "pools",
	"gpu_spot_purchase_queue_seconds":       "pools",
	"gpu_spot_purchase_notes_missing_total": "pools",
	"gpu_spot_purchase_failures_total":      "offerings × codes",
	"gpu_spot_given_up_instances_total":     "pools",
	"gpu_spot_compensated_instances_total":  "pools",
	"gpu_spot_removal_failures_total":       "pools",
	"gpu_spot_removed_instances_total":      "pools",

	"gpu_spot_price_per_hour":             "2 × offerings",
	"gpu_spot_price_age_seconds":          "2 × offerings",
	"gpu_spot_price_refresh_errors_total": "2",
	"gpu_spot_market_offerings":           "3",
	"gpu_spot_market_stock_refusal":       "4",
	"gpu_spot_market_strength_refusal":    "3",

	"gpu_spot_deferred_pods":         "2",
	"gpu_spot_gang_scale_ups_total":  "3",
	"gpu_spot_loop_wakeups_total":    "6",
	"gpu_spot_scale_down_kept_nodes": "3",

	"gpu_spot_held_jobs":               "job systems × 3",
	"gpu_spot_job_actions_total":       "job systems × 10 × 7",
	"gpu_spot_job_held_seconds":        "job systems",
	"gpu_spot_job_recoveries_total":    "job systems × 2",
	"gpu_spot_job_system_installed":    "job systems",
	"gpu_spot_job_waits_expired_total": "job systems",

	"gpu_spot_drills_total":                              "3 × 6",
	"gpu_spot_moves_total":                               "6",
	"gpu_spot_node_faults_total":                         "conditions",
	"gpu_spot_reclaims_total":                            "sources × 4",
	"gpu_spot_reclaim_checkpoints_total":                 "job systems × 2",
	"gpu_spot_reclaim_confirmation_delay_seconds":        "sources",
	"gpu_spot_reclaim_drained_pods_total":                "job systems × 2",
	"gpu_spot_reclaim_job_failures_total":                "job systems × 3",
	"gpu_spot_reclaim_left_when_empty_seconds":           "sources",
	"gpu_spot_reclaim_notice_to_acknowledgement_seconds": "job systems",
	"gpu_spot_reclaim_notice_to_empty_seconds":           "sources",
	"gpu_spot_reclaim_notice_to_mark_seconds":            "sources",
	"gpu_spot_reclaim_notice_to_replacement_seconds":     "sources",
	"gpu_spot_reclaim_notice_to_ready_seconds":           "sources",
	"gpu_spot_reclaim_notices_unseen_by_poll_total":      "sources",
	"gpu_spot_reclaim_push_signatures_total":             "4",
	"gpu_spot_reclaim_pushed_events_total":               "10",
	"gpu_spot_reclaim_warned_pods_total":                 "job systems",
}

// madeWhenScraped are the types of metrics that no vector holds.
var madeWhenScraped = map[string]string{
	"gpu_spot_pending_pods":       "gauge",
	"gpu_spot_market_age_seconds": "gauge", "gpu_spot_market_offerings": "gauge",
	"gpu_spot_market_stock_age_seconds": "gauge", "gpu_spot_market_stock_refusal": "gauge",
	"gpu_spot_market_strength_age_seconds": "gauge", "gpu_spot_market_strength_refusal": "gauge",
	"gpu_spot_price_per_hour": "gauge", "gpu_spot_price_age_seconds": "gauge", "gpu_spot_offerings_without_fresh_price": "gauge",
}
