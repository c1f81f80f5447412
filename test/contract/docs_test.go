package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/sets"

	"gpu-spot-autoscaler/test/alisim/temper"
)

func page(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/contract.md")
	require.NoError(t, err)
	return string(text)
}

func TestEveryQuestionIsWhole(t *testing.T) {
	names := sets.New[string]()
	for _, q := range questions() {
		assert.Regexp(t, `^[a-z]+(-[a-z]+)*$`, q.name)
		assert.False(t, names.Has(q.name), "%s is asked twice", q.name)
		names.Insert(q.name)
		assert.Regexp(t, `^[A-Z][^?]*\?$`, q.asks, "%s: one question", q.name)
		assert.Regexp(t, `^[A-Z].*\.$`, q.matters, "%s: one sentence", q.name)
		assert.NotEmpty(t, q.source, "%s has no source", q.name)
		assert.NotEmpty(t, q.believed, "%s has no belief", q.name)
		assert.Equal(t, q.spends.anything(), q.try != nil, "%s: a question that buys, and no other, is tried", q.name)
		assert.Equal(t, q.spends.anything(), q.ask == nil, "%s is asked in one way", q.name)
		assert.LessOrEqual(t, q.spends.instances, mostInstances, q.name)
	}
}

func TestTheDocsListEveryQuestionAsItIs(t *testing.T) {
	_, after, found := strings.Cut(page(t), "## The questions\n\n")
	require.True(t, found)
	table, _, found := strings.Cut(after, "## What it does not ask")
	require.True(t, found)
	assert.Equal(t, listing(), table, "the tables are those of out/bin/contract -list")
}

func TestTheDocsExplainEveryFlagAndNoOther(t *testing.T) {
	var usage strings.Builder
	_, err := parse([]string{"-h"}, "", &usage)
	require.Error(t, err)
	there := captures(`(?m)^  -([a-z-]+)`, usage.String())
	assert.Equal(t, sets.List(there), sets.List(captures("`-([a-z-]+)`", page(t)).Insert("region", "group")))
}

func captures(pattern, text string) sets.Set[string] {
	found := sets.New[string]()
	for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		found.Insert(match[1])
	}
	return found
}

// TestTheDocsHaveThePermissionsThatItNeedsAndNoMore compares them with the calls in the source: some are sent only where
// something went wrong.
func TestTheDocsHaveThePermissionsThatItNeedsAndNoMore(t *testing.T) {
	t.Parallel()
	called := sets.New[string]()
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") || file == "simulator.go" {
			continue
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, call := range regexp.MustCompile(`(?:\.|")(ess|ecs|vpc)(?:\(ctx, |", )"([A-Z]\w+)"`).FindAllStringSubmatch(string(text), -1) {
			called.Insert(call[1] + ":" + call[2])
		}
	}
	for action := range simulated(t).RequestCounts() {
		assert.True(t, called.HasAny("ess:"+action, "ecs:"+action, "vpc:"+action), "%s is called by the product's client", action)
	}

	reads, buys := sets.New[string](), sets.New[string]()
	policies := regexp.MustCompile("(?s)```json\n(.*?)```").FindAllStringSubmatch(page(t), -1)
	require.Len(t, policies, 2)
	for n, into := range []sets.Set[string]{reads, buys} {
		var policy struct{ Statement []struct{ Action []string } }
		require.NoError(t, json.Unmarshal([]byte(policies[n][1]), &policy))
		into.Insert(policy.Statement[0].Action...)
	}
	assert.Equal(t, sets.List(called), sets.List(reads.Union(buys)))
	for action := range reads {
		assert.Contains(t, action, ":Describe")
	}
	assert.Empty(t, reads.Intersection(buys))
}

// TestEveryRuleOfTheTemperIsAskedAbout lets no belief of the simulator's go unasked, but those that nobody can ask about.
func TestEveryRuleOfTheTemperIsAskedAbout(t *testing.T) {
	asked := sets.New[string]()
	for _, q := range questions() {
		asked.Insert(q.rules...)
	}
	// What happens now and then, or to Nodes, or only in a group of another policy, or to instances of RunInstances. docs/contract.md
	// says so.
	unasked := sets.New("base", "rollBack", "rolledBackStayNamed", "loseNoteOf", "hangOneIn", "stayOneIn", "awaitStop", "policyDecides", "nodeController",
		"launchLags", "vanishOneIn", "entrustedOnly", "wrongStockPercent")
	there := sets.New[string]()
	rules := reflect.TypeFor[temper.Rules]()
	for _, field := range reflect.VisibleFields(rules) {
		there.Insert(field.Tag.Get("json"))
	}
	assert.Empty(t, sets.List(asked.Intersection(unasked)))
	assert.Equal(t, sets.List(there), sets.List(asked.Union(unasked)))
}
