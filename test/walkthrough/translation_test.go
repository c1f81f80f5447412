package walkthrough

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// translated are the pages that have to be there in Chinese, besides the runbooks. Others may be.
var translated = []string{
	"README.md", "docs/README.md", "docs/install.md", "docs/ack.md", "docs/settings.md", "docs/jobs.md",
	"docs/troubleshooting.md", "docs/faq.md", "docs/upgrade.md", "docs/security.md", "docs/doctor.md", "docs/dry-run.md",
	"docs/operations.md", "docs/reclaim.md", "docs/status.md", "docs/drill.md", "docs/costs.md", "docs/plan.md",
	"docs/node-agent.md", "docs/pricing.md", "docs/threat-model.md", "docs/serve.md",
}

func TestTranslationsHaveTheCommandsHeadingsNamesAndLinksOfTheirOriginals(t *testing.T) {
	there := map[string]bool{}
	for _, page := range pagesIn(t, translations, path.Join(translations, "runbooks")) {
		of, _ := original(page)
		there[of] = true
		t.Run(of, func(t *testing.T) {
			if _, err := os.Stat(filepath.Join(root, of)); !assert.NoError(t, err, "of what is it the translation?") {
				return
			}
			for _, difference := range differences(readDocument(t, of), readDocument(t, page)) {
				t.Error(difference)
			}
		})
	}
	for _, page := range append(pagesIn(t, "docs/runbooks"), translated...) {
		assert.True(t, there[page], "%s is not translated", page)
	}
}

// pagesIn returns the pages in these directories of the repository, without those in directories below.
func pagesIn(t *testing.T, directories ...string) (pages []string) {
	t.Helper()
	for _, directory := range directories {
		files, err := filepath.Glob(filepath.Join(root, directory, "*.md"))
		require.NoError(t, err)
		for _, file := range files {
			pages = append(pages, path.Join(directory, filepath.Base(file)))
		}
	}
	return pages
}

// differences returns how a translation differs from its original where it must not.
func differences(of, to document) (all []string) {
	say := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	if !slices.Equal(of.levels, to.levels) {
		say("%s has headings of the levels %v, and %s %v", of.path, of.levels, to.path, to.levels)
	}
	for i := range max(len(of.blocks), len(to.blocks)) {
		switch {
		case i >= len(to.blocks):
			say("%s has no block for that of %s:%d", to.path, of.path, of.blocks[i].line)
		case i >= len(of.blocks):
			say("%s has no block for that of %s:%d", of.path, to.path, to.blocks[i].line)
		case of.blocks[i].language != to.blocks[i].language || of.blocks[i].code() != to.blocks[i].code():
			say("%s:%d is not %s:%d: %s", to.path, to.blocks[i].line, of.path, of.blocks[i].line, firstDifference(of.blocks[i].code(), to.blocks[i].code()))
		}
	}
	if missing, more := compare(of.keys, to.keys); missing != nil || more != nil {
		say("tables of %s lack %v of %s, and have %v besides", to.path, missing, of.path, more)
	} else if !slices.Equal(of.keys, to.keys) {
		say("tables of %s have the keys %v, and those of %s the same in another order: %v", of.path, of.keys, to.path, to.keys)
	}
	if !slices.Equal(of.rows, to.rows) {
		say("tables of %s have %v rows, and those of %s %v", of.path, of.rows, to.path, to.rows)
	}
	if missing, more := compare(of.names, to.names); missing != nil || more != nil {
		say("%s does not name %v as often as %s, and %v more often", to.path, missing, of.path, more)
	}
	if missing, more := compare(of.links, to.links); missing != nil || more != nil {
		say("%s lacks links of %s to %v, and has links to %v besides", to.path, of.path, missing, more)
	}
	return all
}

func firstDifference(of, to string) string {
	ofLines, toLines := strings.Split(of, "\n"), strings.Split(to, "\n")
	for i := range max(len(ofLines), len(toLines)) {
		ofLine, toLine := "(nothing)", "(nothing)"
		if i < len(ofLines) {
			ofLine = ofLines[i]
		}
		if i < len(toLines) {
			toLine = toLines[i]
		}
		if ofLine != toLine {
			return fmt.Sprintf("%q became %q", ofLine, toLine)
		}
	}
	return "another language"
}

// compare returns what of a list is not in the other, each as often as it is, and the other way round.
func compare(of, to []string) (missing, more []string) {
	more = slices.Clone(to)
	for _, one := range of {
		if i := slices.Index(more, one); i >= 0 {
			more = slices.Delete(more, i, i+1)
			continue
		}
		missing = append(missing, one)
	}
	if len(more) == 0 {
		more = nil
	}
	return missing, more
}

const page = `# Install

[中文](zh-CN/install.md)

## First

Read [settings](settings.md#tags), [ESS](https://www.alibabacloud.com/help/en/ess) and [the source](https://example.com/x).

    helm install x    # a release

- a list

  with [a page](jobs.md)

| key | |
|---|---|
| ` + "`a`, `b`" + ` | two |
| ` + "`c`" + ` and more | no key |

` + "```sh\n# what it does\nkubectl get pods # all\n```\n"

const pageInChinese = `# 安装

[English](../install.md)

## 第一

参见[设置](settings.md#标签)、[ESS](https://help.aliyun.com/zh/ess)和[源码](https://example.com/x)。

    helm install x    # 一个发布

- 列表

  含[一页](../jobs.md)

| 键 | |
|---|---|
| ` + "`a`、`b`" + ` | 两个 |
| ` + "`c`等" + ` | 不是键 |

` + "```sh\n# 做什么\nkubectl get pods # 全部\n```\n"

func TestWhatATranslationHasOtherwiseIsFound(t *testing.T) {
	of := parse("docs/install.md", page)
	for name, test := range map[string]struct {
		before, after string
		want          string
	}{
		"nothing": {},
		"a heading of another level": {
			before: "## 第一", after: "### 第一", want: "headings of the levels [1 2], and docs/zh-CN/install.md [1 3]",
		},
		"another command":          {before: "kubectl get pods", after: "kubectl get nodes", want: `"kubectl get pods" became "kubectl get nodes"`},
		"another indented command": {before: "helm install x", after: "helm install y", want: `"helm install x" became "helm install y"`},
		"a command that is missing": {
			before: "    helm install x    # 一个发布\n", want: `"helm install x" became "kubectl get pods"`,
		},
		"another key":            {before: "`b`", after: "`d`", want: "lack [`a` `b`] of docs/install.md, and have [`a` `d`] besides"},
		"a name that is lost":    {before: "`c`等", after: "其他", want: "does not name [`c`] as often as docs/install.md"},
		"a row that is lost":     {before: "| `c`等 | 不是键 |\n", want: "tables of docs/install.md have [4] rows, and those of docs/zh-CN/install.md [3]"},
		"a link that is lost":    {before: "[一页](../jobs.md)", want: "lacks links of docs/install.md to [docs/jobs.md]"},
		"a link without a place": {before: "settings.md#标签", after: "settings.md", want: "to [docs/settings.md#], and has links to [docs/settings.md] besides"},
	} {
		t.Run(name, func(t *testing.T) {
			if test.before != "" {
				require.Contains(t, pageInChinese, test.before)
			}
			found := strings.Join(differences(of, parse("docs/zh-CN/install.md", strings.Replace(pageInChinese, test.before, test.after, 1))), "\n")
			if test.want == "" {
				assert.Empty(t, found)
				return
			}
			assert.Contains(t, found, test.want)
		})
	}
}
