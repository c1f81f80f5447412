// Package rpc sends single requests to Alibaba Cloud's APIs and returns their replies.
//
// It adds to the SDK what that lacks. It is safe for concurrent use and ends with the caller's context. It keeps within the
// rate limit of each action, signs every attempt anew, repeats attempts that were throttled or not answered, turns failures
// into an *alicloud.Error without secrets, and measures every attempt.
//
// Every request may be repeated: those that read, and those that buy or remove because they carry a ClientToken.
package rpc
