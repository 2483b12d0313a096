/**
 * Parser for the part of Traefik's rule language that Berth uses: Host(`…`), HostRegexp(`…`),
 * Path(`…`), PathPrefix(`…`), HeaderRegexp(`…`, `…`), `!`, `&&`, `||`, parentheses.
 *
 *   or   := and { '||' and }
 *   and  := not { '&&' not }
 *   not  := '!' not | '(' or ')' | Name '(' text { ',' text } ')'
 */
import { goRegExp } from './configuration.ts';

/**
 * `host` is in lower case without a port, `path` has no query, and `headers` have lower-case names.
 */
export type Target = {
  method?: string;
  host: string;
  path: string;
  headers: Readonly<NodeJS.Dict<string | string[]>>;
};
export type Matches = (target: Target) => boolean;

/** Thrown for an invalid rule. The message contains the position. */
export class RuleError extends Error {
  override name = 'RuleError';
}

/** Matchers by name, with the number of their arguments. */
const MATCHERS: Record<string, { texts: number; make: (...texts: string[]) => Matches }> = {
  Host: {
    texts: 1,
    make(name = '') {
      const host = name.toLowerCase();
      return (target) => target.host === host;
    },
  },
  HostRegexp: {
    texts: 1,
    make(source = '') {
      const expression = expressionOf(source);
      return (target) => expression.test(target.host);
    },
  },
  Path: { texts: 1, make: (path) => (target) => target.path === path },
  PathPrefix: {
    texts: 1,
    make:
      (prefix = '') =>
      (target) =>
        target.path.startsWith(prefix),
  },
  PathRegexp: {
    texts: 1,
    make(source = '') {
      const expression = expressionOf(source);
      return (target) => expression.test(target.path);
    },
  },
  Method: { texts: 1, make: (method) => (target) => target.method === method },
  HeaderRegexp: {
    texts: 2,
    make(name = '', source = '') {
      const header = name.toLowerCase();
      const expression = expressionOf(source);
      return (target) =>
        [target.headers[header] ?? []].flat().some((value) => expression.test(value));
    },
  },
};

function expressionOf(source: string): RegExp {
  try {
    return goRegExp(source);
  } catch (error) {
    throw new RuleError(`invalid regular expression: ${source}`, { cause: error });
  }
}

type Token = { kind: 'name' | 'text' | 'sign'; value: string; at: number };

export function parseRule(rule: string): Matches {
  const tokens = tokensOf(rule);
  let next = 0;

  const sign = (value: string): boolean => {
    const token = tokens[next];
    if (token?.kind !== 'sign' || token.value !== value) return false;
    next += 1;
    return true;
  };
  const expect = (value: string): void => {
    if (!sign(value)) throw new RuleError(`expected ${value} ${where(tokens[next])}`);
  };
  const either = (): Matches => {
    const terms = [both()];
    while (sign('||')) terms.push(both());
    return terms.length === 1 && terms[0] !== undefined
      ? terms[0]
      : (target) => terms.some((term) => term(target));
  };
  const both = (): Matches => {
    const factors = [not()];
    while (sign('&&')) factors.push(not());
    return factors.length === 1 && factors[0] !== undefined
      ? factors[0]
      : (target) => factors.every((factor) => factor(target));
  };
  const not = (): Matches => {
    if (sign('!')) {
      const inner = not();
      return (target) => !inner(target);
    }
    if (sign('(')) {
      const inner = either();
      expect(')');
      return inner;
    }
    return matcher();
  };
  const matcher = (): Matches => {
    const name = tokens[next];
    const matcherOf =
      name?.kind === 'name' && Object.hasOwn(MATCHERS, name.value)
        ? MATCHERS[name.value]
        : undefined;
    if (matcherOf === undefined)
      throw new RuleError(
        name?.kind === 'name'
          ? `unknown matcher ${name.value} ${where(name)}`
          : `expected a matcher ${where(name)}`,
      );
    next += 1;
    expect('(');
    const texts: string[] = [];
    while (texts.length < matcherOf.texts) {
      if (texts.length > 0) expect(',');
      const text = tokens[next];
      if (text?.kind !== 'text')
        throw new RuleError(`expected a string in backticks or quotes ${where(text)}`);
      next += 1;
      texts.push(text.value);
    }
    expect(')');
    return matcherOf.make(...texts);
  };

  const whole = either();
  if (next < tokens.length)
    throw new RuleError(`unexpected text after the rule ${where(tokens[next])}`);
  return whole;
}

const where = (token: Token | undefined): string =>
  token === undefined ? 'at the end' : `at character ${token.at + 1} (${token.value})`;

function tokensOf(rule: string): Token[] {
  const pattern =
    /\s*(?:(?<name>[A-Za-z]+)|`(?<raw>[^`]*)`|"(?<quoted>[^"\\]*)"|(?<sign>&&|\|\||[!(),]))/y;
  const tokens: Token[] = [];
  // oxlint-disable-next-line berth/no-trim -- the text of a rule, not of a header
  const end = rule.trimEnd().length;
  while (pattern.lastIndex < end) {
    const at = pattern.lastIndex;
    const groups = pattern.exec(rule)?.groups;
    if (groups === undefined) throw new RuleError(`syntax error at character ${at + 1}`);
    const { name, raw, quoted, sign } = groups;
    if (name !== undefined) tokens.push({ kind: 'name', value: name, at });
    else if (sign !== undefined) tokens.push({ kind: 'sign', value: sign, at });
    else tokens.push({ kind: 'text', value: raw ?? quoted ?? '', at });
  }
  return tokens;
}
