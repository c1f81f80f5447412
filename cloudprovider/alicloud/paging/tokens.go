package paging

import "context"

// maxTokenPages ends a listing whose tokens never end.
const maxTokenPages = 1000

// Tokens fetches page after page of the call's listing until there is no next token. The first token is "". A token that repeats,
// and one after very many pages, is an error: there may be more items.
func Tokens[T any](ctx context.Context, call Call, fetch func(ctx context.Context, token string) (items []T, next string, err error)) ([]T, error) {
	var all []T
	token := ""
	for range maxTokenPages {
		items, next, err := fetch(ctx, token)
		switch {
		case err != nil:
			return nil, err
		case next != "" && next == token:
			return nil, call.incomplete("the token of the next page repeats")
		}
		all = append(all, items...)
		if next == "" {
			return all, nil
		}
		token = next
	}
	return nil, call.incomplete("there are more than %d pages", maxTokenPages)
}
