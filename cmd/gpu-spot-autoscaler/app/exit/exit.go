// Package exit has the exit codes of the subcommands that check something: 0 if all is sound.
package exit

// Code is the exit code of a subcommand that has printed all there is to say. As an error it has no text.
type Code int

const (
	// Faults: the subcommand has found some.
	Faults Code = 1
	// CannotRun: the subcommand could not do its work, such as for want of a file or of an argument.
	CannotRun Code = 2
)

func (Code) Error() string { return "" }
