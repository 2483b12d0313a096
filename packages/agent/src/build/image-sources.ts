/**
 * Finds the images that a Dockerfile names, and refuses images of other projects in Berth's
 * registry. The builder reads every repository of the registry with one account, so without this
 * check, the author of a Dockerfile could copy the image of a project that they must not see. Any
 * user can write the file. Versions of BuildKit read some forms differently; the check then covers
 * each reading. It can refuse a form that no BuildKit accepts, but it never passes a forbidden form
 * that some BuildKit accepts. Images in ONBUILD of a base image are not in the file; `sourcePolicy`
 * makes BuildKit refuse them.
 */
import { ipv4Inside } from '@berth/kit/mapped-address';
import { TaskFailure } from '../failures.ts';

export type ImageRules = {
  /** The project's own repository, `{registry}/{project}`. */
  own: string;
  /** Names of the registry (`registryNames`) as `host[:port][/path]`. */
  registries: readonly string[];
  /**
   * Repositories of the registry that every project can use. A trailing `/*` includes all
   * repositories below.
   */
  shared: readonly string[];
};

/** Limits of the check. A larger Dockerfile is refused, because its end would not be checked. */
const MAX_LINES = 20_000;
const MAX_JOINED = 8 * 1024 * 1024;
const MAX_VALUE = 4096;
const MAX_DEPTH = 8;

/**
 * Checks the images of the stage `target`, or of the last stage if it is null. Throws TaskFailure
 * build_image_refused.
 */
export function checkImages(
  dockerfile: string,
  args: Args,
  rules: ImageRules,
  target: string | null,
): void {
  const text = dockerfile.replace(/^\u{FEFF}/u, '');
  const lines = text.split('\n');
  if (lines.length > MAX_LINES)
    throw refused(
      null,
      `the Dockerfile has more than ${MAX_LINES} lines, so its images cannot be checked`,
    );
  for (const reading of readingsOf(text)) check(lines, reading, args, rules, target);
}

/** Returns the failure for a Dockerfile that was not read completely. */
export const unchecked = (limit: string): TaskFailure =>
  refused(null, `the Dockerfile is larger than ${limit}, so its images cannot be checked`);

const refused = (line: number | null, why: string): TaskFailure =>
  new TaskFailure('build_image_refused', line === null ? why : `line ${line}: ${why}`);

type Args = Readonly<Record<string, string>>;
type Reading = {
  /** The escape character, which a directive can set. */
  escape: string;
  /** True if a doubled escape character continues a line. */
  isDoubledJoined: boolean;
  /** True if a line with blanks before the `#` is a comment. */
  isIndentedComment: boolean;
  /** True if all carriage returns at the end of a line are removed, false if only one is. */
  dropsAllReturns: boolean;
};

/** The white space of Go. Only JavaScript includes U+FEFF, and only Go includes U+0085. */
const BLANK = '[\\t-\\r \\u0085\\u00a0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]';
const BLANKS = new RegExp(`${BLANK}+`);
const ONLY_BLANKS = new RegExp(`^${BLANK}*$`);
const INDENTED_COMMENT = new RegExp(`^${BLANK}*#`);
/** Go lowercases U+0130 to an i, so it can be a letter of an instruction. */
const WORD = /^[\s\u0085]*([A-Za-z\u0130]+)/;
const INSTRUCTION = /^[\s\u0085]*([A-Za-z\u0130]+)(.*)$/s;
const upper = (word: string): string => word.toUpperCase().replaceAll('\u0130', 'I');

/**
 * Returns the ways in which versions of BuildKit read the text, without those that make no
 * difference for it.
 */
function readingsOf(text: string): Reading[] {
  const both = (isNeeded: boolean): boolean[] => (isNeeded ? [true, false] : [true]);
  return (text.includes('`') ? ['\\', '`'] : ['\\']).flatMap((escape) =>
    both(text.includes(escape + escape)).flatMap((isDoubledJoined) =>
      both(new RegExp(`^${BLANK}+#`, 'm').test(text)).flatMap((isIndentedComment) =>
        both(text.includes('\r\r')).map((dropsAllReturns) => ({
          escape,
          isDoubledJoined,
          isIndentedComment,
          dropsAllReturns,
        })),
      ),
    ),
  );
}

