// Package nested builds commands whose source lies in Go modules of their own below this one, because what they link
// cannot share a module with the rest, or is too much for it.
package nested

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"time"
)

const (
	modulePath = "gpu-spot-autoscaler"
	binaries   = "out/bin"
)

// Command is one that is built when it is first needed.
type Command struct {
	// Name is that of the binary, in out/bin.
	Name string
	// Source is the directory of its module, from the root of the main module.
	Source string
	// Shared are directories of other modules that it is built from, by replace directives.
	Shared []string
	// ModuleFile is the one in that directory which says what is linked; default go.mod.
	ModuleFile string
	// LinkerFlags are passed on, beside those that leave out the symbols.
	LinkerFlags string
}

// Build makes sure that the binary is that of the sources and returns its path. Processes that build at the same time
// wait for each other. Output is told if there is something to wait for.
func (c Command) Build(ctx context.Context, output io.Writer) (binary string, err error) {
	root, err := repositoryRoot()
	if err != nil {
		return "", err
	}
	source, binary := filepath.Join(root, c.Source), filepath.Join(root, binaries, c.Name)
	if err := os.MkdirAll(filepath.Dir(binary), 0o755); err != nil {
		return "", err
	}
	unlock, err := lock(binary + ".lock")
	if err != nil {
		return "", err
	}
	defer unlock()

	sources := []string{source}
	for _, shared := range c.Shared {
		sources = append(sources, filepath.Join(root, shared))
	}
	want, err := fingerprint(sources, c.ModuleFile, c.LinkerFlags)
	if err != nil {
		return "", err
	}
	stamp := binary + ".stamp"
	have, err := os.ReadFile(stamp)
	if _, missing := os.Stat(binary); err == nil && missing == nil && string(have) == want {
		return binary, nil
	}
	fmt.Fprintf(output, "building %s; the first time this takes some minutes\n", c.Name)
	began := time.Now()
	// The linker leaves debug information out, so the compiler need not make it either. That takes an eighth of its time.
	arguments := []string{"build", "-buildvcs=false", "-gcflags=all=-dwarf=false", "-ldflags=-s -w " + c.LinkerFlags, "-o", binary}
	if c.ModuleFile != "" {
		arguments = append(arguments, "-modfile="+c.ModuleFile)
	}
	if _, err := run(ctx, source, append(arguments, ".")...); err != nil {
		return "", fmt.Errorf("build %s: %w", c.Name, err)
	}
	fmt.Fprintf(output, "built it in %.0f s\n", time.Since(began).Seconds())
	return binary, os.WriteFile(stamp, []byte(want), 0o644)
}

// ModuleDir is where the source of a module lies that the command's module requires. One of which nothing is built is downloaded first.
func (c Command) ModuleDir(ctx context.Context, module string) (string, error) {
	root, err := repositoryRoot()
	if err != nil {
		return "", err
	}
	dir, err := moduleDir(ctx, filepath.Join(root, c.Source), module)
	if err != nil {
		return "", fmt.Errorf("find module %s: %w", module, err)
	}
	return dir, nil
}

func moduleDir(ctx context.Context, source, module string) (string, error) {
	list := func() (string, error) {
		dir, err := run(ctx, source, "list", "-m", "-f", "{{.Dir}}", module)
		return strings.TrimSpace(dir), err
	}
	if dir, err := list(); err != nil || dir != "" {
		return dir, err
	}
	if _, err := run(ctx, source, "mod", "download", module); err != nil {
		return "", err
	}
	return list()
}

// run runs the go command in the directory, free of the flags of the caller's build, and returns its standard output.
func run(ctx context.Context, directory string, arguments ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", arguments...)
	cmd.Dir = directory
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", arguments[0], err, stderr.String())
	}
	return string(out), nil
}

// fingerprint sums up everything the command is built from, and the compiler. It saves the second or two that go build
// takes to find out that there is nothing to do.
func fingerprint(sources []string, flags ...string) (string, error) {
	sum := sha256.New()
	fmt.Fprintf(sum, "%s %q\n", runtime.Version(), flags)
	for _, source := range sources {
		if err := filepath.WalkDir(source, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || strings.HasSuffix(path, "_test.go") {
				return err
			}
			data, err := os.ReadFile(path)
			fmt.Fprintf(sum, "%s %d\n%s", path, len(data), data)
			return err
		}); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

var moduleLine = regexp.MustCompile(`(?m)^module ` + regexp.QuoteMeta(modulePath) + `\s*$`)

// repositoryRoot finds the main module's directory at or above the working directory.
func repositoryRoot() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if data, err := os.ReadFile(filepath.Join(dir, "go.mod")); err == nil && moduleLine.Match(data) {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("module %s is not at or above %s", modulePath, start)
		}
	}
}

// lock takes an advisory lock on the file, which the kernel gives back should this process die.
func lock(path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() { _ = file.Close() }, nil
}
