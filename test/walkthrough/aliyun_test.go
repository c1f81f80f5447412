package walkthrough

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk"
	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/auth/credentials"
	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
)

// aliyun stands in for Alibaba Cloud's command line: aliyun <product> <action> [--<parameter> <value>]... It refuses actions and parameters
// that the SDK does not have. Requests to ESS it sends to the simulated cloud; the others it answers itself, since nothing here simulates
// ACK and RAM.
func aliyun(c *call) error {
	region, err := c.parse(os.Getenv(sdkVariable))
	if err != nil {
		return err
	}
	answer, err := answerTo(c.Arguments[0], c.Arguments[1], region, c.Parameters)
	fmt.Println(answer)
	return err
}

// parse reads the parameters of the call, and refuses what the SDK does not have. The region is that of the configured profile if none is given.
func (c *call) parse(sdk string) (region string, err error) {
	if len(c.Arguments) < 2 {
		return "", errors.New("want a product and an action")
	}
	product, action := c.Arguments[0], c.Arguments[1]
	region = os.Getenv("REGION")
	c.Parameters = map[string]string{}
	for rest := c.Arguments[2:]; len(rest) > 0; rest = rest[2:] {
		name, isFlag := strings.CutPrefix(rest[0], "--")
		if !isFlag || len(rest) < 2 {
			return "", fmt.Errorf("%q: want --parameter value", rest)
		}
		if name == "region" {
			region = rest[1]
			continue
		}
		c.Parameters[name] = rest[1]
	}
	known, err := requestParameters(sdk, product, action)
	if err != nil {
		return "", err
	}
	for name, value := range c.Parameters {
		switch {
		case product == "cs" && name == "header":
			if value != "Content-Type=application/json" {
				return "", fmt.Errorf("--header %s", value)
			}
		case product == "cs" && name == "body":
			if err := checkBody(action, value); err != nil {
				return "", fmt.Errorf("--body of %s: %w", action, err)
			}
		case !slices.ContainsFunc(known, func(pattern *regexp.Regexp) bool { return pattern.MatchString(name) }):
			return "", fmt.Errorf("'--%s' is not a valid parameter or flag of %s %s", name, product, action)
		}
	}
	return region, nil
}

// requestParameters returns what names of parameters the request has in the SDK, as patterns: those of lists have a number in them.
func requestParameters(sdk, product, action string) (patterns []*regexp.Regexp, err error) {
	directory := filepath.Join(sdk, "services", product)
	entries, err := os.ReadDir(directory)
	if err != nil {
		return nil, fmt.Errorf("'%s' is not a valid command or product: %w", product, err)
	}
	for _, entry := range entries { // describe_scaling_groups.go has DescribeScalingGroups
		if strings.ReplaceAll(entry.Name(), "_", "") == strings.ToLower(action)+".go" {
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(directory, entry.Name()), nil, parser.SkipObjectResolution)
			if err != nil {
				return nil, err
			}
			return parametersOf(file, action+"Request"), nil
		}
	}
	return nil, fmt.Errorf("'%s' is not a valid api of %s", action, product)
}

// parametersOf reads the tags of the fields of a request: `position:"Query" name:"Tag" type:"Repeated"`.
func parametersOf(file *ast.File, request string) (patterns []*regexp.Regexp) {
	structs := map[string]*ast.StructType{}
	ast.Inspect(file, func(node ast.Node) bool {
		if spec, ok := node.(*ast.TypeSpec); ok {
			if s, ok := spec.Type.(*ast.StructType); ok {
				structs[spec.Name.Name] = s
			}
		}
		return true
	})
	var names func(s *ast.StructType) []string
	names = func(s *ast.StructType) (all []string) {
		for _, field := range s.Fields.List {
			if field.Tag == nil {
				continue
			}
			text, _ := strconv.Unquote(field.Tag.Value) // it compiles
			tag := reflect.StructTag(text)
			name := regexp.QuoteMeta(tag.Get("name"))
			if tag.Get("type") == "Repeated" {
				name += `\.[1-9]\d*`
			}
			below := []string{}
			ast.Inspect(field.Type, func(node ast.Node) bool {
				if id, ok := node.(*ast.Ident); ok && structs[id.Name] != nil {
					for _, inner := range names(structs[id.Name]) {
						below = append(below, name+`\.`+inner)
					}
				}
				return true
			})
			if len(below) == 0 {
				below = []string{name}
			}
			all = append(all, below...)
		}
		return all
	}
	if structs[request] == nil {
		return nil
	}
	for _, name := range names(structs[request]) {
		patterns = append(patterns, regexp.MustCompile("^"+name+"$"))
	}
	return patterns
}

