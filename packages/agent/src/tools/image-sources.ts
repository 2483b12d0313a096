/**
 * Finds the images that a Dockerfile names, and refuses those that Berth's registry holds for other projects. The builder reads every
 * repository of the registry with one account, so without this check a build could copy the image of a project that is hidden from its
 * author.
 *
 * Anybody may have written the file. Versions of BuildKit read some forms differently; where they do, each reading counts. So the check
 * may refuse a form that no BuildKit accepts, and never misses one that some BuildKit accepts. Images that only a base image names
 * (ONBUILD) are not in the file: `sourcePolicy` has BuildKit refuse them.
 */
import { TaskFailure } from './failures.ts';

export type ImageRules = {
  /** The project's own repository, `{registry}/{project}`. */
  own: string;
  /** Names of the registry (`registryNames`), `host[:port][/path]`. */
  registries: readonly string[];
  /** Repositories of the registry that every project may use; `/*` at the end means all below. */
  shared: readonly string[];
};

/** Limits of the check. A Dockerfile beyond them is refused, because its end would not be checked. */
const MAX_LINES = 20_000;
const MAX_JOINED = 8 * 1024 * 1024;
const MAX_VALUE = 4096;
const MAX_DEPTH = 8;

/** Throws TaskFailure build_image_refused. */
export function checkImages(dockerfile: string, args: Readonly<Record<string, string>>, rules: ImageRules): void {
  const lines = dockerfile.replace(/^\u{FEFF}/u, '').split('\n');
  if (lines.length > MAX_LINES) throw refused(null, `the Dockerfile has more than ${MAX_LINES} lines, so its images cannot be checked`);
  // Versions differ in whether a doubled escape character continues a line; a directive chooses the character.
  for (const escape of ['\\', '`']) for (const isDoubledJoined of [true, false]) check(lines, { escape, isDoubledJoined }, args, rules);
}

/** Refuses a Dockerfile that was not read completely. */
export const unchecked = (limit: string): TaskFailure =>
  refused(null, `the Dockerfile is larger than ${limit}, so its images cannot be checked`);

const refused = (line: number | null, why: string): TaskFailure =>
  new TaskFailure('build_image_refused', line === null ? why : `line ${line}: ${why}`);

type Reading = { escape: string; isDoubledJoined: boolean };
const BLANKS = /[\s\u0085]+/;
const WORD = /^[\s\u0085]*([A-Za-z]+)/;

function check(lines: readonly string[], reading: Reading, args: Readonly<Record<string, string>>, rules: ImageRules): void {
  const env = new Map(PLATFORM_ARGS.map((name) => [name, args[name] ?? 'linux']));
  let joined = 0;
  let hasStage = false;
  let end = 0;
  for (let at = 0; at < lines.length; at += 1) {
    const [, first = ''] = WORD.exec(lines[at] ?? '') ?? [];
    const isInside = at < end;
    // A line inside another instruction counts too: the end of a here-document is hard to tell.
    if (isInside && !begins(first, (lines[at] ?? '').trim(), reading.escape)) continue;
    const { text, next } = instruction(lines, at, reading);
    joined += text.length;
    if (joined > MAX_JOINED) throw refused(at + 1, 'the Dockerfile is too long to check its images');
    end = Math.max(end, next);
    const [, word = '', rest = ''] = /^[\s\u0085]*([A-Za-z]+)(.*)$/s.exec(text) ?? [];
    const name = word.toUpperCase();
    if (name === 'ARG' && !hasStage) define(rest, env, args, reading.escape);
    if (name === 'FROM') {
      for (const part of words(rest, reading.escape)) judge(expanded(part, env, reading.escape), at + 1, rules);
      hasStage ||= !isInside;
    }
    if (/^(COPY|ADD|RUN|ONBUILD)$/.test(name)) {
      for (const value of namedImages(rest)) judge({ text: value, isWhole: true }, at + 1, rules);
      const inner = /^[\s\u0085]*FROM(.*)$/is.exec(rest)?.[1];
      if (name === 'ONBUILD' && inner !== undefined)
        for (const part of words(inner, reading.escape)) judge(expanded(part, env, reading.escape), at + 1, rules);
    }
  }
}

