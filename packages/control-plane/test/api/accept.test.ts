/** Which of two media types an Accept header prefers (RFC 9110 section 12.5.1). */
import { expect, test } from 'vitest';
import { prefers } from '../../src/api/accept.ts';

const STREAM = 'text/event-stream';
const JSON_TYPE = 'application/json';

test.each<[rule: string, header: string | undefined, isStream: boolean]>([
  ['no header: the usual type', undefined, false],
  ['an empty header accepts nothing', '', false],
  ['one type', STREAM, true],
  ['only the usual type', JSON_TYPE, false],
  ['another type', 'text/html', false],
  ['names do not depend on case', 'TEXT/Event-Stream', true],
  ['spaces and empty elements', ` , ${STREAM} , ,`, true],

  ['the greater weight, at the front', `${STREAM};q=0.9, ${JSON_TYPE};q=0.8`, true],
  ['the greater weight, at the end', `${JSON_TYPE};q=0.8, ${STREAM};q=0.9`, true],
  ['the smaller weight, at the front', `${STREAM};q=0.8, ${JSON_TYPE};q=0.9`, false],
  ['no weight means 1', `${JSON_TYPE};q=0.999, ${STREAM}`, true],
  ['no weight of the usual type', `${STREAM};q=0.999, ${JSON_TYPE}`, false],
  ['three decimals', `${JSON_TYPE};q=0.123, ${STREAM};q=0.124`, true],
  ['a weight in upper case, with spaces', `${JSON_TYPE}; Q=0.5, ${STREAM} ; Q=0.6`, true],

  ['the smallest weight that accepts', `${STREAM};q=0.001`, true],
  ['q=0 refuses the type', `${STREAM};q=0`, false],
  ['q=0.000 refuses the type', `${STREAM};q=0.000`, false],
  ['q=0 refuses the type, and a wildcard accepts the others', `*/*, ${STREAM};q=0`, false],
  ['q=0 refuses the usual type', `*/*, ${JSON_TYPE};q=0`, true],
  ['q=0 refuses both', `*/*;q=0`, false],

  ['a wildcard prefers none', '*/*', false],
  ['a wildcard of the type', 'text/*', true],
  ['a wildcard of the usual type', 'application/*', false],
  ['a more exact range decides, at the front', `${STREAM};q=0.1, */*;q=0.5`, false],
  ['a more exact range decides, at the end', `*/*;q=0.5, ${STREAM};q=0.6`, true],
  ['a subtype before its wildcard', `text/*;q=0.1, ${JSON_TYPE};q=0.5, ${STREAM};q=0.9`, true],
  ['a wildcard of the type before that of all', '*/*;q=0.5, text/*;q=0.4', false],
  ['a browser', 'text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8', false],

  ['equal weights: the first type', `${STREAM}, ${JSON_TYPE}`, true],
  ['equal weights: the first type is the usual one', `${JSON_TYPE}, ${STREAM}`, false],
  ['equal weights: the first of several', `text/html, ${STREAM}, ${JSON_TYPE}`, true],
  ['equal weights that are given', `${JSON_TYPE};q=0.5, ${STREAM};q=0.5`, false],
  ['equal weights: the more exact range', `*/*, ${STREAM}`, true],
  ['equal weights: the usual type is more exact', `text/*, ${JSON_TYPE}`, false],
  ['equal weights: the first of two wildcards', 'text/*, application/*', true],
  ['equal weights: the second of two wildcards', 'application/*, text/*', false],

  ['no slash', 'text', false],
  ['no subtype', 'text/', false],
  ['no type', '/event-stream', false],
  ['a third part', `${STREAM}/x`, false],
  ['a space in the name', 'text/event stream', false],
  ['a weight that is no number', `${STREAM};q=high`, false],
  ['an empty weight', `${STREAM};q=`, false],
  ['a negative weight', `${STREAM};q=-1`, false],
  ['a weight above 1', `${STREAM};q=2`, false],
  ['a weight slightly above 1', `${STREAM};q=1.001`, false],
  ['a weight with four decimals', `${STREAM};q=0.1234`, false],
  ['a weight with text behind it', `${STREAM};q=0.5x`, false],
  ['a weight above 1 does not win', `${STREAM};q=2, ${JSON_TYPE};q=0.1`, false],
  ['a weight of 1.000', `${JSON_TYPE};q=0.9, ${STREAM};q=1.000`, true],
  ['a weight that ends with its point', `${STREAM};q=1.`, true],
  ['a comma in a quoted parameter', `text/html;x="a, ${STREAM}"`, false],
  ['a comma after an escaped quote', `text/html;x="a\\", ${STREAM}"`, false],
  ['a quoted parameter before a plain range', `text/html;x="a,b", ${STREAM}`, true],
  ['a semicolon in a quoted parameter', `${STREAM};x=";q=1"`, false],
  ['a quote that is never closed', `text/html;x="a, ${STREAM}`, false],
  ['a malformed range beside a valid one', `nonsense;;, ${STREAM}`, true],
  ['a parameter that the answer lacks', `${STREAM};level=1`, false],
  ['such a parameter beside a plain range', `${STREAM};level=1, ${STREAM};q=0.5`, true],
])('%s', (_rule, header, isStream) => {
  expect(prefers(header, STREAM, JSON_TYPE)).toBe(isStream);
});