// bodies are the fields of bodies that the documentation uses, which the SDK does not have. Source: CreateClusterNodePool,
// ModifyClusterNodePool, ModifyCluster and DescribeClusterAttachScripts of Container Service, 2015-12-15, and what
// resource_alicloud_cs_kubernetes_node_pool.go of aliyun/terraform-provider-alicloud (81c43b6727a0) sends.
var bodies = map[string][]string{
	"CreateClusterNodePool": {
		"nodepool_info.name", "auto_scaling.enable", "management.enable", "kubernetes_config.runtime", "scaling_group.vswitch_ids",
		"scaling_group.instance_types", "scaling_group.key_pair", "scaling_group.system_disk_category", "scaling_group.system_disk_size",
		"scaling_group.spot_strategy", "scaling_group.multi_az_policy", "scaling_group.spot_instance_remedy", "scaling_group.compensate_with_on_demand",
	},
	"ModifyClusterNodePool":        {"auto_scaling.enable", "auto_scaling.min_instances", "auto_scaling.max_instances", "auto_scaling.type"},
	"ModifyCluster":                {"enable_rrsa"},
	"DescribeClusterAttachScripts": {"nodepool_id", "keep_instance_name"},
}

func checkBody(action, text string) error {
	var body map[string]any
	if err := json.Unmarshal([]byte(text), &body); err != nil {
		return err
	}
	for name, value := range body {
		fields, nested := value.(map[string]any)
		if !nested {
			fields = map[string]any{"": value}
		}
		for field := range fields {
			if full := strings.TrimSuffix(name+"."+field, "."); !slices.Contains(bodies[action], full) {
				return fmt.Errorf("%s is no known field", full)
			}
		}
	}
	return nil
}

// answerTo returns what Alibaba Cloud answers.
func answerTo(product, action, region string, parameters map[string]string) (string, error) {
	if product == "ess" {
		return ask(action, region, parameters)
	}
	switch action {
	case "CreateClusterNodePool":
		return `{"nodepool_id": "` + os.Getenv(nodePoolVariable) + `", "task_id": "T-1"}`, nil
	case "DescribeClusterNodePoolDetail":
		return `{"nodepool_info": {"nodepool_id": "` + parameters["NodepoolId"] + `"}, "scaling_group": {"scaling_group_id": "` + os.Getenv(groupVariable) + `"}}`, nil
	case "DescribeClusterAttachScripts":
		return "IyEvYmluL3No", nil
	case "GetOIDCProvider":
		return `{"OIDCProvider": {"OIDCProviderName": "` + parameters["OIDCProviderName"] + `", "IssuerUrl": "` + os.Getenv(issuerVariable) + `"}}`, nil
	}
	return `{"RequestId": "1"}`, nil
}

// ask sends a request to the simulated cloud, as an administrator.
func ask(action, region string, parameters map[string]string) (string, error) {
	id, secret, _ := strings.Cut(os.Getenv(keyVariable), ":")
	client, err := sdk.NewClientWithOptions(region, sdk.NewConfig(), credentials.NewAccessKeyCredential(id, secret))
	if err != nil {
		return "", err
	}
	request := requests.NewCommonRequest()
	request.Method, request.Scheme, request.Domain = "POST", "http", os.Getenv(cloudVariable)
	request.Version, request.ApiName, request.QueryParams = "2014-08-28", action, parameters
	response, err := client.ProcessCommonRequest(request)
	if err != nil {
		return "", err
	}
	return response.GetHttpContentString(), nil
}