const NAMING = ['FROM', 'COPY', 'ADD', 'RUN', 'ONBUILD'];
/** Whether an instruction that names images may begin with the line. Its first word may go on in the next line. */
function begins(first: string, line: string, escape: string): boolean {
  const word = first.toUpperCase();
  return NAMING.includes(word) || (line === `${first}${escape}` && NAMING.some((name) => name.startsWith(word)));
}

/** Joins the instruction that begins at a line, as BuildKit does: comments and empty lines between continued lines do not count. */
function instruction(lines: readonly string[], at: number, { escape, isDoubledJoined }: Reading): { text: string; next: number } {
  const isComment = (line: string): boolean => /^[\s\u0085]*#/.test(line);
  let text = '';
  let next = at;
  if (isComment(lines[at] ?? '')) return { text, next: at + 1 };
  for (; next < lines.length; next += 1) {
    const line = (lines[next] ?? '').replace(/\r+$/, '');
    if (next > at && (isComment(line) || line.trim() === '')) continue;
    const bare = line.replace(/[ \t]+$/, '');
    const isContinued = bare.endsWith(escape) && (isDoubledJoined || bare.at(-2) !== escape);
    text += isContinued ? bare.slice(0, -1) : line;
    if (!isContinued) return { text, next: next + 1 };
    if (text.length > MAX_JOINED) return { text, next: next + 1 };
  }
  return { text, next };
}

