/**
 * Reads files in the `.env` format. Node's parser gives the values, but it silently skips lines
 * that it does not understand. So each entry is checked first, and a problem names its line. No
 * problem message contains a value.
 */
import { readFile, stat } from 'node:fs/promises';
import { resolve } from 'node:path';
import { parseEnv } from 'node:util';
import type { Io } from '../io.ts';
import { usage } from '../problem.ts';

export type EnvProblem = { line: number; message: string };
export type EnvFile = { values: Map<string, string>; problems: EnvProblem[] };

/** Maximum size in bytes: 1,000 variables with an average of 4 KiB. The API has further limits. */
const LIMIT = 4 * 1024 * 1024;
const ENTRY = /^\s*(?:export\s+)?([^\s=]*)\s*=[^\S\n]*(.*)$/;
const NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;
const QUOTES = ['"', "'", '`'];

export function readEnv(given: string): EnvFile {
  const lines = given.replace(/^\u{FEFF}/u, '').split(/\r\n|\n|\r/);
  const file: EnvFile = { values: new Map(), problems: [] };
  const first = new Map<string, number>();
  const refuse = (line: number, message: string): void =>
    void file.problems.push({ line, message });
  for (let at = 0; at < lines.length; at += 1) {
    const line = at + 1;
    const text = lines[at] ?? '';
    if (/^\s*(#|$)/.test(text)) continue;
    const [, name, start = ''] = ENTRY.exec(text) ?? [];
    if (name === undefined) {
      refuse(line, 'is not NAME=value');
      continue;
    }
    let value = start;
    let problem: string | null = null;
    const quote = QUOTES.find((mark) => start.startsWith(mark));
    if (quote === undefined) {
      if (/[^\s]#/.test(start))
        problem =
          'has a “#” inside the value: put the value in quotes, or a blank before a comment';
    } else {
      // A quoted value can span several lines.
      while (value.indexOf(quote, 1) === -1 && at + 1 < lines.length)
        value += `\n${lines[((at += 1))] ?? ''}`;
      const end = value.indexOf(quote, 1);
      const rest = end === -1 ? '' : value.slice(end + 1);
      if (end === -1) problem = `begins a value with ${quote}, and no ${quote} ends it`;
      else if (quote === '"' && value[end - 1] === '\\')
        problem = 'has \\" inside a value in double quotes: put the value in single quotes';
      else if (!/^\s*(#.*)?$/s.test(rest)) problem = `has text after the value in ${quote}`;
    }
    if (!NAME.test(name))
      problem = 'has an invalid name: use letters, digits and “_”, and do not begin with a digit';
    const before = first.get(name);
    if (problem === null && before !== undefined)
      problem = `sets ${name} again; line ${before} sets it too`;
    if (problem !== null) {
      refuse(line, problem);
      continue;
    }
    const parsed = parseEnv(`${name}=${value}\n`)[name];
    if (parsed === undefined) refuse(line, 'is not NAME=value');
    else {
      first.set(name, line);
      file.values.set(name, parsed);
    }
  }
  return file;
}

/** Reads a file, or standard input for `-`. Throws wrong usage that lists all invalid lines. */
export async function readEnvFile(io: Io, path: string): Promise<Map<string, string>> {
  const { values, problems } = readEnv(await textOf(io, path));
  const where = path === '-' ? 'standard input' : path;
  if (problems.length > 0) {
    const shown = problems.slice(0, 20).map(({ line, message }) => `line ${line} ${message}`);
    if (problems.length > shown.length) shown.push(`and ${problems.length - shown.length} more`);
    throw usage(
      `${where} was not imported: ${shown.join('; ')}`,
      'correct the lines; nothing was changed',
    );
  }
  if (values.size === 0)
    throw usage(`${where} has no variables`, 'each line has the form NAME=value');
  return values;
}

async function textOf(io: Io, path: string): Promise<string> {
  if (path === '-') {
    if (io.terminal.in)
      throw usage(
        'standard input is a terminal',
        'give the name of a file, or: berth env import - < FILE',
      );
    return io.readStdin(LIMIT);
  }
  const full = resolve(io.cwd, path);
  try {
    const { size } = await stat(full);
    if (size > LIMIT) throw usage(`${path} is longer than ${LIMIT / 1024 ** 2} MiB`);
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(await readFile(full));
  } catch (error) {
    if (error instanceof TypeError) throw usage(`${path} is not text in UTF-8`, undefined, error);
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT') throw usage(`there is no file ${path}`, undefined, error);
    if (code === 'EISDIR' || code === 'EACCES')
      throw usage(
        `${path} cannot be read: ${code === 'EISDIR' ? 'it is a folder' : 'no access'}`,
        undefined,
        error,
      );
    throw error;
  }
}
