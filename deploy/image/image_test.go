package main

import (
	"archive/tar"
	"cmp"
	"encoding/json"
	"flag"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// repository returns a repository with the programs, each of a few lines.
func repository(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	write := func(path, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, path)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, path), []byte(text), 0o644))
	}
	write("go.mod", "module gpu-spot-autoscaler\n\ngo 1.26\n")
	for _, p := range programs {
		write(filepath.Join(p.pkg, "main.go"), "package main\n\nfunc main() { println(\"hello\") }\n")
	}
	write("cmd/gpu-spot-autoscaler/app/version/version.go", "package version\n\nvar commit, release string\n\nfunc String() string { return release + \" of \" + commit }\n")
	write("cmd/gpu-spot-autoscaler/main.go", `package main

import "gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/version"

func main() { println(version.String()) }
`)
	for _, arguments := range [][]string{
		{"init", "-q"}, {"add", "-A"}, {"-c", "user.name=test", "-c", "user.email=test@example.com", "commit", "-q", "-m", "first"},
	} {
		said, err := exec.Command("git", append([]string{"-C", root}, arguments...)...).CombinedOutput()
		require.NoError(t, err, string(said))
	}
	return root
}

// built builds the images, and returns the directory of the archives and what was printed.
func built(t *testing.T, root string) (directory, said string) {
	t.Helper()
	directory = t.TempDir()
	var out strings.Builder
	require.NoError(t, run(t.Context(), []string{"-root", root, "-out", directory, "-version", "1.2.3"}, &out))
	return directory, out.String()
}

// unpack returns the index in an OCI archive of version 1.2.3.
func unpack(t *testing.T, archive string) v1.ImageIndex {
	t.Helper()
	index, version := open(t, archive)
	assert.Equal(t, "1.2.3", version)
	return index
}

// open returns the index in an OCI archive, and its tag.
func open(t *testing.T, archive string) (v1.ImageIndex, string) {
	t.Helper()
	file, err := os.Open(archive)
	require.NoError(t, err)
	defer file.Close()
	directory := t.TempDir()
	for reader := tar.NewReader(file); ; {
		header, err := reader.Next()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		content, err := io.ReadAll(reader)
		require.NoError(t, err)
		path := filepath.Join(directory, header.Name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, content, 0o644))
	}
	all, err := layout.ImageIndexFromPath(directory)
	require.NoError(t, err)
	manifest, err := all.IndexManifest()
	require.NoError(t, err)
	require.Len(t, manifest.Manifests, 1)
	assert.Equal(t, types.OCIImageIndex, manifest.Manifests[0].MediaType)
	index, err := all.ImageIndex(manifest.Manifests[0].Digest)
	require.NoError(t, err)
	return index, manifest.Manifests[0].Annotations["org.opencontainers.image.ref.name"]
}

// filesOf returns the content of the files in the image, which has one layer.
func filesOf(t *testing.T, image v1.Image) map[string][]byte {
	t.Helper()
	layers, err := image.Layers()
	require.NoError(t, err)
	require.Len(t, layers, 1)
	content, err := layers[0].Uncompressed()
	require.NoError(t, err)
	defer content.Close()
	files := map[string][]byte{}
	for reader := tar.NewReader(content); ; {
		header, err := reader.Next()
		if err == io.EOF {
			return files
		}
		require.NoError(t, err)
		files[header.Name], err = io.ReadAll(reader)
		require.NoError(t, err)
	}
}

func TestTheSameCommitGivesTheSameBytes(t *testing.T) {
	root := repository(t)
	first, said := built(t, root)
	second, _ := built(t, root)
	for _, p := range programs {
		archive := p.name + "-1.2.3.tar"
		one, err := os.ReadFile(filepath.Join(first, archive))
		require.NoError(t, err)
		two, err := os.ReadFile(filepath.Join(second, archive))
		require.NoError(t, err)
		assert.Equal(t, one, two, p.name)
		digest, err := unpack(t, filepath.Join(first, archive)).Digest()
		require.NoError(t, err)
		assert.Contains(t, said, p.name+":1.2.3 "+digest.String())
		digests, err := os.ReadFile(filepath.Join(first, "digests"))
		require.NoError(t, err)
		assert.Contains(t, string(digests), p.name+" "+digest.String())
	}
}

func TestAnImageHasTheProgramAndItsSBOMAndNothingElse(t *testing.T) {
	directory, _ := built(t, repository(t))
	for _, p := range programs {
		index := unpack(t, filepath.Join(directory, p.name+"-1.2.3.tar"))
		require.NoError(t, validate.Index(index))
		manifest, err := index.IndexManifest()
		require.NoError(t, err)
		var platforms []string
		for _, each := range manifest.Manifests {
			platforms = append(platforms, each.Platform.String())
			image, err := index.Image(each.Digest)
			require.NoError(t, err)
			checkImage(t, image, p, filepath.Join(directory, p.name+"-"+each.Platform.Architecture+".spdx.json"))
		}
		assert.Equal(t, []string{"linux/amd64", "linux/arm64"}, platforms)
	}
}

