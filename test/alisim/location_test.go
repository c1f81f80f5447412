package alisim_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestLocationNamesTheEndpointOfAService(t *testing.T) {
	s := start(t)
	ask := func(code string) (int, map[string]any) {
		return s.raw(http.MethodGet, s.signed(http.MethodGet, "2015-06-12", "DescribeEndpoints", set("Id", region), set("ServiceCode", code), set("Type", "openAPI")), false)
	}
	status, body := ask("ess")
	assert.Equal(t, http.StatusOK, status)
	assert.Equal(t, true, body["Success"])
	endpoint := body["Endpoints"].(map[string]any)["Endpoint"].([]any)[0].(map[string]any)
	assert.Equal(t, "ess."+region+".aliyuncs.com", endpoint["Endpoint"])
	status, body = ask("")
	assert.Equal(t, http.StatusBadRequest, status)
	assert.Equal(t, "MissingServiceCode", body["Code"])
}
