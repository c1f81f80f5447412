package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user is nobody in particular, and not root.
const user = "65532:65532"

// imageOf returns the image for one architecture, and the size of its layer in bytes.
func imageOf(binary string, sbom []byte, p program, version, architecture string, source commit) (v1.Image, int64, error) {
	program, err := os.ReadFile(binary)
	if err != nil {
		return nil, 0, err
	}
	content, err := archive([]file{{p.binary, program, 0o755}, {"sbom.spdx.json", sbom, 0o644}}, source.time)
	if err != nil {
		return nil, 0, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, 0, err
	}
	size, err := layer.Size()
	if err != nil {
		return nil, 0, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	config := v1.ConfigFile{
		Architecture: architecture, OS: "linux", Created: v1.Time{Time: source.time},
		Config: v1.Config{
			User: user, Entrypoint: []string{"/" + p.binary}, WorkingDir: "/", ExposedPorts: map[string]struct{}{},
			Labels: map[string]string{
				"org.opencontainers.image.title": p.name, "org.opencontainers.image.description": p.description,
				"org.opencontainers.image.version": version, "org.opencontainers.image.revision": source.revision,
				"org.opencontainers.image.created": source.time.Format(time.RFC3339),
			},
		},
		RootFS: v1.RootFS{Type: "layers"},
	}
	for _, port := range p.ports {
		config.Config.ExposedPorts[strconv.Itoa(port)+"/tcp"] = struct{}{}
	}
	image, err := mutate.ConfigFile(base, &config)
	if err != nil {
		return nil, 0, err
	}
	image, err = mutate.Append(image, mutate.Addendum{
		Layer: layer, MediaType: types.OCILayer, History: v1.History{Created: v1.Time{Time: source.time}, CreatedBy: "deploy/image"},
	})
	return image, size, err
}

// file is one in an archive.
type file struct {
	name    string
	content []byte
	mode    fs.FileMode
}

// archive returns the files as a tar archive, all of root and of one time.
func archive(files []file, at time.Time) ([]byte, error) {
	var text bytes.Buffer
	w := tar.NewWriter(&text)
	for _, f := range files {
		header := tar.Header{Typeflag: tar.TypeReg, Name: f.name, Size: int64(len(f.content)), Mode: int64(f.mode), ModTime: at, Format: tar.FormatUSTAR}
		if err := w.WriteHeader(&header); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return text.Bytes(), err
}

// writeArchive writes the index as an OCI archive, which containerd, Podman and Skopeo read, and Docker since version 25. The names are for them.
func writeArchive(path string, index v1.ImageIndex, name, tag string) error {
	directory, err := os.MkdirTemp("", "layout-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(directory)
	written, err := layout.Write(directory, mutate.IndexMediaType(empty.Index, types.OCIImageIndex))
	if err != nil {
		return err
	}
	names := map[string]string{"org.opencontainers.image.ref.name": tag, "io.containerd.image.name": name}
	if err := written.AppendIndex(index, layout.WithAnnotations(names)); err != nil {
		return err
	}
	var files []file
	err = filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error { // in lexical order
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(directory, path)
		files = append(files, file{relative, content, 0o644})
		return err
	})
	if err != nil {
		return err
	}
	content, err := archive(files, time.Unix(0, 0))
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return os.WriteFile(path, content, 0o644)
}