function check(
  lines: readonly string[],
  reading: Reading,
  args: Args,
  rules: ImageRules,
  target: string | null,
): void {
  const { escape } = reading;
  const env = builtIn(args, target);
  let joined = 0;
  let end = 0;
  for (let at = 0; at < lines.length; at += 1) {
    const [, first = ''] = WORD.exec(lines[at] ?? '') ?? [];
    // Also check lines that seem to be inside an instruction, because the end of a here-document is
    // hard to find.
    if (at < end && !begins(first, (lines[at] ?? '').trim(), escape)) continue;
    const { text, next } = instruction(lines, at, reading);
    joined += text.length;
    if (joined > MAX_JOINED)
      throw refused(at + 1, 'the Dockerfile is too long to check its images');
    end = Math.max(end, next);
    const [, word = '', rest = ''] = INSTRUCTION.exec(text) ?? [];
    const name = upper(word);
    const judgeWords = (names: string): void => {
      for (const part of words(names, escape))
        for (const value of values(part, env, escape)) judge(value, at + 1, rules);
    };
    if (name === 'ARG') define(rest, env, args, escape);
    if (name === 'FROM') judgeWords(rest);
    if (/^(COPY|ADD|RUN|ONBUILD)$/.test(name)) {
      for (const value of namedImages(rest)) judge({ text: value, isWhole: true }, at + 1, rules);
      const inner = /^[\s\u0085]*FROM(.*)$/is.exec(rest)?.[1];
      if (name === 'ONBUILD' && inner !== undefined) judgeWords(inner);
    }
  }
}

const NAMING = ['ARG', 'FROM', 'COPY', 'ADD', 'RUN', 'ONBUILD'];
/**
 * Tells whether a relevant instruction can begin with the line. Its first word can continue in the
 * next line.
 */
function begins(first: string, line: string, escape: string): boolean {
  const word = upper(first);
  return (
    NAMING.includes(word) ||
    (line === `${first}${escape}` && NAMING.some((name) => name.startsWith(word)))
  );
}

/**
 * Joins the lines of an instruction as BuildKit does: skips comments and empty lines between
 * continued lines.
 */
function instruction(
  lines: readonly string[],
  at: number,
  reading: Reading,
): { text: string; next: number } {
  const { escape, isDoubledJoined, isIndentedComment, dropsAllReturns } = reading;
  const returns = dropsAllReturns ? /\r+$/ : /\r$/;
  let text = '';
  let next = at;
  if (INDENTED_COMMENT.test(lines[at] ?? '')) return { text, next: at + 1 };
  for (; next < lines.length; next += 1) {
    const line = (lines[next] ?? '').replace(returns, '');
    const isComment = isIndentedComment ? INDENTED_COMMENT.test(line) : line.startsWith('#');
    if (next > at && (isComment || ONLY_BLANKS.test(line))) continue;
    const bare = line.replace(/[ \t]+$/, '');
    const isContinued = bare.endsWith(escape) && (isDoubledJoined || bare.at(-2) !== escape);
    text += isContinued ? bare.slice(0, -1) : line;
    if (!isContinued) return { text, next: next + 1 };
    if (text.length > MAX_JOINED) return { text, next: next + 1 };
  }
  return { text, next };
}

/**
 * Yields the values of `--from=`, and of `from=` in a mount. BuildKit expands no variables in them.
 */