func checkImage(t *testing.T, image v1.Image, p program, sbomPath string) {
	t.Helper()
	config, err := image.ConfigFile()
	require.NoError(t, err)
	assert.Equal(t, user, config.Config.User)
	assert.Equal(t, []string{"/" + p.binary}, config.Config.Entrypoint)
	assert.Equal(t, "1.2.3", config.Config.Labels["org.opencontainers.image.version"])
	assert.Len(t, config.Config.Labels["org.opencontainers.image.revision"], 40)

	assert.Equal(t, exposed(t, p.binary), slices.Sorted(maps.Keys(config.Config.ExposedPorts)), "as in deploy/Dockerfile")

	files := filesOf(t, image)
	require.Len(t, files, 2)
	assert.NotEmpty(t, files[p.binary])
	if config.Architecture == runtime.GOARCH {
		binary := filepath.Join(t.TempDir(), p.binary)
		require.NoError(t, os.WriteFile(binary, files[p.binary], 0o700))
		said, err := exec.CommandContext(t.Context(), binary).CombinedOutput()
		require.NoError(t, err)
		want := map[string]string{"gpu-spot-autoscaler": "1.2.3 of " + config.Config.Labels["org.opencontainers.image.revision"]}
		assert.Equal(t, cmp.Or(want[p.name], "hello")+"\n", string(said))
	}
	beside, err := os.ReadFile(sbomPath)
	require.NoError(t, err)
	assert.Equal(t, beside, files["sbom.spdx.json"])
	var sbom spdxDocument
	require.NoError(t, json.Unmarshal(beside, &sbom))
	assert.Equal(t, "SPDX-2.3", sbom.Version)
	assert.Equal(t, p.name, sbom.Packages[0].Name)
	assert.Equal(t, "stdlib", sbom.Packages[1].Name)
}

// exposed returns the ports that the Dockerfile exposes of the image with this entry point.
func exposed(t *testing.T, binary string) (ports []string) {
	t.Helper()
	dockerfile, err := os.ReadFile("../Dockerfile")
	require.NoError(t, err)
	found := regexp.MustCompile(`EXPOSE ([0-9 ]+)\nENTRYPOINT \["/` + regexp.QuoteMeta(binary) + `"\]`).FindSubmatch(dockerfile)
	require.NotNil(t, found, binary)
	for _, port := range strings.Fields(string(found[1])) {
		ports = append(ports, port+"/tcp")
	}
	return ports
}

var archives = flag.String("archives", "", "Directory of archives of which the programs are started; make image has it.")

// What is started is in the archive, as a container engine would unpack it.
func TestTheProgramsOfTheArchivesStart(t *testing.T) {
	if *archives == "" {
		t.Skip("it starts what make image has built")
	}
	for _, p := range programs {
		paths, err := filepath.Glob(filepath.Join(*archives, p.name+"-*.tar"))
		require.NoError(t, err)
		require.NotEmpty(t, paths, p.name)
		for _, path := range paths {
			index, _ := open(t, path)
			image := imageFor(t, index, runtime.GOARCH)
			config, err := image.ConfigFile()
			require.NoError(t, err)
			files := filesOf(t, image)
			program := filepath.Join(t.TempDir(), p.binary)
			require.NoError(t, os.WriteFile(program, files[p.binary], 0o755))
			start := exec.CommandContext(t.Context(), program, p.starts)
			start.Env = []string{} // as in a container, where nothing is beside it
			said, err := start.CombinedOutput()
			require.NoError(t, err, "%s: %s", path, said)
			if p.starts == "version" {
				assert.Contains(t, string(said), config.Config.Labels["org.opencontainers.image.revision"])
				assert.Contains(t, string(files["sbom.spdx.json"]), `"golang.org/x/crypto/x509roots/fallback"`, "the certificates of public authorities are linked")
			}
			t.Logf("%s %s says:\n%s", path, p.starts, said)
		}
	}
}

// imageFor returns the image for the architecture.
func imageFor(t *testing.T, index v1.ImageIndex, architecture string) v1.Image {
	t.Helper()
	manifest, err := index.IndexManifest()
	require.NoError(t, err)
	for _, each := range manifest.Manifests {
		if each.Platform.Architecture == architecture {
			image, err := index.Image(each.Digest)
			require.NoError(t, err)
			return image
		}
	}
	t.Fatalf("there is none for %s", architecture)
	return nil
}

func TestAVersionIsRequired(t *testing.T) {
	assert.ErrorContains(t, run(t.Context(), nil, io.Discard), "-version is required")
}
