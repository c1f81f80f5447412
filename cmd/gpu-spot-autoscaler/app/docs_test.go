package app

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

func TestOperatorsCanReadUpWhyCallsFailInTheWordsOfTheEvents(t *testing.T) {
	text, err := os.ReadFile("../../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## What stands in the way\n")
	section, _, _ = strings.Cut(section, "\n## ")
	rows := map[alicloud.Reason]string{}
	for _, row := range regexp.MustCompile(`(?m)^\| ([a-z_]+) (\|.*)$`).FindAllStringSubmatch(section, -1) {
		rows[alicloud.Reason(row[1])] = row[2]
	}
	delete(rows, "reason") // the head
	for reason, remedy := range alicloud.Remedies {
		if row := rows[reason]; !strings.Contains(row, "| "+remedy.Cause+" |") || !strings.Contains(row, "| "+remedy.Fix) {
			t.Errorf("docs/operations.md does not say of %s: %s. %s", reason, remedy.Cause, remedy.Fix)
		}
		delete(rows, reason)
	}
	for reason := range rows {
		t.Errorf("docs/operations.md explains the reason %s, which does not exist", reason)
	}
}