/** The values of `--from=` and of `from=` in a mount. BuildKit expands no variables there. */
function* namedImages(text: string): Generator<string> {
  // Quotes and escapes inside a word do not change its value.
  for (const [, value = ''] of text.replace(/["'\\`]/g, '').matchAll(/from[\s\u0085]*=[\s\u0085]*([^\s\u0085,]+)/gi)) yield value;
}

/** Splits at blanks that are neither quoted nor escaped. Quotes and escapes stay. */
function words(text: string, escape: string): string[] {
  const found: string[] = [];
  let word = '';
  let quote = '';
  for (let at = 0; at < text.length; at += 1) {
    const char = text.charAt(at);
    if (quote === '' && BLANKS.test(char)) {
      if (word !== '') found.push(word);
      word = '';
      continue;
    }
    if (char === escape && quote !== "'") {
      word += char + text.charAt(at + 1);
      at += 1;
      continue;
    }
    if (quote === '' ? char === '"' || char === "'" : char === quote) quote = quote === '' ? char : '';
    word += char;
  }
  if (word !== '') found.push(word);
  // FROM splits at every blank, quoted or not.
  return [...found, ...found.flatMap((one) => (BLANKS.test(one) ? one.split(BLANKS) : []))];
}

const PLATFORM_ARGS = ['BUILD', 'TARGET'].flatMap((side) => ['PLATFORM', 'OS', 'ARCH', 'VARIANT', 'OSVERSION'].map((of) => side + of));

function define(rest: string, env: Map<string, string>, args: Readonly<Record<string, string>>, escape: string): void {
  for (const pair of words(rest, escape)) {
    const at = pair.indexOf('=');
    const name = at === -1 ? pair : pair.slice(0, at);
    const given = Object.hasOwn(args, name) ? args[name] : undefined;
    if (given !== undefined) env.set(name, given);
    else if (at !== -1) {
      const { text, isWhole } = expanded(pair.slice(at + 1), env, escape);
      env.set(name, isWhole ? text : `${text}${UNKNOWN}`);
    }
  }
}

/** Marks, inside a value, that its rest is unknown. No image name has this character. */
const UNKNOWN = '\0';
/** `isWhole`: false if only the beginning of the value is known. */
type Value = { text: string; isWhole: boolean };

/** Expands variables and removes quotes, as BuildKit does for FROM and ARG. */
function expanded(word: string, env: ReadonlyMap<string, string>, escape: string): Value {
  const text = new Lexer(word, env, escape).read('', 0);
  const unknown = text.indexOf(UNKNOWN);
  if (unknown !== -1) return { text: text.slice(0, unknown), isWhole: false };
  return { text, isWhole: true };
}

class Lexer {
  private at = 0;
  private readonly word: string;
  private readonly env: ReadonlyMap<string, string>;
  private readonly escape: string;
  constructor(word: string, env: ReadonlyMap<string, string>, escape: string) {
    this.word = word;
    this.env = env;
    this.escape = escape;
  }

  /** Reads up to `stop` or the end. */
  read(stop: string, depth: number): string {
    let text = '';
    while (this.at < this.word.length && text.length <= MAX_VALUE) {
      const char = this.word.charAt(this.at);
      if (stop !== '' && char === stop) break;
      if (char === "'") text += this.single();
      else if (char === '"') text += this.double(depth);
      else if (char === '$') text += this.variable(depth);
      else if (char === this.escape) text += this.escaped();
      else {
        text += char;
        this.at += 1;
      }
    }
    return text.length > MAX_VALUE ? `${text.slice(0, MAX_VALUE)}${UNKNOWN}` : text;
  }
  private escaped(): string {
    this.at += 2;
    return this.word.charAt(this.at - 1);
  }
  private single(): string {
    const end = this.word.indexOf("'", this.at + 1);
    const text = this.word.slice(this.at + 1, end === -1 ? undefined : end);
    this.at = end === -1 ? this.word.length : end + 1;
    return text;
  }
  private double(depth: number): string {
    let text = '';
    this.at += 1;
    while (this.at < this.word.length && this.word.charAt(this.at) !== '"' && text.length <= MAX_VALUE) {
      const char = this.word.charAt(this.at);
      if (char === '$') text += this.variable(depth);
      else if (char === this.escape && ['"', '$', this.escape].includes(this.word.charAt(this.at + 1))) text += this.escaped();
      else {
        text += char;
        this.at += 1;
      }
    }
    this.at += 1;
    return text;
  }
  private variable(depth: number): string {
    this.at += 1;
    const [bare] = /^(?:[A-Za-z_]\w*|[0-9@*#?$!-])/.exec(this.word.slice(this.at, this.at + MAX_VALUE)) ?? [];
    if (bare !== undefined) {
      this.at += bare.length;
      return this.env.get(bare) ?? '';
    }
    if (this.word.charAt(this.at) !== '{') return '$';
    const [start, name = '', sign = ''] = /^\{([A-Za-z_]\w*)(:?[-+?]|[}])?/.exec(this.word.slice(this.at, this.at + MAX_VALUE)) ?? [];
    if (start === undefined || sign === '' || depth > MAX_DEPTH) {
      // Another modifier, such as a removed prefix: what follows is unknown, also if the variable is empty.
      this.at = this.word.length;
      return UNKNOWN;
    }
    this.at += start.length;
    const known = this.env.get(name);
    if (sign === '}') return known ?? '';
    const otherwise = this.read('}', depth + 1);
    this.at += 1;
    const isSet = known !== undefined && (known !== '' || !sign.startsWith(':'));
    if (sign.endsWith('+')) return isSet ? otherwise : '';
    return isSet ? known : sign.endsWith('-') ? otherwise : '';
  }
}

function judge({ text, isWhole }: Value, line: number, rules: ImageRules): void {
  const image = fullName(text);
  const own = fullName(rules.own);
  const project = own.slice(own.lastIndexOf('/') + 1);
  for (const registry of rules.registries.map((name) => `${fullRegistry(name)}/`)) {
    if (!isWhole && registry.startsWith(text.toLowerCase()) && !image.startsWith(registry))
      throw refused(
        line,
        `the image “${text}…” depends on a value that the builder cannot tell, and could be an image of Berth’s registry`,
      );
    if (!image.startsWith(registry)) continue;
    const rest = image.slice(registry.length);
    if (isBelow(rest, project) || rules.shared.some((allowed) => isShared(image, fullName(allowed)))) return;
    throw refused(
      line,
      `${text.slice(0, 300)} is in Berth’s registry, outside the repository of this project. A build may use ${rules.own}, ` +
        'and what BUILD_BASE_IMAGES of the builder names',
    );
  }
}

const isBelow = (image: string, repository: string): boolean =>
  image === repository || (/^[:@]/.test(image.slice(repository.length)) && image.startsWith(repository));
const isShared = (image: string, allowed: string): boolean =>
  allowed.endsWith('/*') ? image.startsWith(allowed.slice(0, -1)) : isBelow(image, allowed);

const isHost = (part: string): boolean => /[.:A-Z]/.test(part) || part === 'localhost';
const HUB = /^(index\.|registry-1\.)?docker\.io$/;

/** Completes the name of an image as docker does: without a host, it is on Docker Hub. */
function fullName(image: string): string {
  const slash = image.indexOf('/');
  const first = slash === -1 ? '' : image.slice(0, slash);
  if (!isHost(first)) return `docker.io/${slash === -1 ? 'library/' : ''}${image}`;
  return `${fullHost(first)}${image.slice(slash)}`;
}
const fullHost = (host: string): string => {
  const name = host.toLowerCase().replace(/\.(?=:|$)/, '');
  return HUB.test(name) ? 'docker.io' : name;
};
function fullRegistry(name: string): string {
  const [host = '', ...path] = name.split('/');
  return path.length === 0 && !isHost(host) ? `docker.io/${host}` : [fullHost(host), ...path].join('/');
}

const LOOPBACK = /^(localhost|127(\.\d+){3}|0\.0\.0\.0|\[::1?\])$/;
const LOOPBACK_NAMES = ['localhost', '127.0.0.1', '127.0.1.1', '0.0.0.0', '[::1]', '[::]'];

/**
 * Returns the names by which a build could reach a registry: with and without its default port, by its addresses, and, if it runs on this
 * machine, by the addresses of this machine.
 */
export function registryNames(
  addresses: readonly string[],
  resolved: (host: string) => readonly string[],
  machine: readonly string[],
): string[] {
  const names = addresses.flatMap((address) => {
    const [authority = '', ...path] = address.split('/');
    const [, host = '', port = ''] = /^(.*?)(?::(\d+))?$/.exec(authority.toLowerCase()) ?? [];
    const found = resolved(host);
    const isHere = LOOPBACK.test(host) || machine.includes(host) || found.some((one) => machine.includes(one) || LOOPBACK.test(one));
    const hosts = [host, ...found, ...(isHere ? [...LOOPBACK_NAMES, ...machine] : [])];
    const ports = port === '' ? ['', ':443', ':80'] : port === '443' || port === '80' ? ['', `:${port}`] : [`:${port}`];
    return hosts.flatMap((one) =>
      ports.map((end) => [`${one.includes(':') && !one.startsWith('[') ? `[${one}]` : one}${end}`, ...path].join('/')),
    );
  });
  return [...new Set(names)];
}

/** A source policy of BuildKit with the same rules. The last rule that matches decides. BuildKit before 0.11 ignores it. */
export function sourcePolicy({ own, registries, shared }: ImageRules, frontends: readonly string[]): string {
  const rule = (action: 'ALLOW' | 'DENY', image: string) => ({ action, selector: { identifier: `docker-image://${image}` } });
  const all = (repository: string) => ['', ':*', '@*'].map((end) => rule('ALLOW', `${repository}${end}`));
  const prefixes = registries.map(fullRegistry);
  const project = own.slice(own.lastIndexOf('/'));
  return JSON.stringify({
    rules: [
      ...prefixes.map((prefix) => rule('DENY', `${prefix}/*`)),
      ...prefixes.flatMap((prefix) => all(`${prefix}${project}`)),
      ...shared.flatMap((name) => (name.endsWith('/*') ? [rule('ALLOW', fullName(name))] : all(fullName(name)))),
      ...frontends.flatMap((name) => all(fullName(name))),
    ],
  });
}
