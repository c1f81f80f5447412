package jobs

// Values of api.LabelHeld.
const (
	HeldSuspended = "suspended"
	HeldShrunk    = "shrunk"
)
