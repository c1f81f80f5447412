package client

import (
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

// mainFailure returns code and message of the first failure whose code is known, else of the first. Some activities have the
// code in their text only, with "-" as StatusMessage and, for each attempt, this in Detail
// (aliyun/terraform-provider-alicloud issue 3301):
//
//	Fail to create Instances into scaling group(code:"InvalidSystemDiskCategory.ValueNotSupported", msg:"The specified …").
func mainFailure(failures []failure, a alicloud.Activity) (code, message string) {
	failures = slices.DeleteFunc(slices.Clone(failures), func(f failure) bool { return f.code == "" }) // they name instances only
	if len(failures) == 0 {
		failures = failuresInText(a.StatusDetail)
	}
	if len(failures) == 0 && a.Done() && a.Status != alicloud.ActivitySuccessful {
		if code := codeOfPhrase(a.StatusDetail + " " + a.ErrorMessage); code != "" {
			failures = []failure{{code: code, message: a.StatusDetail}}
		}
	}
	if len(failures) == 0 {
		return "", a.ErrorMessage
	}
	known := slices.IndexFunc(failures, func(f failure) bool { return alicloud.ClassOfCode(f.code) != alicloud.Unknown })
	chosen := failures[max(0, known)]
	if chosen.message == "" {
		chosen.message = a.ErrorMessage
	}
	return chosen.code, chosen.message
}

// failure is one reason why an activity did not create all instances.
type failure struct {
	code, message string
	instances     []string
}

// failuresOf decodes ErrorMessages. Its items have Code, Message and FailedInstanceIds, which are instances that were created
// and rolled back (SDK v1.63.107). A list may be plain or, as is the custom of version 2014-08-28, inside an object. Items
// that cannot be decoded are left out.
func failuresOf(text json.RawMessage) (failures []failure) {
	for _, item := range itemsOf(text) {
		var one struct {
			Code, Message, Description string
			FailedInstanceIds          json.RawMessage
		}
		if json.Unmarshal(item, &one) != nil || one.Code == "" && one.FailedInstanceIds == nil {
			continue
		}
		f := failure{code: one.Code, message: one.Message}
		if f.message == "" {
			f.message = one.Description
		}
		for _, id := range itemsOf(one.FailedInstanceIds) {
			var instance string
			if json.Unmarshal(id, &instance) == nil && instance != "" {
				f.instances = append(f.instances, instance)
			}
		}
		failures = append(failures, f)
	}
	return failures
}

// itemsOf returns the items of a list that is plain or inside an object.
func itemsOf(text json.RawMessage) (items []json.RawMessage) {
	if json.Unmarshal(text, &items) == nil {
		return items
	}
	var named map[string][]json.RawMessage
	if json.Unmarshal(text, &named) != nil {
		return nil
	}
	for _, list := range named {
		items = append(items, list...)
	}
	return items
}

var codeInText = regexp.MustCompile(`code:\s*"([^"]+)"(?:,\s*msg:\s*"(.*?)"\))?`)

func failuresInText(text string) (failures []failure) {
	for _, found := range codeInText.FindAllStringSubmatch(text, -1) {
		failures = append(failures, failure{code: found[1], message: found[2]})
	}
	return failures
}

// codeOfPhrases are for activities that have no code in any field or text. The phrases are from the messages of the same
// codes, and from the page "Troubleshoot scaling activity exceptions" (Auto Scaling, August 2026).
var codeOfPhrases = []struct{ phrase, code string }{
	{"out of stock", "OperationDenied.NoStock"},
	{"sold out", "OperationDenied.NoStock"},
	{"not on sale", "Zone.NotOnSale"},
	{"lower than the public price", "OperationDenied.SpotPriceLowerThanPublicPrice"},
	{"does not have enough balance", "InvalidAccountStatus.NotEnoughBalance"},
	{"not enough balance", "InvalidAccountStatus.NotEnoughBalance"},
	{"total capacity will not change", alicloud.CodeNoChange},
}

// codeOfPhrase returns "" for a text without a known phrase.
func codeOfPhrase(text string) string {
	text = strings.ToLower(text)
	for _, known := range codeOfPhrases {
		if strings.Contains(text, known.phrase) {
			return known.code
		}
	}
	return ""
}

// joinTexts joins the texts of several fields without repetitions. ESS writes "-" for an empty text, and repeats a sentence
// for every attempt.
func joinTexts(texts ...string) string {
	var sentences []string
	for _, text := range texts {
		for sentence := range strings.SplitAfterSeq(text, "). ") {
			sentence = strings.TrimSpace(sentence)
			if sentence != "" && sentence != "-" && !slices.Contains(sentences, sentence) {
				sentences = append(sentences, sentence)
			}
		}
	}
	return strings.Join(sentences, " ")
}

// addedInstances matches the number in a description: Add "6" ECS instances (sample output of DescribeScalingActivities).
var addedInstances = regexp.MustCompile(`(?i)^add\s+"?(\d+)"?`)

// adding returns how many instances an activity is to add, 0 if its description does not say.
func adding(description string) int {
	if found := addedInstances.FindStringSubmatch(strings.TrimSpace(description)); found != nil {
		n, _ := strconv.Atoi(found[1]) // 0 if there are too many digits
		return n
	}
	return 0
}
