package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"
)

// The following are the fields of an SPDX document that are used. Source: https://spdx.github.io/spdx-spec/v2.3/.
type (
	spdxDocument struct {
		Version       string             `json:"spdxVersion"`
		License       string             `json:"dataLicense"`
		ID            string             `json:"SPDXID"`
		Name          string             `json:"name"`
		Namespace     string             `json:"documentNamespace"`
		CreationInfo  spdxCreation       `json:"creationInfo"`
		Packages      []spdxPackage      `json:"packages"`
		Relationships []spdxRelationship `json:"relationships"`
	}
	spdxCreation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	spdxPackage struct {
		ID            string         `json:"SPDXID"`
		Name          string         `json:"name"`
		Version       string         `json:"versionInfo,omitempty"`
		Download      string         `json:"downloadLocation"`
		FilesAnalyzed bool           `json:"filesAnalyzed"`
		Checksums     []spdxChecksum `json:"checksums,omitempty"`
		References    []spdxRef      `json:"externalRefs,omitempty"`
	}
	spdxChecksum struct {
		Algorithm string `json:"algorithm"`
		Value     string `json:"checksumValue"`
	}
	spdxRef struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	spdxRelationship struct {
		From string `json:"spdxElementId"`
		Type string `json:"relationshipType"`
		To   string `json:"relatedSpdxElement"`
	}
)

const (
	documentID = "SPDXRef-DOCUMENT"
	programID  = "SPDXRef-Program"
)

// sbomOf returns the SPDX document of what the binary says that it was linked from: its Go modules, and Go itself.
func sbomOf(binary string, p program, version string, source commit) ([]byte, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(content)
	digest := hex.EncodeToString(sum[:])
	document := spdxDocument{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: documentID, Name: p.name + "-" + version, Namespace: "https://spdx.org/spdxdocs/" + p.name + "-" + digest,
		CreationInfo: spdxCreation{source.time.Format(time.RFC3339), []string{"Tool: gpu-spot-autoscaler-deploy-image"}},
		Packages: []spdxPackage{{
			ID: programID, Name: p.name, Version: version, Download: "NOASSERTION", Checksums: []spdxChecksum{{"SHA256", digest}},
		}},
		Relationships: []spdxRelationship{{documentID, "DESCRIBES", programID}},
	}
	document.depend("stdlib", strings.TrimPrefix(info.GoVersion, "go"))
	for _, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		document.depend(module.Path, module.Version)
	}
	return json.MarshalIndent(document, "", " ")
}

// depend adds a Go module to the document.
func (d *spdxDocument) depend(path, version string) {
	id := fmt.Sprintf("SPDXRef-Module-%d", len(d.Packages))
	d.Packages = append(d.Packages, spdxPackage{
		ID: id, Name: path, Version: version, Download: "NOASSERTION",
		References: []spdxRef{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + path + "@" + version}},
	})
	d.Relationships = append(d.Relationships, spdxRelationship{programID, "DEPENDS_ON", id})
}
