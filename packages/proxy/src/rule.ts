/**
 * Traefik's rule language, the part Berth uses: Host(`…`), Path(`…`), PathPrefix(`…`), `!`, `&&`, `||`, parentheses.
 *
 *   or   := and { '||' and }
 *   and  := not { '&&' not }
 *   not  := '!' not | '(' or ')' | Name '(' text ')'
 */

/** `host` in lower case and without a port; `path` without the query. */
export type Target = { host: string; path: string };
export type Matches = (target: Target) => boolean;

/** The rule cannot be read; the message says where. */
export class RuleError extends Error {
  override name = 'RuleError';
}

const MATCHERS: Record<string, (argument: string) => Matches> = {
  Host: (name) => {
    const host = name.toLowerCase();
    return (target) => target.host === host;
  },
  Path: (path) => (target) => target.path === path,
  PathPrefix: (prefix) => (target) => target.path.startsWith(prefix),
};

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
    return terms.length === 1 && terms[0] !== undefined ? terms[0] : (target) => terms.some((term) => term(target));
  };
  const both = (): Matches => {
    const factors = [not()];
    while (sign('&&')) factors.push(not());
    return factors.length === 1 && factors[0] !== undefined ? factors[0] : (target) => factors.every((factor) => factor(target));
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
    const make = name?.kind === 'name' && Object.hasOwn(MATCHERS, name.value) ? MATCHERS[name.value] : undefined;
    if (make === undefined)
      throw new RuleError(name?.kind === 'name' ? `${name.value} is not known ${where(name)}` : `expected a matcher ${where(name)}`);
    next += 1;
    expect('(');
    const argument = tokens[next];
    if (argument?.kind !== 'text') throw new RuleError(`expected a text in backticks or quotes ${where(argument)}`);
    next += 1;
    // One text and no more, as Traefik 3 has it.
    expect(')');
    return make(argument.value);
  };

  const whole = either();
  if (next < tokens.length) throw new RuleError(`did not expect anything more ${where(tokens[next])}`);
  return whole;
}

const where = (token: Token | undefined): string => (token === undefined ? 'at the end' : `at character ${token.at + 1} (${token.value})`);

function tokensOf(rule: string): Token[] {
  const pattern = /\s*(?:(?<name>[A-Za-z]+)|`(?<raw>[^`]*)`|"(?<quoted>[^"\\]*)"|(?<sign>&&|\|\||[!()]))/y;
  const tokens: Token[] = [];
  const end = rule.trimEnd().length;
  while (pattern.lastIndex < end) {
    const at = pattern.lastIndex;
    const groups = pattern.exec(rule)?.groups;
    if (groups === undefined) throw new RuleError(`cannot be read at character ${at + 1}`);
    const { name, raw, quoted, sign } = groups;
    if (name !== undefined) tokens.push({ kind: 'name', value: name, at });
    else if (sign !== undefined) tokens.push({ kind: 'sign', value: sign, at });
    else tokens.push({ kind: 'text', value: raw ?? quoted ?? '', at });
  }
  return tokens;
}
