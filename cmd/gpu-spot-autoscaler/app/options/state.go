package options

// What the autoscaler keeps in ConfigMaps of its namespace. The names are those of the Deployment with a suffix.
const (
	// StatusSuffix is of the ConfigMap with the problems of the leader, LedgerSuffix of that with the cost ledger, and MarketSuffix of
	// that with what is remembered of the market.
	StatusSuffix, LedgerSuffix, MarketSuffix = "-status", "-ledger", "-market"
	// StateKey is the key in the binary data of the latter two.
	StateKey = "state.json.gz"
)
