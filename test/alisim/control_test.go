package alisim_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gpu-spot-autoscaler/test/alisim"
)

func TestTheWorldIsSteeredOverHTTP(t *testing.T) {
	s := start(t)
	s.buy(spotGroup, 2)
	id := ids(s.members(spotGroup))[0]

	assert.Equal(t, 204, s.post("/_sim/reclaim", `{"instanceId": "`+id+`"}`).status)
	assert.Len(t, s.machines(recycling), 1)
	assert.Equal(t, 400, s.post("/_sim/reclaim", `{"instanceId": "i-x"}`).status)
	assert.Equal(t, 204, s.post("/_sim/withdraw", `{"instanceId": "`+id+`"}`).status)
	assert.Empty(t, s.machines(recycling))
	assert.Equal(t, 400, s.post("/_sim/withdraw", `{"instanceId": "`+id+`"}`).status)
	assert.Equal(t, 204, s.post("/_sim/reclaim", `{"instanceId": "`+id+`"}`).status)

	assert.Equal(t, 204, s.post("/_sim/stock", `{"instanceType": "`+small+`", "zone": "`+zoneA+`", "stock": 0}`).status)
	assert.Equal(t, 204, s.post("/_sim/stock", `{"instanceType": "`+large+`", "zone": "`+zoneA+`", "stock": 0, "purchase": "on-demand"}`).status)
	assert.Equal(t, "OperationDenied.NoStock", s.buy(onDemandGroup, 1).ErrorCode)
	assert.Equal(t, 204, s.post("/_sim/price", `{"instanceType": "`+small+`", "zone": "`+zoneB+`", "spot": 1, "onDemand": 12}`).status)

	assert.Equal(t, 204, s.post("/_sim/faults", `{"action": "ScaleWithAdjustment", "kind": "latency", "latency": "250ms", "times": 3}`).status)
	assert.Equal(t, []alisim.Fault{{Action: "ScaleWithAdjustment", Kind: alisim.FaultLatency, Latency: 250 * time.Millisecond, Times: 3}}, s.Faults())
	assert.Equal(t, 204, s.http(http.MethodDelete, "http://"+s.Endpoint()+"/_sim/faults", nil).status)
	assert.Empty(t, s.Faults())

	assert.Equal(t, 204, s.post("/_sim/groups", `{"id": "asg-new", "maxSize": 3, "instanceTypes": ["`+small+`"], "vswitches": ["`+vswA+`"]}`).status)
	assert.Equal(t, 3, s.group("asg-new").MaxSize)
	assert.Equal(t, 204, s.http(http.MethodDelete, "http://"+s.Endpoint()+"/_sim/groups?id=asg-new", nil).status)
	assert.Equal(t, 400, s.http(http.MethodDelete, "http://"+s.Endpoint()+"/_sim/groups?id=asg-new", nil).status)

	var state alisim.State
	got := s.http(http.MethodGet, "http://"+s.Endpoint()+"/_sim/state", nil)
	require.NoError(t, json.Unmarshal([]byte(got.body), &state))
	assert.Len(t, state.Groups, 2)
	assert.Len(t, state.Instances, 2)
	assert.True(t, state.Instances[0].Recycling())
	assert.Equal(t, 2, state.Requests["ScaleWithAdjustment"])
	assert.Equal(t, "Successful", state.Groups[0].Activities[0].Status)
	var requests []alisim.RequestView
	got = s.http(http.MethodGet, "http://"+s.Endpoint()+"/_sim/requests", nil)
	require.NoError(t, json.Unmarshal([]byte(got.body), &requests))
	assert.NotEmpty(t, requests)
}

func TestMistypedSteeringIsRefused(t *testing.T) {
	s := start(t)
	for path, body := range map[string]string{
		"/_sim/faults":  `{"kind": "throttle", "tmies": 3}`,
		"/_sim/stock":   `{"instanceType": "x", "purchase": "reserved"}`,
		"/_sim/groups":  `{"id": "asg-x", "maxSize": -1}`,
		"/_sim/price":   `price`,
		"/_sim/reclaim": ``,
	} {
		assert.Equal(t, 400, s.post(path, body).status, path)
	}
	assert.Equal(t, 404, s.post("/_sim/unknown", `{}`).status)
	assert.Equal(t, 404, s.http(http.MethodGet, "http://"+s.Endpoint()+"/somewhere", nil).status)
}
