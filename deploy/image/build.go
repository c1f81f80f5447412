package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// commit is what the images are built from.
type commit struct {
	// revision has the suffix -dirty if there were changes to it.
	revision string
	time     time.Time
}

// commitOf returns the commit that is checked out.
func commitOf(ctx context.Context, root string) (commit, error) {
	git := func(arguments ...string) (string, error) {
		text, err := exec.CommandContext(ctx, "git", append([]string{"-C", root}, arguments...)...).Output()
		if err != nil {
			return "", fmt.Errorf("git %s: %w", strings.Join(arguments, " "), err)
		}
		return strings.TrimSpace(string(text)), nil
	}
	revision, err := git("rev-parse", "HEAD")
	if err != nil {
		return commit{}, err
	}
	changes, err := git("status", "--porcelain")
	if err != nil {
		return commit{}, err
	}
	if changes != "" {
		revision += "-dirty"
	}
	seconds, err := git("log", "-1", "--format=%ct")
	if err != nil {
		return commit{}, err
	}
	at, err := strconv.ParseInt(seconds, 10, 64)
	return commit{revision, time.Unix(at, 0).UTC()}, err
}

// image is one that was built.
type image struct {
	digest string
	// lines say what was built.
	lines []string
}

// build builds the program for all architectures, and writes the archive and the SBOMs.
func build(ctx context.Context, o options, p program, source commit) (image, error) {
	scratch, err := os.MkdirTemp("", "image-")
	if err != nil {
		return image{}, err
	}
	defer os.RemoveAll(scratch)
	index, result := mutate.IndexMediaType(empty.Index, types.OCIImageIndex), image{}
	for _, architecture := range o.architectures {
		binary := filepath.Join(scratch, architecture, p.binary)
		if err := compile(ctx, o, p, architecture, source, binary); err != nil {
			return image{}, err
		}
		sbom, err := sbomOf(binary, p, o.version, source)
		if err != nil {
			return image{}, err
		}
		if err := os.WriteFile(filepath.Join(o.out, p.name+"-"+architecture+".spdx.json"), sbom, 0o644); err != nil {
			return image{}, err
		}
		one, size, err := imageOf(binary, sbom, p, o.version, architecture, source)
		if err != nil {
			return image{}, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: one, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: architecture}},
		})
		result.lines = append(result.lines, fmt.Sprintf("%s:%s linux/%s %.1f MB compressed", p.name, o.version, architecture, float64(size)/1e6))
	}
	digest, err := index.Digest()
	if err != nil {
		return image{}, err
	}
	archive := filepath.Join(o.out, p.name+"-"+o.version+".tar")
	result.digest = digest.String()
	result.lines = append(result.lines, fmt.Sprintf("%s:%s %s in %s", p.name, o.version, digest, archive))
	return result, writeArchive(archive, index, p.name+":"+o.version, o.version)
}

// compile compiles the program so that its bytes depend on nothing but the source and the version of Go.
func compile(ctx context.Context, o options, p program, architecture string, source commit, to string) error {
	target, err := filepath.Abs(to)
	if err != nil {
		return err
	}
	const variables = "-X gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/version."
	flags := strings.Join([]string{"-s -w -buildid=", variables + "commit=" + source.revision, variables + "release=" + o.version}, " ")
	command := exec.CommandContext(ctx, "go", "build", "-tags=externalgrpc", "-trimpath", "-buildvcs=false", "-ldflags="+flags, "-o", target, p.pkg)
	command.Dir = o.root
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off", "GOOS=linux", "GOARCH="+architecture)
	if said, err := command.CombinedOutput(); err != nil {
		return errors.Join(fmt.Errorf("compile %s for %s: %w", p.pkg, architecture, err), errors.New(string(said)))
	}
	return nil
}
