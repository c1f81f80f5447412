package fault

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

func TestConditionsAreReadWithTheirPeriods(t *testing.T) {
	conditions, err := ParseConditions([]string{"NvidiaXID79Error", " NvidiaXID48Error=5m", "example.com/DiskLost=1h"})
	require.NoError(t, err)
	assert.Equal(t, Conditions{"NvidiaXID79Error": 10 * time.Minute, "NvidiaXID48Error": 5 * time.Minute, "example.com/DiskLost": time.Hour}, conditions)
	none, err := ParseConditions(nil)
	require.NoError(t, err)
	assert.Empty(t, none)
	_, err = ParseConditions(DefaultConditions)
	assert.NoError(t, err)
}

func TestConditionsThatMakeNoSenseAreNamed(t *testing.T) {
	for element, says := range map[string]string{
		"":                       "the type of a condition",
		"Nvidia XID":             "the type of a condition",
		"NvidiaXID79Error=soon":  "a duration from 1m0s to 1h0m0s",
		"NvidiaXID79Error=":      "a duration from 1m0s to 1h0m0s",
		"NvidiaXID79Error=30s":   "a duration from 1m0s to 1h0m0s",
		"NvidiaXID79Error=61m":   "a duration from 1m0s to 1h0m0s",
		"Ready":                  "it is True on Nodes that are well",
		"InstanceExpired":        "it is a reclaim notice already",
		"NvidiaXID13Error":       "an error of a program",
		"NvidiaXID31Error=5m":    "an error of a program",
		"NvidiaXid43Error":       "an error of a program",
		"NodeHasXid45":           "an error of a program",
		"NvidiaDeviceLost=9m59s": "given twice",
	} {
		_, err := ParseConditions([]string{"NvidiaDeviceLost", element})
		assert.ErrorContains(t, err, says, element)
		assert.ErrorContains(t, err, `"`+element+`"`)
	}
	_, err := ParseConditions([]string{"Ready", "NvidiaXID79Error", "NvidiaXID13Error"})
	assert.ErrorContains(t, err, "Ready")
	assert.ErrorContains(t, err, "NvidiaXID13Error", "all of them at once")
}

func TestAnErrorOfAProgramIsNoFaultOfTheGPU(t *testing.T) {
	for message, faulty := range map[string]bool{
		"NVRM: Xid (PCI:0000:03:00): 79, pid=1234, GPU has fallen off the bus": true,
		"NVRM: Xid (PCI:0000:03:00): 13, Graphics SM Warp Exception":           false,
		"NVRM: Xid (0000:03:00): 31, Ch 0000001b, engmask 00000101":            false,
		"NVRM: Xid (PCI:0000:03:00): 43, pid=2345, Ch 00000010":                false,
		"NVRM: Xid (PCI:0000:03:00): 45, pid=2345, Ch 00000010":                false,
		"xid 45 after Xid 48":                true,
		"XID error: 31":                      false,
		"Xid errors: 31, XID-74":             true,
		"XID:13":                             false,
		"SXid 13 of an NVSwitch":             true,
		"SXid (PCI:0000:05:00.0): 31, Fatal": true,
		"the device is lost":                 true,
		"":                                   true,
		"Xid 99999999999999999999":           true,
	} {
		node := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: "GPUError", Status: corev1.ConditionTrue, Reason: "NodeHasNvidiaXidError", Message: message},
		}}}
		_, found := Conditions{"GPUError": time.Minute}.Of(node)
		assert.Equal(t, faulty, found, message)
	}
}

func TestTheFaultWithTheShortestPeriodCounts(t *testing.T) {
	node := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
		{Type: "Ready", Status: corev1.ConditionTrue},
		{Type: "NotListed", Status: corev1.ConditionTrue},
		{Type: "Over", Status: corev1.ConditionFalse},
		{Type: "Unclear", Status: corev1.ConditionUnknown},
	}}}
	conditions := Conditions{"Over": time.Minute, "Unclear": time.Minute, "Slow": time.Hour, "Fast": 2 * time.Minute, "Medium": 5 * time.Minute}
	_, faulty := conditions.Of(node)
	assert.False(t, faulty)
	for _, kind := range []corev1.NodeConditionType{"Slow", "Fast", "Medium"} {
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: kind, Status: corev1.ConditionTrue})
	}
	found, faulty := conditions.Of(node)
	assert.True(t, faulty)
	assert.Equal(t, corev1.NodeConditionType("Fast"), found.Condition.Type)
	assert.Equal(t, 2*time.Minute, found.Period)
}
