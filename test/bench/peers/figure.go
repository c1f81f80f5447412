package main

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
)

// row is one line of the table. A figure is better if it is less.
type row struct {
	What  string `json:"what"`
	Ours  figure `json:"ours"`
	Stock figure `json:"stock"`
	// Ratio is the in-tree provider's figure by ours.
	Ratio figure `json:"ratio"`
}

// found is a figure of one peer.
type found struct {
	what   string
	figure figure
}

// figure is a number, or a text where there is none.
type figure struct {
	number float64
	text   string
}

func number(value float64) figure { return figure{number: value} }

// none is the figure of what does not happen.
var none = figure{text: "none"}

// moreThan is the figure of what had not happened when it was not waited for any longer.
func moreThan(value float64) figure {
	return figure{text: "> " + strconv.FormatFloat(value, 'f', -1, 64)}
}

// String has three significant digits.
func (f figure) String() string {
	if f.text != "" {
		return f.text
	}
	digits := 2
	if f.number != 0 {
		digits = max(0, 2-int(math.Floor(math.Log10(math.Abs(f.number)))))
	}
	return strconv.FormatFloat(f.number, 'f', min(digits, 3), 64)
}

// MarshalJSON writes a number or a text.
func (f figure) MarshalJSON() ([]byte, error) {
	if f.text != "" {
		return json.Marshal(f.text)
	}
	return json.Marshal(f.number)
}

// compare puts the figures beside each other, which are of the same in the same order.
func compare(ours, stock []found) (rows []row) {
	for i := range ours {
		rows = append(rows, row{What: ours[i].what, Ours: ours[i].figure, Stock: stock[i].figure, Ratio: ratio(ours[i].figure, stock[i].figure)})
	}
	return rows
}

func ratio(ours, stock figure) figure {
	var least float64
	switch _, err := fmt.Sscanf(stock.text, "> %g", &least); {
	case ours.text != "" || ours.number == 0 || stock.text != "" && err != nil:
		return figure{text: "-"}
	case stock.text != "":
		return moreThan(math.Round(least / ours.number))
	}
	return number(stock.number / ours.number)
}
