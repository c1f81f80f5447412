// Package architecture holds the whole repository to the rules that CONTRIBUTING.md and docs/architecture.md set up: how large
// a type, a file and a package may be, which packages may import which, which words are used, and that the links in documents lead
// somewhere. It reads source files and needs no cluster.
package architecture
