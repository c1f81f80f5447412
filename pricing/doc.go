// Package pricing knows what GPU capacity costs: the Book keeps the market's prices, the Model prices nodes and pods
// for Cluster Autoscaler, and LeastPrice is the expander that buys where a GPU costs least.
//
// All prices are per instance-hour in the account's currency.
package pricing
