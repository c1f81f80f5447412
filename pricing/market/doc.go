// Package market remembers what offerings were available at which price, and estimates from that how long an instance of one will
// be kept.
package market
