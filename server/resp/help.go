package resp

import "strings"

// usage returns the syntax of the command, such as "HG.SETTLE id cost [cost ...]".
func (c *command) usage() string {
	return strings.TrimSuffix(c.name+" "+usage(c.params, " "), " ")
}

// usage returns the syntax of the arguments, with the string between separating them.
func usage(params []param, between string) string {
	var b strings.Builder
	for i, p := range params {
		if i > 0 {
			b.WriteString(between)
		}
		text := p.name
		switch {
		case p.choice:
			text = usage(p.of, " | ")
		case p.of != nil:
			text = usage(p.of, " ")
		}
		if p.token != "" {
			text = strings.TrimSuffix(p.token+" "+text, " ")
		}
		if p.multiple {
			text += " [" + text + " ...]"
		}
		if p.optional {
			text = "[" + text + "]"
		}
		b.WriteString(text)
	}
	return b.String()
}

// commandInfo lists the commands in the format of Redis, which clients know.
func (k *call) commandInfo() {
	sub, names := "", []string(nil)
	if len(k.args) > 1 {
		sub, names = k.args[1], k.args[2:]
	}
	switch {
	case sub == "", equal(sub, "INFO") && len(names) == 0:
		k.out = appendArray(k.out, len(k.conn.server.commands))
		for _, c := range k.conn.server.commands {
			k.out = c.appendInfo(k.out)
		}
	case equal(sub, "INFO"):
		k.out = appendArray(k.out, len(names))
		for _, name := range names {
			if c := k.conn.server.find(name); c != nil {
				k.out = c.appendInfo(k.out)
				continue
			}
			k.out = k.proto.appendNull(k.out)
		}
	case equal(sub, "COUNT"):
		k.out = appendInt(k.out, int64(len(k.conn.server.commands)))
	case equal(sub, "LIST"):
		k.out = appendArray(k.out, len(k.conn.server.commands))
		for _, c := range k.conn.server.commands {
			k.out = appendBulk(k.out, c.name)
		}
	case equal(sub, "DOCS"):
		k.commandDocs(names)
	default:
		k.fail("ERR", "COMMAND "+quote(sub)+" is not known here; there are COUNT, LIST, INFO and DOCS")
	}
}

// appendInfo writes the ten members that an entry has since Redis 7: some clients take them all for
// granted. Categories, tips, key specifications and subcommands are empty.
func (c *command) appendInfo(b []byte) []byte {
	arity := c.least
	if c.most != c.least {
		arity = -arity
	}
	step := min(c.key, 1)
	b = appendInt(appendBulk(appendArray(b, 10), strings.ToLower(c.name)), int64(arity))
	b = appendSimple(appendArray(b, 1), "fast")
	b = appendInt(appendInt(appendInt(b, int64(c.key)), int64(c.key)), int64(step))
	for range 4 {
		b = appendArray(b, 0)
	}
	return b
}

// commandDocs answers with what redis-cli needs for its hints and its HELP.
func (k *call) commandDocs(names []string) {
	var found []*command
	for _, name := range names {
		if c := k.conn.server.find(name); c != nil {
			found = append(found, c)
		}
	}
	if len(names) == 0 {
		found = k.conn.server.commands
	}
	k.out = k.proto.appendMap(k.out, len(found))
	for _, c := range found {
		group := "connection"
		if strings.Contains(c.name, ".") || c.name == "DEL" {
			group = "headgate"
		}
		k.out = appendBulk(k.out, strings.ToLower(c.name))
		k.out = k.proto.appendMap(k.out, 3)
		k.out = appendBulk(appendBulk(k.out, "summary"), c.summary)
		k.out = appendBulk(appendBulk(k.out, "group"), group)
		k.appendParams(c.params)
	}
}

func (k *call) appendParams(params []param) {
	k.out = appendArray(appendBulk(k.out, "arguments"), len(params))
	for i := range params {
		p := &params[i]
		var flags []string
		if p.optional {
			flags = append(flags, "optional")
		}
		if p.multiple {
			flags = append(flags, "multiple")
		}
		members, kind := 2, "string"
		if p.of != nil {
			members, kind = members+1, "block"
		}
		if p.choice {
			kind = "oneof"
		}
		if p.token != "" {
			members++
		}
		if flags != nil {
			members++
		}
		k.out = k.proto.appendMap(k.out, members)
		k.out = appendBulk(appendBulk(k.out, "name"), p.name)
		k.out = appendBulk(appendBulk(k.out, "type"), kind)
		if p.token != "" {
			k.out = appendBulk(appendBulk(k.out, "token"), p.token)
		}
		if flags != nil {
			k.out = appendArray(appendBulk(k.out, "flags"), len(flags))
			for _, f := range flags {
				k.out = appendSimple(k.out, f)
			}
		}
		if p.of != nil {
			k.appendParams(p.of)
		}
	}
}
