/**
 * Reads settings from the environment. Each setting is declared once, with its meaning and default;
 * docs/settings.md is generated from the declarations. Each setting can also be given as a file, in
 * NAME_FILE. An error lists all problems.
 */
import { readFileSync } from 'node:fs';
import { isIP } from 'node:net';
import { messageOf } from './message-of.ts';

export type Parser<T> = (text: string) => T;
export type Setting<T> = {
  /** Description in docs/settings.md. */
  doc: string;
  /** Default value, as an operator would write it. */
  default?: string;
  /** Description of a computed default, for docs/settings.md. */
  shown?: string;
  required?: boolean;
  parse: Parser<T>;
};
export type SettingsShape = Record<string, Setting<unknown>>;
export type Values<S extends SettingsShape> = {
  [K in keyof S]: S[K] extends Setting<infer T>
    ? S[K] extends { default: string } | { required: true }
      ? T
      : T | undefined
    : never;
};

/**
 * Error with the list of all wrong variables. `settingsOrExit` ends the process with exit code 2.
 */
export class SettingsError extends Error {
  override name = 'SettingsError';
  readonly problems: readonly string[];
  constructor(problems: readonly string[]) {
    super(`wrong settings:\n${problems.map((p) => `  ${p}`).join('\n')}`);
    this.problems = problems;
  }
}

export function readSettings<const S extends SettingsShape>(
  shape: S,
  env: NodeJS.ProcessEnv,
): Values<S> {
  const problems: string[] = [];
  const values: Record<string, unknown> = {};
  for (const [name, setting] of Object.entries(shape)) {
    const before = problems.length;
    const text = textOf(name, env, problems) ?? setting.default;
    // Do not report a value that cannot be read as missing too.
    if (problems.length > before) continue;
    if (text === undefined) {
      if (setting.required === true) problems.push(`${name}: must be set (${setting.doc})`);
      continue;
    }
    try {
      values[name] = setting.parse(text);
    } catch (error) {
      problems.push(`${name}: ${messageOf(error)}`);
    }
  }
  if (problems.length > 0) throw new SettingsError(problems);
  return values as Values<S>;
}

/**
 * Returns the text of every setting that is set, from NAME or NAME_FILE. Throws SettingsError for a
 * file that cannot be read.
 */
export function settingTexts(
  names: readonly string[],
  env: NodeJS.ProcessEnv,
): Record<string, string> {
  const problems: string[] = [];
  const texts = names.flatMap((name) => {
    const text = textOf(name, env, problems);
    return text === undefined ? [] : [[name, text] as const];
  });
  if (problems.length > 0) throw new SettingsError(problems);
  return Object.fromEntries(texts);
}

/**
 * Returns the result of `read`. Writes a SettingsError to stderr and exits with code 2; throws any
 * other error.
 */
export function settingsOrExit<T>(read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (!(error instanceof SettingsError)) throw error;
    process.stderr.write(`${error.message}\n`);
    process.exit(2);
  }
}

/** Treats an empty variable as unset, because compose files often contain `NAME=`. */
function textOf(name: string, env: NodeJS.ProcessEnv, problems: string[]): string | undefined {
  const direct = env[name];
  const file = env[`${name}_FILE`];
  if (direct !== undefined && direct !== '' && file !== undefined && file !== '')
    problems.push(`${name}: is set twice, as ${name} and as ${name}_FILE; unset one of them`);
  return direct !== undefined && direct !== '' ? direct : fileText(name, env, problems);
}

