/** Requirements as lines, for the command line and the dashboard. */
import { expect, it } from 'vitest';
import { parseRequires, requiresLines } from '../src/machine.ts';

it('lines and requirements are the same in both directions', () => {
  const lines = ['label:zone=a', 'arch:amd64', 'device:nvidia.com/gpu=2'];
  const requires = {
    labels: { zone: 'a' },
    arch: 'amd64',
    devices: { 'nvidia.com/gpu': 2 },
  };
  expect(parseRequires(lines)).toEqual(requires);
  expect(requiresLines(requires)).toEqual(lines);
  expect(parseRequires(['', 'device:nvidia.com/gpu'])).toEqual({
    devices: { 'nvidia.com/gpu': 1 },
  });
  expect(parseRequires([])).toEqual({});
  expect(requiresLines({})).toEqual([]);
});

it.each(['zone=a', 'label:zone', 'arch:amd64=x', 'device:a.b/c=many', 'size:1'])(
  '%s is no requirement',
  (line) => expect(parseRequires(['arch:arm64', line])).toEqual({ bad: line }),
);
