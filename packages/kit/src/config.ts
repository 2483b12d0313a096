/**
 * Settings from the environment: each declared once with its meaning and default (docs/settings.md is held equal to the
 * declarations), any given as NAME_FILE too, all problems named at once.
 */
import { readFileSync } from 'node:fs';
import { isIP } from 'node:net';

export type Parser<T> = (text: string) => T;
export type Setting<T> = {
  /** As docs/settings.md says it. */
  doc: string;
  /** The default as an operator would write it; undefined: `fallback` applies, as `shown` says. */
  default?: string;
  /** What the docs show as default where it is computed. */
  shown?: string;
  required?: boolean;
  parse: Parser<T>;
};
type SettingsShape = Record<string, Setting<unknown>>;
export type Values<S extends SettingsShape> = {
  [K in keyof S]: S[K] extends Setting<infer T> ? (S[K] extends { default: string } | { required: true } ? T : T | undefined) : never;
};

/** Every wrong variable at once; the process exits with 2. */
export class SettingsError extends Error {
  override name = 'SettingsError';
  readonly problems: readonly string[];
  constructor(problems: readonly string[]) {
    super(`wrong settings:\n${problems.map((p) => `  ${p}`).join('\n')}`);
    this.problems = problems;
  }
}

export function readSettings<const S extends SettingsShape>(shape: S, env: NodeJS.ProcessEnv): Values<S> {
  const problems: string[] = [];
  const values: Record<string, unknown> = {};
  for (const [name, setting] of Object.entries(shape)) {
    const before = problems.length;
    const text = textOf(name, env, problems) ?? setting.default;
    // One that cannot be read is not also missing.
    if (problems.length > before) continue;
    if (text === undefined) {
      if (setting.required === true) problems.push(`${name}: must be set (${setting.doc})`);
      continue;
    }
    try {
      values[name] = setting.parse(text);
    } catch (error) {
      problems.push(`${name}: ${error instanceof Error ? error.message : String(error)}`);
    }
  }
  if (problems.length > 0) throw new SettingsError(problems);
  return values as Values<S>;
}

/** For an entry: what `read` gives. SettingsError is written to stderr and ends the process with 2; any other error is thrown on. */
export function settingsOrExit<T>(read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (!(error instanceof SettingsError)) throw error;
    process.stderr.write(`${error.message}\n`);
    process.exit(2);
  }
}

/** An empty variable counts as unset, as in a compose file with `NAME=`. */
function textOf(name: string, env: NodeJS.ProcessEnv, problems: string[]): string | undefined {
  const direct = env[name];
  const file = env[`${name}_FILE`];
  if (direct !== undefined && direct !== '' && file !== undefined && file !== '')
    problems.push(`${name}: given twice, as ${name} and ${name}_FILE`);
  if (direct !== undefined && direct !== '') return direct;
  if (file === undefined || file === '') return undefined;
  try {
    const value = readFileSync(file, 'utf8').replace(/\r?\n$/, '');
    // A secret that was meant to be there: to start without it would be worse than not to start.
    if (value === '') problems.push(`${name}_FILE: ${file} is empty`);
    return value;
  } catch (error) {
    problems.push(`${name}_FILE: ${error instanceof Error ? error.message : String(error)}`);
    return undefined;
  }
}

export const text: Parser<string> = (t) => t;

export const oneOf =
  <const T extends readonly string[]>(...allowed: T): Parser<T[number]> =>
  (t) => {
    if (!allowed.includes(t)) throw new Error(`must be one of ${allowed.join(', ')}, not "${t}"`);
    return t;
  };

export const list: Parser<string[]> = (t) =>
  t
    .split(',')
    .map((s) => s.trim())
    .filter((s) => s !== '');

export const integer =
  (min: number, max: number = Number.MAX_SAFE_INTEGER): Parser<number> =>
  (t) => {
    const n = Number(t);
    if (!/^\d+$/.test(t) || n < min || n > max)
      throw new Error(`must be a whole number from ${min}${max === Number.MAX_SAFE_INTEGER ? '' : ` to ${max}`}, not "${t}"`);
    return n;
  };

