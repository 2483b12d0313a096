/**
 * The table of fail points equals the calls in the sources and the points of the suite
 * (structure.test.ts checks docs/fail-points.md).
 */
import { expect, test } from 'vitest';
import { callsInSources, isPointOf } from './faults/fail-points/calls.ts';
import { FAIL_POINTS, QUICK } from './faults/fail-points/table.ts';

const calls = callsInSources();
const names = FAIL_POINTS.map((point) => point.name);

test('every call in the sources has a row in the table', () => {
  expect(
    calls
      .filter((call) => !names.some((name) => isPointOf(name, call)))
      .map(({ file, name }) => `${file}: ${name}`),
  ).toEqual([]);
});

test('every point of the table is called at exactly one place, in the package of its process', () => {
  const packages = {
    'control-plane': 'packages/control-plane/',
    builder: 'packages/agent/',
    node: 'packages/agent/',
    'second node': 'packages/agent/',
  };
  const wrong = FAIL_POINTS.filter(({ name, process }) => {
    const [only, ...more] = calls.filter((call) => isPointOf(name, call));
    return only === undefined || more.length > 0 || !only.file.startsWith(packages[process]);
  });
  expect(wrong.map((point) => point.name)).toEqual([]);
});

test('the table has at least 25 points, each once for an operation, and the quick ones', () => {
  const rows = FAIL_POINTS.map(({ name, during }) => `${name} during ${during}`);
  expect(new Set(rows).size).toBe(rows.length);
  expect(names.length).toBeGreaterThanOrEqual(25);
  expect(QUICK.filter((name) => !names.includes(name))).toEqual([]);
});