function* namedImages(text: string): Generator<string> {
  // Remove quotes and escapes inside a word, which do not change its value.
  for (const [, value = ''] of text
    .replace(/["'\\`]/g, '')
    .matchAll(/from[\s\u0085]*=[\s\u0085]*([^\s\u0085,]+)/gi))
    yield value;
}

/** Tests most characters without a regular expression, because that is faster. */
const isBlank = (char: string): boolean =>
  char > ' ' && char < '\u007f' ? false : BLANKS.test(char);

/** Splits at blanks that are neither quoted nor escaped. Keeps quotes and escapes. */
function words(text: string, escape: string): string[] {
  const parts: string[] = [];
  let word = '';
  let quote = '';
  for (let at = 0; at < text.length; at += 1) {
    const char = text.charAt(at);
    if (quote === '' && isBlank(char)) {
      if (word !== '') parts.push(word);
      word = '';
      continue;
    }
    if (char === escape && quote !== "'") {
      word += char + text.charAt(at + 1);
      at += 1;
      continue;
    }
    if (quote === '' ? char === '"' || char === "'" : char === quote)
      quote = quote === '' ? char : '';
    word += char;
  }
  if (word !== '') parts.push(word);
  // FROM splits at every blank, even a quoted one.
  return [...parts, ...parts.flatMap((one) => (BLANKS.test(one) ? one.split(BLANKS) : []))];
}

/**
 * All values that an argument has anywhere in the file. BuildKit versions differ in the effect of a
 * second ARG with the same name, and an ARG of a stage has no effect before its line. `undefined`
 * (no value) is always included.
 */
type Env = {
  values: Map<string, Set<string | undefined>>;
  /** Number of characters that were expanded so far. */
  work: number;
};
/** Maximum number of values of one argument, and of combinations of values in one word. */
const MAX_VALUES = 32;
const MAX_COMBINATIONS = 256;
/** Maximum number of expanded characters in all combinations together. */
const MAX_WORK = 4 * 1024 * 1024;

/** Marks the place from which a value is unknown. No image name contains this character. */
const UNKNOWN = '\0';
type Value = {
  text: string;
  /** False if only the beginning of the value is known. */
  isWhole: boolean;
};

/**
 * Returns the arguments that exist without an ARG. Some platforms have no variant and no version.
 */
function builtIn(args: Args, target: string | null): Env {
  const platform = ['BUILD', 'TARGET'].flatMap((side) => [
    ...['PLATFORM', 'OS', 'ARCH'].map((of) => [side + of, 'linux'] as const),
    ...['VARIANT', 'OSVERSION'].map((of) => [side + of, UNKNOWN] as const),
  ]);
  const all = [...platform, ['TARGETSTAGE', target ?? 'default'] as const];
  const ofTask = (name: string): string[] => (Object.hasOwn(args, name) ? [args[name] ?? ''] : []);
  return {
    values: new Map(
      all.map(([name, value]) => [name, new Set([undefined, value, ...ofTask(name)])]),
    ),
    work: 0,
  };
}

function define(rest: string, env: Env, args: Args, escape: string): void {
  const add = (name: string, value: string): void => {
    const argValues = env.values.get(name) ?? new Set([undefined]);
    argValues.add(argValues.size < MAX_VALUES ? value : UNKNOWN);
    env.values.set(name, argValues);
  };
  for (const pair of words(rest, escape)) {
    const at = pair.indexOf('=');
    const key = at === -1 ? pair : pair.slice(0, at);
    // Try the name as written and expanded: the version of BuildKit decides.
    const names = new Set([key, ...values(key, env, escape).map(({ text }) => text)]);
    for (const name of names) {
      const taskValue = Object.hasOwn(args, name) ? args[name] : undefined;
      if (taskValue !== undefined) add(name, taskValue);
      else if (at !== -1)
        for (const { text, isWhole } of values(pair.slice(at + 1), env, escape))
          add(name, isWhole ? text : `${text}${UNKNOWN}`);
    }
  }
}

/**
 * Expands variables and removes quotes, as BuildKit does for FROM and ARG. Returns one result per
 * combination of values.
 */
function values(word: string, env: Env, escape: string): Value[] {
  let chosen: Map<string, string>[] = [new Map()];
  const names = word.includes('$') ? new Set(word.slice(0, MAX_VALUE).match(/[A-Za-z_]\w*/g)) : [];
  for (const name of names) {
    const possible = env.values.get(name);
    if (possible === undefined) continue;
    if (chosen.length * possible.size > MAX_COMBINATIONS)
      return [{ text: /^[^$"'\\`]*/.exec(word)?.[0] ?? '', isWhole: false }];
    chosen = chosen.flatMap((one) =>
      [...possible].map((value) => (value === undefined ? one : new Map(one).set(name, value))),
    );
  }
  env.work += chosen.length * word.length;
  if (env.work > MAX_WORK)
    throw refused(
      null,
      'the values of its arguments are too many to check the images of the Dockerfile',
    );
  const expanded = new Set(chosen.map((one) => new Lexer(word, one, escape).read('', 0)));
  return [...expanded].map((text) => {
    const unknown = text.indexOf(UNKNOWN);
    return unknown === -1
      ? { text, isWhole: true }
      : { text: text.slice(0, unknown), isWhole: false };
  });
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

  /** Reads up to `stop` or the end of the word. */
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
    while (
      this.at < this.word.length &&
      this.word.charAt(this.at) !== '"' &&
      text.length <= MAX_VALUE
    ) {
      const char = this.word.charAt(this.at);
      if (char === '$') text += this.variable(depth);
      else if (
        char === this.escape &&
        ['"', '$', this.escape].includes(this.word.charAt(this.at + 1))
      )
        text += this.escaped();
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
    const [bare] =
      /^(?:[A-Za-z_]\w*|[0-9@*#?$!-])/.exec(this.word.slice(this.at, this.at + MAX_VALUE)) ?? [];
    if (bare !== undefined) {
      this.at += bare.length;
      return this.env.get(bare) ?? '';
    }
    if (this.word.charAt(this.at) !== '{') return '$';
    const [start, name = '', sign = ''] =
      /^\{([A-Za-z_]\w*)(:?[-+?]|[}])?/.exec(this.word.slice(this.at, this.at + MAX_VALUE)) ?? [];
    if (start === undefined || sign === '' || depth > MAX_DEPTH) {
      // With any other modifier, such as the removal of a prefix, the rest of the value is unknown,
      // even if the variable is empty.
      this.at = this.word.length;
      return UNKNOWN;
    }
    this.at += start.length;
    const current = this.env.get(name);
    if (sign === '}') return current ?? '';
    const otherwise = this.read('}', depth + 1);
    this.at += 1;
    const isSet = current !== undefined && (current !== '' || !sign.startsWith(':'));
    if (sign.endsWith('+')) return isSet ? otherwise : '';
    if (isSet) return current;
    return sign.endsWith('-') ? otherwise : '';
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
        `the image “${text}…” depends on a value that the builder cannot tell, and could be an ` +
          'image of Berth’s registry',
      );
    if (!image.startsWith(registry)) continue;
    const rest = image.slice(registry.length);
    if (
      isBelow(rest, project) ||
      rules.shared.some((allowed) => isShared(image, fullName(allowed)))
    )
      return;
    throw refused(
      line,
      `${text.slice(0, 300)} is in Berth’s registry, outside the repository of this project. A ` +
        `build may use ${rules.own}, ` +
        'and what BUILD_BASE_IMAGES of the builder names',
    );
  }
}

const isBelow = (image: string, repository: string): boolean =>
  image === repository ||
  (/^[:@]/.test(image.slice(repository.length)) && image.startsWith(repository));
const isShared = (image: string, allowed: string): boolean =>
  allowed.endsWith('/*') ? image.startsWith(allowed.slice(0, -1)) : isBelow(image, allowed);

const isHost = (part: string): boolean => /[.:A-Z]/.test(part) || part === 'localhost';
const HUB = /^(index\.|registry-1\.)?docker\.io$/;

/** Completes an image name as docker does: a name without a host is on Docker Hub. */
function fullName(image: string): string {
  const slash = image.indexOf('/');
  const first = slash === -1 ? '' : image.slice(0, slash);
  if (!isHost(first)) return `docker.io/${slash === -1 ? 'library/' : ''}${image}`;
  return `${fullHost(first)}${image.slice(slash)}`;
}
function fullHost(host: string): string {
  const name = host.toLowerCase().replace(/\.(?=:|$)/, '');
  return HUB.test(name) ? 'docker.io' : plainAddress(name);
}
/**
 * Normalizes an address: a number, a short form or an IPv4 address inside an IPv6 address reach the
 * same machine.
 */
function plainAddress(host: string): string {
  const [, name = '', port = ''] = /^(.*?)(:\d+)?$/.exec(host) ?? [];
  if (!/^(\[.*\]|[\dx.a-f]*\d[\dx.a-f]*)$/.test(name) || !URL.canParse(`http://${name}`))
    return host;
  const { hostname } = new URL(`http://${name}`);
  const address = ipv4Inside(hostname.replace(/^\[|\]$/g, '')) ?? hostname;
  return `${/^127\.\d+\.\d+\.\d+$/.test(address) ? '127.0.0.1' : address}${port}`;
}
function fullRegistry(name: string): string {
  const [host = '', ...path] = name.split('/');
  return path.length === 0 && !isHost(host)
    ? `docker.io/${host}`
    : [fullHost(host), ...path].join('/');
}

const LOOPBACK = /^(localhost|127(\.\d+){3}|0\.0\.0\.0|\[::1?\])$/;
const LOOPBACK_NAMES = ['localhost', '127.0.0.1', '127.0.1.1', '0.0.0.0', '[::1]', '[::]'];

/**
 * Returns the names by which a build could reach a registry: with and without the default port, by
 * its addresses, and, if the registry runs on this machine, by the machine's addresses.
 */
export function registryNames(
  addresses: readonly string[],
  resolved: (host: string) => readonly string[],
  machine: readonly string[],
): string[] {
  const names = addresses.flatMap((address) => {
    const [authority = '', ...path] = address.split('/');
    const [, host = '', port = ''] = /^(.*?)(?::(\d+))?$/.exec(authority.toLowerCase()) ?? [];
    const resolvedAddresses = resolved(host);
    const isHere =
      LOOPBACK.test(host) ||
      machine.includes(host) ||
      resolvedAddresses.some((one) => machine.includes(one) || LOOPBACK.test(one));
    const hosts = [host, ...resolvedAddresses, ...(isHere ? [...LOOPBACK_NAMES, ...machine] : [])];
    return hosts
      .map((one) => (one.includes(':') && !one.startsWith('[') ? `[${one}]` : one))
      .flatMap((one) => portEndings(port).map((end) => [`${one}${end}`, ...path].join('/')));
  });
  return [...new Set(names)];
}

/** Returns the possible port suffixes of a name; a default port can be omitted. */
function portEndings(port: string): string[] {
  if (port === '') return ['', ':443', ':80'];
  return port === '443' || port === '80' ? ['', `:${port}`] : [`:${port}`];
}

/**
 * Returns a BuildKit source policy with the same rules, of which the last matching rule decides.
 * BuildKit before 0.11 ignores it.
 */
export function sourcePolicy(
  { own, registries, shared }: ImageRules,
  frontends: readonly string[],
): string {
  const rule = (action: 'ALLOW' | 'DENY', image: string) => ({
    action,
    selector: { identifier: `docker-image://${image}` },
  });
  const all = (repository: string) =>
    ['', ':*', '@*'].map((end) => rule('ALLOW', `${repository}${end}`));
  const prefixes = registries.map(fullRegistry);
  const project = own.slice(own.lastIndexOf('/'));
  return JSON.stringify({
    rules: [
      ...prefixes.map((prefix) => rule('DENY', `${prefix}/*`)),
      ...prefixes.flatMap((prefix) => all(`${prefix}${project}`)),
      ...shared.flatMap((name) =>
        name.endsWith('/*') ? [rule('ALLOW', fullName(name))] : all(fullName(name)),
      ),
      ...frontends.flatMap((name) => all(fullName(name))),
    ],
  });
}
