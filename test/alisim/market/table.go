package market

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
)

// table is a CSV file with a header line.
type table struct {
	columns map[string]int
	records [][]string
}

// readTable reads a CSV that has at least the wanted columns, in any order.
func readTable(r io.Reader, wanted ...string) (table, error) {
	records, err := csv.NewReader(r).ReadAll()
	if err != nil {
		return table{}, err
	}
	if len(records) == 0 {
		return table{}, errors.New("no header line")
	}
	t := table{columns: map[string]int{}, records: records[1:]}
	for i, name := range records[0] {
		t.columns[name] = i
	}
	for _, name := range wanted {
		if _, ok := t.columns[name]; !ok {
			return table{}, fmt.Errorf("no column %q in the header %q", name, records[0])
		}
	}
	return t, nil
}

func (t table) text(record []string, column string) string { return record[t.columns[column]] }

// number reads a cell; an empty one is 0.
func (t table) number(record []string, column string) (float64, error) {
	cell := t.text(record, column)
	if cell == "" {
		return 0, nil
	}
	return strconv.ParseFloat(cell, 64)
}

// row is one record of a file of this package, whose numbers are known to be well-formed.
type row struct {
	table  table
	record []string
}

func (r row) text(column string) string { return r.table.text(r.record, column) }

func (r row) number(column string) float64 { return must(r.table.number(r.record, column)) }

// embedded iterates over a file of the data directory. It panics where the file is broken: it is part of the program.
func embedded(name string) iter.Seq[row] {
	file := must(data.Open("data/" + name))
	defer file.Close()
	t := must(readTable(file))
	return func(yield func(row) bool) {
		for _, record := range t.records {
			if !yield(row{t, record}) {
				return
			}
		}
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(fmt.Errorf("market: embedded data: %w", err))
	}
	return value
}
