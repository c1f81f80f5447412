// Package pricing knows what GPU capacity costs: the Book keeps the market's prices, the Model prices nodes and pods for Cluster
// Autoscaler, and LeastPrice is the expander that chooses the option of the lowest cost per GPU. The cost by which options are
// compared is [Cost], for the expander and for the search that decides which offerings are evaluated.
//
// All prices are per instance-hour, in the account's currency. The package keeps them in memory: after a restart they are looked
// up again.
package pricing