/** Returns the content of the file that NAME_FILE names; undefined without one. */
export function fileText(
  name: string,
  env: NodeJS.ProcessEnv,
  problems: string[],
): string | undefined {
  const file = env[`${name}_FILE`];
  if (file === undefined || file === '') return undefined;
  try {
    const value = readFileSync(file, 'utf8').replace(/\r?\n$/, '');
    // The file should probably contain a secret. Starting without the secret would be worse than
    // not starting.
    if (value === '') problems.push(`${name}_FILE: ${file} is empty`);
    return value;
  } catch (error) {
    problems.push(`${name}_FILE: ${messageOf(error)}`);
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
      throw new Error(
        'must be a whole number from ' +
          `${min}${max === Number.MAX_SAFE_INTEGER ? '' : ` to ${max}`}, not "${t}"`,
      );
    return n;
  };

/**
 * Trusted proxies: addresses, CIDR networks, or the names that proxy-addr defines; `none` for no
 * proxy.
 */
export const networks: Parser<string[]> = (t) => {
  if (t.trim() === 'none') return [];
  const named = ['loopback', 'linklocal', 'uniquelocal'];
  const isNetwork = (n: string): boolean => {
    const [address = '', bits, more] = n.split('/');
    const family = isIP(address);
    return (
      family !== 0 &&
      more === undefined &&
      (bits === undefined || (/^\d{1,3}$/.test(bits) && Number(bits) <= (family === 4 ? 32 : 128)))
    );
  };
  const wrong = list(t).filter((n) => !named.includes(n) && !isNetwork(n));
  if (wrong.length > 0) throw new Error(`neither an address nor a network: ${wrong.join(', ')}`);
  return list(t);
};

export const httpUrl: Parser<string> = (t) => {
  const url = URL.canParse(t) ? new URL(t) : undefined;
  if (url === undefined || !/^https?:$/.test(url.protocol))
    throw new Error(`must be an http or https URL, not "${t}"`);
  return t.replace(/\/+$/, '');
};

/** A domain name, converted to lower case, of at most 240 characters. */
export const domainName: Parser<string> = (t) => {
  const name = t.toLowerCase();
  if (
    name.length > 240 ||
    !/^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$/.test(name)
  )
    throw new Error(`must be a domain name without scheme or port, not "${t}"`);
  return name;
};

/** A comma-separated list, converted to lower case; it can be empty. */
export const emails: Parser<string[]> = (t) => {
  const wrong = list(t).filter((e) => !/^[^@\s]+@[^@\s]+$/.test(e));
  if (wrong.length > 0) throw new Error(`not an e-mail address: ${wrong.join(', ')}`);
  return list(t).map((e) => e.toLowerCase());
};

/** A comma-separated list of at least one secret. Error messages must not repeat the value. */
export const secrets: Parser<string[]> = (t) => {
  const secretList = list(t);
  if (secretList.length === 0) throw new Error('must have at least one secret');
  // The file probably has a line break between two secrets instead of a comma. No header could
  // carry such a secret.
  if (secretList.some((secret) => /\p{Cc}/u.test(secret)))
    throw new Error(
      'has a secret with a line break or another control character; separate secrets with commas',
    );
  return secretList;
};

/** An absolute path; trailing slashes are removed. */
export const absolutePath: Parser<string> = (t) => {
  if (!t.startsWith('/')) throw new Error(`must be an absolute path, not "${t}"`);
  return t.replace(/\/+$/, '') || '/';
};

export type Listen = { host: string; port: number };
/** `host:port`, `[v6]:port` or `:port`. Port 0 selects a free port. */
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
  if (match === null)
    throw new Error(`must be a duration such as 900s, 15m, 12h or 7d, not "${t}"`);
  return Number(match[1]) * UNITS[match[2] as keyof typeof UNITS];
};
/** A duration of at least `ms` milliseconds. */
export const atLeast =
  (ms: number): Parser<number> =>
  (t) => {
    const durationMs = duration(t);
    if (durationMs < ms) throw new Error(`must be at least ${ms / 1000}s, not "${t}"`);
    return durationMs;
  };

/** Settings that every process has. */
export const LOG_SETTINGS = {
  LOG_LEVEL: {
    doc: 'Least severe level that is logged: fatal, error, warn, info, debug, trace, silent',
    default: 'info',
    parse: oneOf('fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'),
  },
  LOG_FORMAT: {
    doc: 'Format of log lines: json or pretty',
    shown: 'json; pretty on a terminal',
    parse: oneOf('json', 'pretty'),
  },
} as const;

/**
 * `name=value` pairs, comma-separated; values can be percent-encoded (OpenTelemetry's format).
 * Errors must not repeat a value.
 */
const pairs: Parser<Record<string, string>> = (t) =>
  Object.fromEntries(
    list(t).map((entry) => {
      const at = entry.indexOf('=');
      if (at < 1) throw new Error('must be name=value pairs, separated by commas');
      try {
        return [entry.slice(0, at).trim(), decodeURIComponent(entry.slice(at + 1).trim())];
      } catch {
        throw new Error(`the value of ${entry.slice(0, at)} is not percent-encoded correctly`);
      }
    }),
  );
const share: Parser<number> = (t) => {
  const n = Number(t);
  if (t.trim() === '' || !(n >= 0 && n <= 1))
    throw new Error(`must be a number from 0 to 1, not "${t}"`);
  return n;
};

/**
 * Settings of traces, for every process that records traces. The names are those of OpenTelemetry.
 */
export const TRACE_SETTINGS = {
  OTEL_EXPORTER_OTLP_ENDPOINT: {
    doc:
      'Address of a collector that takes traces by OTLP over HTTP, e.g. http://127.0.0.1:4318; ' +
      'spans go to its path /v1/traces',
    shown: 'none: no traces',
    parse: httpUrl,
  },
  OTEL_EXPORTER_OTLP_HEADERS: {
    doc: 'Headers for the collector: name=value, comma-separated',
    shown: 'none',
    parse: pairs,
  },
  OTEL_SERVICE_NAME: {
    doc: 'Name of this process in traces',
    shown: 'berth- and the name of the process',
    parse: text,
  },
  OTEL_RESOURCE_ATTRIBUTES: {
    doc: 'Further attributes of this process in traces: name=value, comma-separated',
    shown: 'none',
    parse: pairs,
  },
  OTEL_TRACES_SAMPLER_ARG: {
    doc: 'Share of traces that are recorded, from 0 to 1; give all processes the same',
    default: '1',
    parse: share,
  },
} as const;
