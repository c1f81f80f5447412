package paging

import "context"

// maxTokenPages ends a listing whose tokens never end.
const maxTokenPages = 1000

// Tokens fetches page after page until there is no next token, or the token repeats. The first token is "".
func Tokens[T any](ctx context.Context, fetch func(ctx context.Context, token string) (items []T, next string, err error)) ([]T, error) {
	var all []T
	token := ""
	for range maxTokenPages {
		items, next, err := fetch(ctx, token)
		if err != nil {
			return nil, err
		}
		all = append(all, items...)
		if next == "" || next == token {
			break
		}
		token = next
	}
	return all, nil
}
