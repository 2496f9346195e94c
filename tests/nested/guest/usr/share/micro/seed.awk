# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Reads what cloud-init's NoCloud seeds hold (meta-data, user-data, network-config): the part of YAML that people and PyYAML write (block
# mappings and sequences, plain, quoted and literal scalars, flow collections and so JSON). Each value becomes a call of
# emit(path, value); the few that this guest knows are written into files below `out`.

{ sub(/\r$/, ""); line[++count] = $0 }

END {
    now = 1
    skip()
    if (now <= count) entry(indent_of(now), "", -1)
}

function emit(path, value,    part, folder) {
    sub(/^\/network\/ethernets\//, "/ethernets/", path)
    if (path == "/instance-id" || path == "/local-hostname" || path == "/hostname") {
        printf "%s\n", value > (out path)
    } else if (path ~ /^\/ethernets\//) {
        print substr(path, 12), value > (out "/network")
    } else if (path ~ /^\/(write_files\/[0-9]+\/(path|content|encoding|permissions|owner)|users\/[0-9]+\/(name|passwd|hashed_passwd|lock_passwd))$/) {
        split(path, part, "/")
        folder = out (part[2] == "users" ? "/user." : "/file.") part[3]
        sub(/^hashed_/, "", part[4])
        if (!(folder in made)) system("mkdir -p " folder)
        made[folder] = 1
        if (part[4] == "permissions") sub(/^0o/, "0", value)
        printf "%s", value > (folder "/" part[4])
        close(folder "/" part[4])
    }
}

function indent_of(number) { match(line[number], /^ */); return RLENGTH }

function strip(text) { sub(/^[ \t]+/, "", text); sub(/[ \t]+$/, "", text); return text }

# Go on to the next line that is neither blank nor a comment nor a document's mark.
function skip() { while (now <= count && line[now] ~ /^[ \t]*(#.*)?$|^---[ \t]*$|^\.\.\.[ \t]*$|^%/) now++ }

# Whether a text starts with a key, and at which place its colon is.
function colon(text) {
    if (text ~ /^"([^"\\]|\\.)*"[ ]*:([ \t]|$)/) { match(text, /^"([^"\\]|\\.)*"[ ]*:/); return RLENGTH }
    if (text ~ /^'[^']*'[ ]*:([ \t]|$)/) { match(text, /^'[^']*'[ ]*:/); return RLENGTH }
    if (text ~ /^["'{[|>&*!#]/) return 0
    if (match(text, /:([ \t]|$)/)) return RSTART
    return 0
}

# Read whatever stands at this line, indented so far, below something indented less.
function entry(indent, path, parent,    text) {
    text = substr(line[now], indent + 1)
    if (text ~ /^-([ \t]|$)/) sequence(indent, path)
    else if (colon(text)) mapping(indent, path)
    else value(text, parent, path)
}

function sequence(indent, path,    number, text, deeper) {
    number = 0
    while (now <= count && indent_of(now) == indent && substr(line[now], indent + 1) ~ /^-([ \t]|$)/) {
        text = substr(line[now], indent + 2)
        if (strip(text) == "" || strip(text) ~ /^#/) {
            now++
            skip()
            if (now <= count && indent_of(now) > indent) entry(indent_of(now), path "/" number, indent)
        } else {
            match(text, /^[ \t]*/)
            deeper = indent + 1 + RLENGTH
            line[now] = sprintf("%" deeper "s", "") strip(text)
            entry(deeper, path "/" number, indent)
        }
        number++
        skip()
    }
}

function mapping(indent, path,    text, at, key) {
    while (now <= count && indent_of(now) == indent) {
        text = substr(line[now], indent + 1)
        at = colon(text)
        if (!at) break
        key = strip(substr(text, 1, at - 1))
        if (key ~ /^["']/) key = substr(key, 2, length(key) - 2)
        value(substr(text, at + 1), indent, path "/" key, 1)
        skip()
    }
}

# Read a value that starts with this text, below something indented so far.
function value(text, indent, path, in_mapping,    whole) {
    text = strip(text)
    sub(/^![^ ]*[ ]*/, "", text)
    if (text == "" || text ~ /^#/) {
        now++
        skip()
        if (now <= count && indent_of(now) > indent) entry(indent_of(now), path, indent)
        else if (in_mapping && now <= count && indent_of(now) == indent && substr(line[now], indent + 1) ~ /^-([ \t]|$)/) {
            sequence(indent, path)
        } else emit(path, "")
    } else if (text ~ /^[|>]/) {
        now++
        emit(path, literal(text, indent))
    } else if (text ~ /^["'{[]/) {
        buffer = text
        at_char = 1
        now++
        flow(path)
    } else {
        sub(/[ \t]#.*$/, "", text)
        whole = strip(text)
        for (now++; now <= count && indent_of(now) > indent && line[now] !~ /^[ \t]*$/; now++) whole = whole " " strip(line[now])
        emit(path, whole)
    }
}

# Read a block scalar, of which the header has been seen.
function literal(header, indent,    depth, body, text, folded) {
    folded = header ~ /^>/
    depth = match(header, /[1-9]/) ? (indent < 0 ? 0 : indent) + substr(header, RSTART, 1) : 0
    body = ""
    for (; now <= count; now++) {
        text = line[now]
        if (text !~ /^ *$/) {
            if (!depth) depth = indent_of(now)
            if (indent_of(now) < depth || depth <= indent) break
        }
        body = body substr(text, depth + 1) "\n"
    }
    if (folded) body = fold(body)
    if (header !~ /\+/) {
        sub(/\n+$/, "", body)
        if (header !~ /-/ && body != "") body = body "\n"
    }
    return body
}

# Line breaks as in `>` and in quotes: one is a blank, n blank lines are n breaks.
function fold(text,    result, tail, place, number) {
    tail = match(text, /\n+$/) ? substr(text, RSTART) : ""
    if (tail != "") text = substr(text, 1, RSTART - 1)
    result = ""
    while (match(text, /[ \t]*\n[ \t\n]*/)) {
        place = substr(text, RSTART, RLENGTH)
        result = result substr(text, 1, RSTART - 1)
        text = substr(text, RSTART + RLENGTH)
        number = gsub(/\n/, "", place)
        if (number == 1) result = result " "
        for (; number > 1; number--) result = result "\n"
    }
    return result text tail
}

# The character that is next in a flow value; lines are taken in as they are needed.
function peek() {
    while (at_char > length(buffer)) {
        if (now > count) return ""
        buffer = buffer "\n" line[now++]
    }
    return substr(buffer, at_char, 1)
}

function blanks() { while (peek() ~ /^[ \t\n]$/) at_char++ }

function flow(path,    char, key, number) {
    blanks()
    char = peek()
    if (char == "{" || char == "[") {
        at_char++
        number = 0
        for (blanks(); peek() != "" && peek() !~ /^[]}]$/; blanks()) {
            if (char == "{") {
                key = scalar()
                blanks()
                if (peek() == ":") at_char++
                flow(path "/" key)
            } else flow(path "/" number++)
            blanks()
            if (peek() == ",") at_char++
            else if (peek() !~ /^[]}]$/) return
        }
        at_char++
    } else emit(path, scalar())
}

function scalar(    char, text) {
    char = peek()
    text = ""
    if (char == "\"" || char == "'") {
        at_char++
        return char == "\"" ? double_quoted() : single_quoted()
    }
    while ((char = peek()) != "" && char !~ /^[][,{}\n]$/ && !(char == ":" && substr(buffer, at_char + 1, 1) ~ /^[ \t\n]?$/)) {
        text = text char
        at_char++
    }
    return strip(text)
}

function single_quoted(    text, char) {
    text = ""
    while ((char = peek()) != "") {
        at_char++
        if (char == "'") {
            if (substr(buffer, at_char, 1) != "'") break
            at_char++
        }
        text = text char
    }
    return fold(text)
}

# Pieces between escapes are folded by themselves: an escaped blank or break is not folded away.
function double_quoted(    text, piece, char) {
    text = piece = ""
    while ((char = peek()) != "" && char != "\"") {
        at_char++
        if (char != "\\") {
            piece = piece char
            continue
        }
        text = text fold(piece)
        piece = ""
        char = peek()
        at_char++
        if (char == "\n") while (peek() ~ /^[ \t]$/) at_char++
        else if (char == "n") text = text "\n"
        else if (char == "t") text = text "\t"
        else if (char == "r") text = text "\r"
        else if (char == "x") text = text utf8(2)
        else if (char == "u") text = text utf8(4)
        else text = text char
    }
    at_char++
    return text fold(piece)
}

# The character whose code is in the next so many hex digits.
function utf8(digits,    code) {
    code = 0
    for (; digits > 0; digits--) code = code * 16 + index("0123456789abcdef", tolower(substr(buffer, at_char++, 1))) - 1
    if (code < 128) return sprintf("%c", code)
    if (code < 2048) return sprintf("%c%c", 192 + int(code / 64), 128 + code % 64)
    return sprintf("%c%c%c", 224 + int(code / 4096), 128 + int(code / 64) % 64, 128 + code % 64)
}
