// Command grants fails where the shipped roles or the shipped RAM policy grant what no end-to-end test has used. It also
// lists what the autoscaler or the node-agent of a test asked for and was refused, which is no failure: the test may have
// wanted it.
// `make test-e2e` records all that (package records).
//
// What no end-to-end test can use stands in unused.yaml, with the reason.
package main

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

func main() {
	root := flag.String("root", ".", "directory of the repository")
	records := flag.String("records", "out/records", "directory with what the end-to-end tests recorded")
	report := flag.String("report", "out/grants.txt", "file for the list of all grants, with how often each was used")
	flag.Parse()
	if err := run(*root, *records, *report); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(root, records, report string) error {
	granted, err := shipped(filepath.Join(root, "deploy"))
	if err != nil {
		return err
	}
	used, err := recorded(records)
	if err != nil {
		return err
	}
	excused, err := readExcuses(filepath.Join(root, "test", "grants", "unused.yaml"))
	if err != nil {
		return err
	}
	file, err := os.Create(report)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := used.report(file, granted); err != nil {
		return err
	}
	if err := judge(granted, used, excused); err != nil {
		return err
	}
	for _, request := range slices.Sorted(maps.Keys(used.refused)) {
		fmt.Println("refused in an end-to-end test:", request)
	}
	fmt.Printf("%d grants, %d of them excused: the end-to-end tests used all others (%s)\n", len(granted), len(excused), report)
	return nil
}

// excuse is a grant that no end-to-end test uses.
type excuse struct {
	grant  `json:",inline"`
	Reason string `json:"reason"`
}

func readExcuses(path string) (list []excuse, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if err := yaml.UnmarshalStrict(text, &list); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for _, one := range list {
		if one.Reason == "" {
			return nil, fmt.Errorf("%s: %s has no reason", path, one.grant)
		}
	}
	return list, nil
}

// judge says what is granted in vain, and which excuses are for nothing that is shipped.
func judge(granted []grant, used usage, excused []excuse) error {
	var unused, needless []string
	for _, g := range granted {
		if used.count[g] == 0 && !slices.ContainsFunc(excused, func(one excuse) bool { return one.grant == g }) {
			unused = append(unused, g.String())
		}
	}
	for _, one := range excused {
		if !slices.Contains(granted, one.grant) {
			needless = append(needless, one.grant.String())
		}
	}
	return errors.Join(
		complain("No end-to-end test used what is granted here. Grant it no more, add a test that needs it, or give the reason in test/grants/unused.yaml", unused),
		complain("test/grants/unused.yaml excuses what is not granted", needless))
}

// complain is nil where there is nothing to list.
func complain(about string, list []string) error {
	if len(list) == 0 {
		return nil
	}
	slices.Sort(list)
	return fmt.Errorf("%s:\n  %s", about, strings.Join(list, "\n  "))
}
