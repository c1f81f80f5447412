// Package explain says why nothing is bought for a pod: in the pod's Event NotTriggerScaleUp, and at length to who asks.
//
// Both go by the same [reasons.Reason] values. [Events] is a processor of core: it has what core found in the loop, and keeps it in
// [Judgements]. An [Explainer] answers at any time: it takes what the last loop skipped or judged, and simulates the scheduler for the
// offerings that core left out before it looked whether the pod fits.
package explain
