// Package trigger starts the iterations of core's loop.
//
// It takes the place of LoopTrigger in loop/trigger.go of k8s.io/autoscaler/cluster-autoscaler (1.33), which run in main.go
// calls between two calls of RunAutoscalerOnce. Core has no hook for it: whoever embeds core writes the loop around it.
//
// Core's own trigger does not fit: it knows neither reclaim notices nor settle windows, starts a loop for each change of an
// unschedulable pod, and watches the pods a second time.
package trigger
