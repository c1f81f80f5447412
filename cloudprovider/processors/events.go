package processors

// EventSink tells the operator, as a Kubernetes Event on the autoscaler's Deployment.
type EventSink interface {
	Eventf(eventType, reason, messageFmt string, args ...any)
}
