// Package market remembers what offerings were available at which price, and estimates from that how long an instance of one will
// be kept, and how often a purchase will be refused. A Keeper fills it with what was bought and lost, a Watch with what ECS says of
// the stock.
package market
