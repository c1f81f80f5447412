// Package paging reads listings that come in pages, by number or by token, and asks for many ids in batches.
package paging

// concurrency is how many pages or batches of one listing are fetched at once.
const concurrency = 8
