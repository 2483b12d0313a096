/**
 * Reads the stages of a Dockerfile and the TCP ports that they expose. The result prefills the
 * dashboard's form, so it can skip what it cannot resolve. Any user can write the file, and this
 * code runs in the process of all builds, so time and memory must grow only with the length of the
 * file: each instruction, value and list has a limit, and no regular expression can backtrack.
 */
import { MAX_PARTS_FOUND } from '@berth/wire/repository-look';

type Env = Map<string, string>;
type Stage = { name: string | null; ports: Set<number>; env: Env };
export type DockerfileFacts = {
  /** The ports of the last stage; null if the file is too large. */
  ports: number[] | null;
  targets: { name: string; ports: number[] }[];
};

/**
 * Maximum characters of one instruction, including continued lines. A longer instruction is
 * skipped.
 */
const MAX_INSTRUCTION = 4 * 1024;
/** Maximum characters of a value. A longer value counts as empty. */
const MAX_VALUE = 1024;
const MAX_VARIABLES = 200;
const MAX_PORTS = 100;
/** Maximum number of stages. A file with more is not read, because the last stage matters. */
const MAX_STAGES = 100;
const MAX_INSTRUCTIONS = 2_000;

/** Reads the facts. A stage inherits the ports and variables of the stage in its FROM. */
export function dockerfileFacts(text: string): DockerfileFacts {
  const stages: Stage[] = [];
  /** Values of the ARGs before the first FROM. */
  const global: Env = new Map();
  let count = 0;
  for (const { word, rest } of instructions(text)) {
    count += 1;
    const stage = stages.at(-1);
    if (word === 'FROM') stages.push(begun(rest, stages, global));
    else if (word === 'EXPOSE') expose(rest, stage);
    else define(rest, stage?.env ?? global, word, stage === undefined ? null : global);
    if (count > MAX_INSTRUCTIONS || stages.length > MAX_STAGES) return { ports: null, targets: [] };
  }
  const listed = ({ ports }: Stage): number[] => [...ports].slice(0, MAX_PARTS_FOUND);
  const last = stages.at(-1);
  const targets = stages.flatMap((stage) =>
    stage.name === null ? [] : [{ name: stage.name, ports: listed(stage) }],
  );
  return {
    ports: last === undefined ? [] : listed(last),
    targets: targets.slice(0, MAX_PARTS_FOUND),
  };
}

const READ = ['FROM', 'ARG', 'ENV', 'EXPOSE'] as const;
type Instruction = { word: (typeof READ)[number]; rest: string };

/**
 * Yields the instructions that matter here, up to 4 KiB each. Joins continued lines and removes
 * comments. The escape character is \ unless a directive at the top sets `.
 */
export function* instructions(text: string): Generator<Instruction> {
  let escape = '\\';
  let isTop = true;
  let open: string[] = [];
  let length = 0;
  for (const raw of text.split('\n')) {
    const line = raw.trim();
    if (isTop && line.startsWith('#') && /^#\s*escape\s*=\s*`/i.test(line.slice(0, 100)))
      escape = '`';
    isTop &&= line === '' || line.startsWith('#');
    if (line === '' || line.startsWith('#')) continue;
    const isContinued = line.endsWith(escape);
    length += line.length + 1;
    if (length > MAX_INSTRUCTION) open = [];
    else open.push(isContinued ? line.slice(0, -1) : line);
    if (isContinued) continue;
    const joined = open.join(' ').trimStart();
    open = [];
    length = 0;
    const end = joined.search(/\s/);
    const firstWord = (end === -1 ? joined : joined.slice(0, end)).toUpperCase();
    const word = READ.find((known) => known === firstWord);
    if (word !== undefined) yield { word, rest: end === -1 ? '' : joined.slice(end).trim() };
  }
}

function begun(rest: string, stages: readonly Stage[], global: Env): Stage {
  const words = rest.split(/\s+/).filter((word) => !word.startsWith('--'));
  const image = resolved(words[0] ?? '', global, MAX_VALUE).toLowerCase();
  const name = words[1]?.toUpperCase() === 'AS' ? (words[2] ?? null) : null;
  const base = stages.findLast((stage) => stage.name?.toLowerCase() === image);
  const isStageName = name !== null && /^[A-Za-z][\w.-]{0,199}$/.test(name);
  return { name: isStageName ? name : null, ports: new Set(base?.ports), env: new Map(base?.env) };
}

/**
 * Matches words, which can contain quoted blanks. No two alternatives begin with the same
 * character, so nothing is read twice except an unclosed quote.
 */
const WORDS = /(?:"[^"]*"|'[^']*'|[^\s"'])+|["']/g;
const isName = (text: string): boolean => /^[A-Za-z_]\w*$/.test(text);

