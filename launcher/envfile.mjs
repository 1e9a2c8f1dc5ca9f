// Dotenv files, read leniently and written so that wrangler's own reader (dotenv and dotenv-expand) takes every value as it is.
//
// Wrangler's reader cuts an unquoted value at `#` and expands `$NAME` even between quotes; an unquoted JSON value is the usual way to
// write AGENTS=…, so it must arrive whole.

const NAME = /^\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_.-]*)\s*=[^\S\n]*/;

/** The values of a dotenv text, as an object of strings. */
export function parseEnv(text) {
  const values = {};
  let rest = text.replace(/\r\n?/g, '\n');
  for (let line = 1; rest !== ''; ) {
    const head = NAME.exec(rest.slice(0, endOfLine(rest)));
    const before = rest;
    if (head) {
      const [value, after] = readValue(rest.slice(head[0].length));
      values[head[1]] = value;
      rest = after;
    } else {
      const content = rest.slice(0, endOfLine(rest)).trim();
      if (content !== '' && !content.startsWith('#')) throw new Error(`line ${line}: not NAME=value`);
      rest = rest.slice(endOfLine(rest) + 1);
    }
    line += before.slice(0, before.length - rest.length).split('\n').length - 1;
  }
  return values;
}

/** A text from which wrangler reads exactly these values. */
export function formatEnv(values) {
  return Object.entries(values)
    .map(([name, value]) => `${name}=${quote(name, typeof value === 'string' ? value : JSON.stringify(value))}\n`)
    .join('');
}

function endOfLine(text) {
  const end = text.indexOf('\n');
  return end < 0 ? text.length : end;
}

// The value at the head of `text`, and what follows its last line.
function readValue(text) {
  const end = endOfLine(text);
  const line = text.slice(0, end);
  if (/^[[{]/.test(line)) {
    const json = jsonAtHead(text);
    if (json) return json;
  }
  const quoted = /^['"`]/.test(line) && quotedAtHead(text);
  if (quoted) return quoted;
  return [line.replace(/(^|\s)#.*$/, '').trim(), text.slice(end + 1)];
}

// An unquoted JSON value: up to the end of its line, or of a later one, or before a comment.
function jsonAtHead(text) {
  for (let from = 0; from < text.length; ) {
    const next = text.indexOf('\n', from);
    const end = next < 0 ? text.length : next;
    const candidate = text.slice(0, end).trim();
    if (isJson(candidate)) return [candidate, text.slice(end + 1)];
    for (let hash = text.lastIndexOf(' #', end - 1); hash >= from && hash > 0; hash = text.lastIndexOf(' #', hash - 1)) {
      const cut = text.slice(0, hash).trim();
      if (isJson(cut)) return [cut, text.slice(end + 1)];
    }
    // JSON in several lines never holds a line that starts the next variable.
    if (NAME.test(text.slice(end + 1, end + 1 + endOfLine(text.slice(end + 1))))) return undefined;
    from = end + 1;
  }
  return undefined;
}

function quotedAtHead(text) {
  const mark = text[0];
  const pattern = mark === '"' ? /^"((?:\\[\s\S]|[^"\\])*)"[^\S\n]*(?:#.*)?(?:\n|$)/ : new RegExp(`^${mark}([^${mark}]*)${mark}[^\\S\\n]*(?:#.*)?(?:\\n|$)`);
  const found = pattern.exec(text);
  if (found) {
    const value = mark === '"' ? unescape(found[1]) : found[1];
    return [value, text.slice(found[0].length)];
  }
  // "{"a":1}": JSON whose own quotes are not escaped.
  const line = text.slice(0, endOfLine(text)).trimEnd();
  const inner = line.slice(1, -1);
  return line.endsWith(mark) && isJson(inner) ? [inner, text.slice(endOfLine(text) + 1)] : undefined;
}

function unescape(text) {
  return text.replace(/\\([nrt"\\])/g, (_, mark) => ({ n: '\n', r: '\r', t: '\t' })[mark] ?? mark);
}

function isJson(text) {
  if (!/^[[{]/.test(text)) return false;
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

function quote(name, value) {
  if (isJson(value)) {
    // Inside JSON every troublesome mark has an escape of its own.
    return `'${value.replace(/'/g, '\\u0027').replace(/\$/g, '\\u0024')}'`;
  }
  const mark = ["'", '`', '"'].find((each) => !value.includes(each) && (each !== '"' || !value.includes('\\')));
  if (mark === undefined) throw new Error(`${name}: a value with all of ' \` " cannot be handed to wrangler`);
  return mark + value.replace(/\$/g, '\\$') + mark;
}
