/** Normalizes and checks the origins whose pages can call a project that requires a login. Pure. */
import type { FieldProblem } from '../platform/errors.ts';

/**
 * Returns an origin as browsers send it: lower case, punycode, without a default port. Returns any
 * other text unchanged, so that its error can name it.
 */
function normalOrigin(given: string): string {
  // The URL parser would drop tabs and line breaks and decode escapes, so check the text first.
  const isPlain = /^https?:\/\/[^\s%/\\?#@]+\/?$/i.test(given);
  return isPlain ? (URL.parse(given)?.origin ?? given) : given;
}

/** Normalizes the origins and removes duplicates, keeping their order. */
export const normalOrigins = (given: readonly string[]): string[] => [
  ...new Set(given.map(normalOrigin)),
];

/** Checks normalized origins. */
export const originProblems = (origins: readonly string[]): FieldProblem[] =>
  origins.flatMap((origin, i) => {
    const problem = problemOf(origin);
    return problem === null ? [] : [{ field: `cors_origins[${i}]`, ...problem }];
  });

function problemOf(origin: string): { rule: string; message: string } | null {
  const quoted = `“${origin.slice(0, 100)}”`;
  if (origin.includes('*'))
    return {
      rule: 'wildcard',
      message:
        `${quoted} has a wildcard: list each origin, because any other page could then act with ` +
        'the session of its visitor',
    };
  if (origin === 'null')
    return {
      rule: 'null',
      message: 'must not be “null”: every file and every sandboxed page has this origin',
    };
  if (!/^https?:\/\//.test(origin) || URL.parse(origin)?.origin !== origin)
    return {
      rule: 'origin',
      message:
        `${quoted} is not an origin like https://app.example.com: scheme, host and perhaps a ` +
        'port, without a path',
    };
  return null;
}
