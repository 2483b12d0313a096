import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { parseRule, RuleError } from '../src/rule.ts';

describe('parseRule matches', () => {
  test.each([
    ['Host(`a.example`)', 'a.example', '/', true],
    ['Host(`A.Example`)', 'a.example', '/', true],
    ['Host(`a.example`)', 'b.example', '/', false],
    ['Host("a.example")', 'a.example', '/', true],
    ['HostRegexp(`^(a|b)\\.example$`)', 'b.example', '/', true],
    ['HostRegexp(`^(a|b)\\.example$`)', 'ab.example', '/', false],
    ['Path(`/x`)', 'any', '/x', true],
    ['Path(`/x`)', 'any', '/x/', false],
    ['PathPrefix(`/x`)', 'any', '/x/y', true],
    ['PathPrefix(`/x`)', 'any', '/y', false],
    ['Host(`a`) && Path(`/x`)', 'a', '/x', true],
    ['Host(`a`) && Path(`/x`)', 'a', '/y', false],
    ['Host(`a`)&&Path(`/x`)', 'a', '/x', true],
    ['Host(`a`) || Host(`b`)', 'b', '/', true],
    ['Host(`a`) || Host(`b`) && Path(`/x`)', 'a', '/y', true],
    ['(Host(`a`) || Host(`b`)) && Path(`/x`)', 'a', '/y', false],
    ['!Host(`a`)', 'a', '/', false],
    ['Host(`a`) && !PathPrefix(`/private`)', 'a', '/public', true],
    ['!(Host(`a`) || Host(`b`))', 'c', '/', true],
    [' Host( `a` ) ', 'a', '/', true],
  ])('%s for %s%s: %s', (rule, host, path, expected) => {
    expect(parseRule(rule)({ host, path, headers: {} })).toBe(expected);
  });

  test.each([
    ['HeaderRegexp(`X-Name`, `^b`)', { 'x-name': 'b' }, true],
    ['HeaderRegexp(`X-Name`, `^b`)', { 'x-name': 'ab' }, false],
    ['HeaderRegexp(`X-Name`, `(?i)^B`)', { 'x-name': ['a', 'b'] }, true],
    ['HeaderRegexp(`X-Name`, `.*`)', { 'x-other': 'b' }, false],
    ['HeaderRegexp(`X-Name`, `b`) && Host(`a`)', { 'x-name': 'b' }, true],
    ['!HeaderRegexp("X-Name", "b")', {}, true],
  ])('%s with the headers %o: %s', (rule, headers, expected) => {
    expect(parseRule(rule)({ host: 'a', path: '/', headers })).toBe(expected);
  });
});

describe('parseRule refuses', () => {
  test.each([
    ['', 'expected a matcher at the end'],
    ['Host', 'expected ( at the end'],
    ['Host(a)', 'expected a string in backticks or quotes'],
    ['Host(`a`, `b`)', 'expected ) at character 9'],
    ['HeaderRegexp(`a`)', 'expected , at character 17'],
    ['HeaderRegexp(`a`, `(`)', 'invalid regular expression'],
    ['Host(`a`', 'expected ) at the end'],
    ['Host(`a`) Host(`b`)', 'unexpected text after the rule at character 10'],
    ['Host(`a`) &&', 'expected a matcher at the end'],
    ['Query(`a`)', 'unknown matcher Query at character 1'],
    ['constructor(`a`)', 'unknown matcher constructor'],
    ['Host(`a`) & Host(`b`)', 'syntax error at character 10'],
    ['(Host(`a`)', 'expected ) at the end'],
  ])('%s', (rule, message) => {
    expect(() => parseRule(rule)).toThrow(RuleError);
    expect(() => parseRule(rule)).toThrow(message);
  });

  test('any other text with a RuleError, never with another error', () => {
    fc.assert(
      fc.property(fc.string(), (rule) => {
        try {
          parseRule(rule);
        } catch (error) {
          expect(error).toBeInstanceOf(RuleError);
        }
      }),
    );
  });
});
