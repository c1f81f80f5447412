package api

// Tags of an ECS instance that was bought by RunInstances. The provider writes them with the purchase and reads them: before the
// instance is in its scaling group, nothing else says whose it is. They stay on the instance.
const (
	// TagInstancePool is the scaling group that the instance is for.
	TagInstancePool = "gpu-spot.autoscaling/pool"
	// TagInstancePurchase is the token of the purchase, TagInstancePurchaseSize the number of instances that it asked for.
	TagInstancePurchase     = "gpu-spot.autoscaling/purchase-token"
	TagInstancePurchaseSize = "gpu-spot.autoscaling/purchase-size"
	// TagInstanceAtomic is "true" if all instances of the purchase were asked for or none.
	TagInstanceAtomic = "gpu-spot.autoscaling/purchase-atomic"
	// TagInstanceBundle is shared by the purchases of several offerings that are made for one gang.
	TagInstanceBundle = "gpu-spot.autoscaling/purchase-bundle"
	// TagInstanceOwner is the installation that bought it, as in the notes of scaling activities.
	TagInstanceOwner = "gpu-spot.autoscaling/purchase-owner"
)