/**
 * Adds the variables of an ARG or ENV. A stage sees a global ARG (`outer`) only if the stage
 * declares it again without a value.
 */
function define(rest: string, into: Env, word: 'ARG' | 'ENV', outer: Env | null): void {
  const set = (name: string, value: string): void => {
    if (isName(name) && (into.has(name) || into.size < MAX_VARIABLES))
      into.set(name, resolved(value, into, MAX_VALUE));
  };
  const words = rest.match(WORDS) ?? [];
  const [first = ''] = words;
  if (word === 'ENV' && !first.includes('='))
    return words.length > 1 ? set(first, rest.slice(first.length).trim()) : undefined;
  for (const pair of words) {
    const at = pair.indexOf('=');
    const outerValue = at === -1 && word === 'ARG' ? outer?.get(pair) : undefined;
    if (at !== -1) set(pair.slice(0, at), withoutQuotes(pair.slice(at + 1)));
    else if (outerValue !== undefined && (into.has(pair) || into.size < MAX_VARIABLES))
      into.set(pair, outerValue);
  }
}

const withoutQuotes = (text: string): string =>
  text.length > 1 && (text.startsWith('"') || text.startsWith("'")) && text.endsWith(text.charAt(0))
    ? text.slice(1, -1)
    : text;

/**
 * Replaces references to variables. Returns '' if the result exceeds `most` characters, because a
 * cut value would be a wrong one.
 */
function resolved(text: string, env: Env, most: number): string {
  let length = text.length;
  // Read an unclosed reference up to the end of the text, so that no character is read twice.
  const result = text.replace(
    /\$(?:\{([^}]*)(?:\}|$)|([A-Za-z_]\w*))/g,
    (whole, braced?: string, bare?: string) => {
      if (length > most) return '';
      const [, name, sign, otherwise = ''] =
        /^([A-Za-z_]\w*)(?:(:?-)(.*))?$/s.exec(braced ?? bare ?? '') ?? [];
      if (name === undefined) return whole;
      const current = env.get(name);
      const value =
        current === undefined || (current === '' && sign === ':-') ? otherwise : current;
      length += value.length;
      return value;
    },
  );
  return length > most ? '' : result;
}

/** Adds a port, or the first one of a range. Skips UDP ports, which are not published. */
function expose(rest: string, stage: Stage | undefined): void {
  if (stage === undefined) return;
  for (const word of resolved(rest, stage.env, MAX_INSTRUCTION).split(/\s+/)) {
    const [, port] = /^(\d{1,5})(?:-\d{1,5})?(?:\/tcp)?$/i.exec(word) ?? [];
    if (
      port !== undefined &&
      Number(port) >= 1 &&
      Number(port) <= 65_535 &&
      stage.ports.size < MAX_PORTS
    )
      stage.ports.add(Number(port));
  }
}

/** Tells whether the file's name is that of a Dockerfile, outside of installed packages. */
export const isDockerfilePath = (path: string): boolean =>
  /(?:^|\/)(?:(?:dockerfile|containerfile)(?:\.[^/]+)?|[^/]+\.dockerfile)$/i.test(path) &&
  !/\.dockerignore$/i.test(path) &&
  !/(?:^|\/)(?:node_modules|vendor|\.git)\//.test(path);
