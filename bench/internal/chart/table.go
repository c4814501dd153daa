package chart

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// table is a table of a page, by the names of its rows and columns.
type table struct {
	columns []string
	rows    [][]string
}

// tables are those that stand between the markers of a section.
func tables(page, section string) ([]table, error) {
	_, text, found := strings.Cut(page, "<!-- bench:"+section+" begin -->")
	text, _, ended := strings.Cut(text, "<!-- bench:"+section+" end -->")
	if !found || !ended {
		return nil, fmt.Errorf("chart: the page has no section %q", section)
	}
	var all []table
	inside := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			inside = false
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case !inside:
			all = append(all, table{columns: cells})
		case strings.HasPrefix(line, "|--"):
		default:
			last := &all[len(all)-1]
			last.rows = append(last.rows, cells)
		}
		inside = true
	}
	return all, nil
}

// bars are the figures of a column, for all rows that have one; read makes a number of a cell.
func (t *table) bars(column string, read func(string) (float64, error)) ([]bar, error) {
	at := slices.Index(t.columns, column)
	if at < 0 {
		return nil, fmt.Errorf("chart: a table has the columns %q, and not %q", t.columns, column)
	}
	var all []bar
	for _, row := range t.rows {
		if strings.HasPrefix(row[0], "(") {
			continue // What the measuring itself costs.
		}
		value, err := read(row[at])
		if err != nil {
			return nil, fmt.Errorf("chart: %s, %s: %w", row[0], column, err)
		}
		all = append(all, bar{row[0], value})
	}
	return all, nil
}

// number reads a figure such as "20,056" or "1.13 ×".
func number(cell string) (float64, error) {
	digits := strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) || r == '×' || r == ',' {
			return -1
		}
		return r
	}, cell)
	return strconv.ParseFloat(digits, 64)
}

// second reads the second figure of a cell such as "94.1 / 99.5": that of two cores.
func second(cell string) (float64, error) {
	_, cell, _ = strings.Cut(cell, " / ")
	return number(cell)
}
