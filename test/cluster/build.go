package cluster

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
	modulePath  = "gpu-spot-autoscaler"
	sourceDir   = "test/cluster/controlplane"
	binaryPath  = "out/bin/controlplane"
	kubeVersion = "1.33.13" // of k8s.io/kubernetes in the nested go.mod
)

// build makes sure that the control plane's binary is that of the sources and returns its path. Processes that build at
// the same time wait for each other.
func build(ctx context.Context, output io.Writer) (binary string, err error) {
	root, err := repositoryRoot()
	if err != nil {
		return "", err
	}
	source, binary := filepath.Join(root, sourceDir), filepath.Join(root, binaryPath)
	if err := os.MkdirAll(filepath.Dir(binary), 0o755); err != nil {
		return "", err
	}
	unlock, err := lock(binary + ".lock")
	if err != nil {
		return "", err
	}
	defer unlock()

	want, err := fingerprint(source)
	if err != nil {
		return "", err
	}
	stamp := binary + ".stamp"
	have, err := os.ReadFile(stamp)
	if _, missing := os.Stat(binary); err == nil && missing == nil && string(have) == want {
		return binary, nil
	}
	fmt.Fprintln(output, "building the test cluster's control plane; the first time this takes some minutes")
	began := time.Now()
	if err := goBuild(ctx, source, binary); err != nil {
		return "", err
	}
	fmt.Fprintf(output, "built it in %.0f s\n", time.Since(began).Seconds())
	return binary, os.WriteFile(stamp, []byte(want), 0o644)
}

func goBuild(ctx context.Context, source, binary string) error {
	major, minor, _ := strings.Cut(kubeVersion[:strings.LastIndex(kubeVersion, ".")], ".")
	// Kubernetes takes its version from the linker; without it the API server would call itself v0.0.0.
	version := "k8s.io/component-base/version"
	flags := fmt.Sprintf("-s -w -X %s.gitVersion=v%s -X %s.gitMajor=%s -X %s.gitMinor=%s", version, kubeVersion, version, major, version, minor)
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-ldflags="+flags, "-o", binary, ".")
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=") // flags of the caller's build are not for this one
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the control plane: %w\n%s", err, out)
	}
	return nil
}

// fingerprint sums up everything the nested module is built from, and the compiler. It saves the second or two that go
// build takes to find out that there is nothing to do.
func fingerprint(source string) (string, error) {
	sum := sha256.New()
	fmt.Fprintln(sum, runtime.Version(), kubeVersion)
	err := filepath.WalkDir(source, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasSuffix(path, "_test.go") {
			return err
		}
		data, err := os.ReadFile(path)
		fmt.Fprintf(sum, "%s %d\n%s", path, len(data), data)
		return err
	})
	return hex.EncodeToString(sum.Sum(nil)), err
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