/** Proxies whose X-Forwarded-For counts: addresses, CIDR networks, and the names that proxy-addr knows; `none` for no proxy. */
export const networks: Parser<string[]> = (t) => {
  if (t.trim() === 'none') return [];
  const named = ['loopback', 'linklocal', 'uniquelocal'];
  const isNetwork = (n: string): boolean => {
    const [address = '', bits, more] = n.split('/');
    const family = isIP(address);
    return (
      family !== 0 && more === undefined && (bits === undefined || (/^\d{1,3}$/.test(bits) && Number(bits) <= (family === 4 ? 32 : 128)))
    );
  };
  const wrong = list(t).filter((n) => !named.includes(n) && !isNetwork(n));
  if (wrong.length > 0) throw new Error(`neither an address nor a network: ${wrong.join(', ')}`);
  return list(t);
};

export const httpUrl: Parser<string> = (t) => {
  const url = URL.canParse(t) ? new URL(t) : undefined;
  if (url === undefined || !/^https?:$/.test(url.protocol)) throw new Error(`must be an http or https URL, not "${t}"`);
  return t.replace(/\/+$/, '');
};

/** In lower case; of 240 characters at most. */
export const domainName: Parser<string> = (t) => {
  const name = t.toLowerCase();
  if (name.length > 240 || !/^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$/.test(name))
    throw new Error(`must be a domain name without scheme or port, not "${t}"`);
  return name;
};

/** Comma-separated, in lower case; may be none. */
export const emails: Parser<string[]> = (t) => {
  const wrong = list(t).filter((e) => !/^[^@\s]+@[^@\s]+$/.test(e));
  if (wrong.length > 0) throw new Error(`not an e-mail address: ${wrong.join(', ')}`);
  return list(t).map((e) => e.toLowerCase());
};

/** Comma-separated, one at least. The message must not repeat what was given: it is a secret. */
export const secrets: Parser<string[]> = (t) => {
  const found = list(t);
  if (found.length === 0) throw new Error('must hold at least one secret');
  return found;
};

/** Without slashes at its end. */
export const absolutePath: Parser<string> = (t) => {
  if (!t.startsWith('/')) throw new Error(`must be an absolute path, not "${t}"`);
  return t.replace(/\/+$/, '') || '/';
};

export type Listen = { host: string; port: number };
/** `host:port` or `[v6]:port`; port 0 picks a free one. */
export const listen: Parser<Listen> = (t) => {
  const match = /^(?:\[([0-9a-fA-F:.]+)\]|([A-Za-z0-9._-]*)):(\d{1,5})$/.exec(t);
  const port = Number(match?.[3]);
  if (match === null || port > 65_535) throw new Error(`must be host:port, not "${t}"`);
  return { host: match[1] ?? (match[2] === '' ? '0.0.0.0' : (match[2] ?? '')), port };
};

const UNITS = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const;
/** `900s`, `15m`, `12h`, `7d` -> milliseconds. */
export const duration: Parser<number> = (t) => {
  const match = /^(\d+)(ms|s|m|h|d)$/.exec(t);
  if (match === null) throw new Error(`must be a duration such as 900s, 15m, 12h or 7d, not "${t}"`);
  return Number(match[1]) * UNITS[match[2] as keyof typeof UNITS];
};
/** A duration of `ms` milliseconds or more. */
export const atLeast =
  (ms: number): Parser<number> =>
  (t) => {
    const given = duration(t);
    if (given < ms) throw new Error(`must be at least ${ms / 1000}s, not "${t}"`);
    return given;
  };

/** What every process reads. */
export const LOG_SETTINGS = {
  LOG_LEVEL: {
    doc: 'How much is logged: fatal, error, warn, info, debug, trace, silent',
    default: 'info',
    parse: oneOf('fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'),
  },
  LOG_FORMAT: { doc: 'json or pretty', shown: 'json; pretty on a terminal', parse: oneOf('json', 'pretty') },
} as const;
