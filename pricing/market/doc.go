// Package market remembers what offerings were available at which price, and estimates from that how long an instance of one will
// be kept, and how often a purchase will be refused. A Keeper fills it with the instances that are kept and lost, the ledger of
// package ess with purchases, a Watch with what ECS says of the stock.
package market
