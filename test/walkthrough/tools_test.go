package walkthrough

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"gpu-spot-autoscaler/test/nested"
)

// tools returns kubectl, which is built if need be, and the helm that make lint and make test-e2e build.
func tools(t *testing.T) (kubectl, helm string) {
	t.Helper()
	const version = "k8s.io/component-base/version"
	kubectl, err := nested.Command{
		Name: "kubectl", Source: "test/walkthrough/kubectl",
		LinkerFlags: fmt.Sprintf("-X %[1]s.gitVersion=v1.36.1 -X %[1]s.gitMajor=1 -X %[1]s.gitMinor=36", version), // otherwise it calls itself v0.0.0
	}.Build(t.Context(), os.Stderr)
	require.NoError(t, err)
	helm, err = filepath.Abs(filepath.Join(root, "out/bin/helm"))
	require.NoError(t, err)
	require.FileExists(t, helm, "make lint builds it")
	return kubectl, helm
}

// sourceOfSDK returns where the source of Alibaba Cloud's SDK is.
func sourceOfSDK(t *testing.T) string {
	t.Helper()
	sdk, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/aliyun/alibaba-cloud-sdk-go").Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(sdk))
}

// refused returns why jq or curl do not understand how they are called. jq reads an empty object, and curl reaches nobody.
func refused(name string, arguments []string) error {
	// The exit codes are those for options, filters and URLs that are none. Source: the manuals of jq 1.7 and curl 8.
	wrong := []int{2, 3}
	if name == "curl" {
		arguments = slices.Concat(arguments, []string{"--proxy", "http://127.0.0.1:9", "--noproxy", "", "--silent"})
	}
	command := exec.Command(name, arguments...)
	command.Stdin = strings.NewReader("{}")
	out, err := command.CombinedOutput()
	var failed *exec.ExitError
	switch {
	case errors.As(err, &failed) && slices.Contains(wrong, failed.ExitCode()):
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))
	case failed == nil:
		return err
	}
	return nil
}

// checkDocker refuses a build of what the Dockerfile does not have.
func checkDocker(repository string, arguments []string) error {
	if len(arguments) == 0 || arguments[0] != "build" || arguments[len(arguments)-1] != "." {
		return errors.New("want build … .")
	}
	at := slices.Index(arguments, "-f")
	if at < 0 {
		return errors.New("want -f, since there is no Dockerfile in the root")
	}
	file := arguments[at+1]
	text, err := os.ReadFile(filepath.Join(repository, file))
	if err != nil {
		return err
	}
	for i, argument := range arguments[:len(arguments)-1] {
		value, _, _ := strings.Cut(arguments[i+1], "=")
		has := func(line string) bool { return regexp.MustCompile(`(?m)^` + line + `$`).Match(text) }
		switch argument {
		case "--build-arg":
			if !has(`ARG ` + regexp.QuoteMeta(value) + `(=.*)?`) {
				return fmt.Errorf("%s has no argument %s", file, value)
			}
		case "--target":
			if !has(`FROM .* AS ` + regexp.QuoteMeta(value)) {
				return fmt.Errorf("%s has no stage %s", file, value)
			}
		}
	}
	return nil
}

// withValue are the flags of go test and go run that have a value in the next argument.
var withValue = []string{"-run", "-tags", "-timeout", "-parallel", "-count"}

// checkGo refuses packages, tests, and flags of programs that do not exist.
func checkGo(repository string, arguments []string) error {
	if len(arguments) < 2 || !slices.Contains([]string{"test", "run"}, arguments[0]) {
		return errors.New("want test or run")
	}
	var packages []string
	pattern := ""
	for i := 1; i < len(arguments); i++ {
		switch {
		case slices.Contains(withValue, arguments[i]):
			if i++; arguments[i-1] == "-run" {
				pattern = arguments[i]
			}
		case strings.HasPrefix(arguments[i], "./"):
			packages = append(packages, arguments[i])
			if arguments[0] == "run" {
				return checkProgram(repository, arguments[i], arguments[i+1:])
			}
		}
	}
	if len(packages) == 0 {
		return errors.New("want a package")
	}
	return checkTests(repository, packages, pattern)
}

// checkProgram refuses flags that are declared nowhere in the program.
func checkProgram(repository, directory string, arguments []string) error {
	source, err := sourceIn(filepath.Join(repository, directory), ".go")
	if err != nil {
		return err
	}
	if !strings.Contains(source, "\npackage main\n") {
		return fmt.Errorf("%s is no program", directory)
	}
	for _, argument := range arguments {
		name, _, _ := strings.Cut(strings.TrimLeft(argument, "-"), "=")
		if strings.HasPrefix(argument, "-") && !strings.Contains(source, `"`+name+`"`) {
			return fmt.Errorf("%s has no flag -%s", directory, name)
		}
	}
	return nil
}

// checkTests refuses packages that do not exist, and a pattern that matches none of their tests.
func checkTests(repository string, packages []string, pattern string) error {
	name, _, _ := strings.Cut(pattern, "/") // of the test itself
	matches, err := regexp.Compile(name)
	if err != nil {
		return err
	}
	found := false
	for _, one := range packages {
		directory, below := strings.CutSuffix(one, "/...")
		var source string
		if below {
			err = filepath.WalkDir(filepath.Join(repository, directory), func(path string, entry fs.DirEntry, err error) error {
				if err != nil || !strings.HasSuffix(path, "_test.go") {
					return err
				}
				text, err := os.ReadFile(path)
				source += string(text)
				return err
			})
		} else {
			source, err = sourceIn(filepath.Join(repository, directory), "_test.go")
		}
		if err != nil {
			return err
		}
		for _, test := range regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`).FindAllStringSubmatch(source, -1) {
			found = found || matches.MatchString(test[1])
		}
	}
	if !found {
		return fmt.Errorf("no test matches %s", pattern)
	}
	return nil
}

// sourceIn returns the text of all files of a directory with the ending.
func sourceIn(directory, ending string) (all string, err error) {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return "", err
	}
	for _, entry := range entries {
		if !entry.IsDir() && strings.HasSuffix(entry.Name(), ending) {
			text, err := os.ReadFile(filepath.Join(directory, entry.Name()))
			if err != nil {
				return "", err
			}
			all += "\n" + string(text)
		}
	}
	return all, nil
}
