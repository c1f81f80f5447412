// Package templates builds the node template of each offering.
//
// It implements core's TemplateNodeInfoProvider. (*StaticAutoscaler).RunOnce in core/static_autoscaler.go of
// k8s.io/autoscaler/cluster-autoscaler (1.33) calls Process once in each loop, before it updates its cluster state.
//
// Core needs it because its own provider builds all templates anew in each loop, of which there may be a thousand, and takes
// them from real nodes where it can; see [Templates].
package templates
